"""Record what NVML says of a real GPU: a tape for the tests, and what each call costs.

Runs the monitor's own probe while the GPU is idle, multiplies, is copied to, and is shared by two
processes. Needs nvidia-ml-py, numpy and torch or jax; changes nothing on the GPU.

Run: python benchmarks/gpu_record.py [--seconds-per-phase 20] [--hz 2] [--gpu 0]
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The probe as it lies here, installed or not.
sys.path[:0] = [str(ROOT / ".typing"), str(ROOT)]

from benchmarks.gpu import questions, report  # noqa: E402  found by the line above
from benchmarks.gpu.tape import BESIDE, FACTS, SETTINGS, Phase, Tape, error_of, name_of  # noqa: E402
from whyidle.monitor.core.errors import Exit, NoGpu, Problem, UsageProblem  # noqa: E402
from whyidle.monitor.sources.gpus import GpuProbe  # noqa: E402
from whyidle.monitor.sources.nvml import Nvml, text  # noqa: E402

RECORDINGS = ROOT / "tests" / "data" / "gpu"
PROGRAMS = ROOT / "benchmarks" / "gpu" / "programs.py"
READ_LIMIT_SECONDS, READY_SECONDS, AFTER_SECONDS, LOOK_SECONDS = 2.0, 60.0, 2.0, 90.0
NONE = "none"
DESCRIPTIONS = {
    "matmul": "bf16 products of 8192x8192",
    "h2d": "copies of 256 MiB to the GPU (pageable, then with torch pinned)",
}
# Phase: the loads that run in it, by their names in the tape.
PLAN: dict[str, dict[str, str]] = {
    "idle": {},
    "matmul": {"TRAINER": "matmul"},
    "h2d": {"TRAINER": "h2d"},
    "two_processes": {"TRAINER": "matmul", "NEIGHBOUR": "matmul"},
}
Load = subprocess.Popen[str]


class LoadFailed(Exception):  # noqa: N818  a sentence for the user, not a defect of ours
    """A load did not start, or ended before its time."""


class Recorder:
    """One recording: the tape, the calls, the phases."""

    def __init__(self, options: argparse.Namespace, uuid: str | None, framework: str) -> None:
        self.options = options
        self.framework = framework
        self.tape = Tape(options.gpu)
        self.calls: list[report.Call] = []
        self.phases: list[Phase] = []
        self.findings: list[questions.Finding] = []
        self._env = environment(uuid)
        self._copied: list[tuple[float, int]] = []
        self._pids: list[int] = []
        self._phase = "open"
        self._probe = GpuProbe(Nvml(tap=self._tap("probe")))
        self._beside = Nvml(tap=self._tap("recorder"))
        self._handle: Any = None
        self._trouble: Exception | None = None
        self._due = 0.0

    def _tap(self, asker: str) -> Any:
        def tap(function: str, arguments: tuple[Any, ...], seconds: float, outcome: Any) -> None:
            try:
                if self.tape.is_ours(function, arguments, outcome):
                    self.tape.take(function, arguments, seconds, outcome)
                    call = name_of(function, arguments), asker, self._phase, seconds
                    self.calls.append(report.Call(*call, error_of(outcome)))
            except Exception as error:  # noqa: BLE001  the probe's thread would swallow it
                self._trouble = error

        return tap

    def record(self) -> None:
        """Go through the phases."""
        self._probe.open()
        self._beside.open()
        gpu = next(g for g in self._probe.gpus if g.facts.index == str(self.options.gpu))
        self._probe.gpus, self._handle = [gpu], gpu.handle
        for function in SETTINGS:
            self._beside.get(function)
        for function, arguments in FACTS:
            self._beside.get(function, self._handle, *arguments)
        for name, loads in PLAN.items():
            self._record_phase(name, loads)
        self._tick_for("after", min(AFTER_SECONDS, self.options.seconds_per_phase), None)
        self._probe.close()
        self.findings += questions.look_at_tape(self.tape, self._copied, self._pids)

    def _record_phase(self, name: str, loads: dict[str, str]) -> None:
        kinds = loads if self.framework != NONE else {}
        said = " and ".join(f"{DESCRIPTIONS[k]} by {self.framework}" for k in kinds.values())
        with ExitStack() as stack:
            started = [stack.enter_context(self._load(*load)) for load in loads.items()]
            if started:
                self._wait_until_ready(f"{name}_start", started)
            self._tick_for(name, self.options.seconds_per_phase, said or None, started)
            if name == "h2d" and kinds:
                self._copied = json.loads(started[0].communicate("\n")[0])
            self._ask_driver(name)

    @contextmanager
    def _load(self, role: str, kind: str) -> Iterator[Load]:
        """Run a load, and end it whatever happens; it ends by itself when we do."""
        seconds = str(self.options.seconds_per_phase)
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [sys.executable, PROGRAMS, kind, self.framework, seconds],
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Ctrl-C is for the recorder, which ends the load itself.
                process_group=0,
            ) as load,
        ):
            self.tape.roles[load.pid] = f"${role}"
            if self.framework != NONE:
                self._pids.append(load.pid)
            if self.options.pids is not None:
                (self.options.pids / role).write_text(str(load.pid))
            try:
                yield load
            except LoadFailed as failed:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
                raise LoadFailed(f"{failed}: {last}") from None
            finally:
                load.kill()

    def _wait_until_ready(self, name: str, loads: Sequence[Load]) -> None:
        began, deadline = self.tape.now(), time.monotonic() + READY_SECONDS
        waiting = [load.stdout for load in loads]
        for _ in self._ticks(name, loads):
            for said in select.select(waiting, [], [], 0)[0]:
                waiting.remove(said)
            if not waiting:
                self.phases.append(Phase(name, began, self.tape.now(), "starting"))
                return
            if time.monotonic() > deadline:
                raise LoadFailed(f"A load was not ready after {READY_SECONDS:.0f} s")

    def _tick_for(
        self, name: str, seconds: float, load: str | None, loads: Sequence[Load] = ()
    ) -> None:
        print(f"{name}: {seconds:g} s", file=sys.stderr)
        began = self.tape.now()
        for _ in self._ticks(name, loads):
            if self.tape.now() - began >= seconds:
                break
        self.phases.append(Phase(name, began, self.tape.now(), load))

    def _ticks(self, name: str, loads: Sequence[Load]) -> Iterator[None]:
        self._phase, every = name, 1 / self.options.hz
        while True:
            time.sleep(max(0.0, self._due - time.monotonic()))
            # A tick that came too late is not made up for.
            self._due = max(self._due, time.monotonic() - every) + every
            self._probe.read(READ_LIMIT_SECONDS)
            for event in self._probe.events():
                print(event.text, file=sys.stderr)
            if self._trouble is not None:
                raise self._trouble
            for function, arguments in BESIDE:
                self._beside.get(function, self._handle, *arguments)
            for load in loads:
                if load.poll() is not None:
                    raise LoadFailed(f"A load ended early (exit code {load.returncode})")
            yield

    def _ask_driver(self, phase: str) -> None:
        """Ask what the probe never asks: the tape holds the values before and after."""
        began, nvml = self.tape.now(), Nvml()
        nvml.open()
        if found := [*questions.ask_driver(nvml, self._handle, phase)]:
            self.findings += found
            last = self.phases[-1].load
            self.phases.append(Phase(f"{phase}_questions", began, self.tape.now(), last))


def environment(uuid: str | None) -> dict[str, str]:
    """Return the environment of a load that shall see this GPU alone."""
    mine = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    mine["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return mine | ({} if uuid is None else {"CUDA_VISIBLE_DEVICES": uuid})


def seeing(uuid: str | None) -> str:
    """Return a framework that sees the GPU, or that none does."""
    for framework in ("torch", "jax"):
        command = [sys.executable, PROGRAMS, "look", framework]
        try:
            done = subprocess.run(command, env=environment(uuid), capture_output=True, text=True,
                                  timeout=LOOK_SECONDS, check=True)  # fmt: skip
        except subprocess.SubprocessError:
            continue
        if json.loads(done.stdout.splitlines()[-1])["device"] != "cpu":
            return framework
    return NONE


def run(options: argparse.Namespace) -> Path:
    """Record and write; return the folder."""
    if options.out is None and "WHYIDLE_NVML_TAPE" in os.environ:
        what = "This is the fake library of the tests: what it says is no recording."
        raise UsageProblem(what, "Write it elsewhere: --out FOLDER")
    uuid = find(options.gpu)
    framework = seeing(uuid)
    if framework == NONE and not options.allow_idle:
        what = "Neither torch nor jax sees this GPU here, so there is no load to record."
        raise UsageProblem(what, "Install one of them, or record an idle GPU: --allow-idle")
    made = Recorder(options, uuid, framework)
    made.record()
    words = f"gpu_record.py --seconds-per-phase {options.seconds_per_phase:g} --hz {options.hz:g}"
    loaded = framework != NONE
    return report.write(
        options.out or RECORDINGS,
        report.Recording(made.tape, made.phases, made.calls, made.findings, loaded, words),
    )


def find(gpu: int) -> str | None:
    """Return the UUID of a whole GPU, for the loads alone."""
    nvml = Nvml()
    nvml.open()
    handle = nvml.get("nvmlDeviceGetHandleByIndex", gpu)
    if handle is None:
        what = f"There is no GPU {gpu} here, so there is nothing to record."
        raise NoGpu(what, "Look at what the driver sees: nvidia-smi -L")
    mode = nvml.get("nvmlDeviceGetMigMode", handle)
    if mode and mode[0]:
        what = f"GPU {gpu} is cut into MIG instances, which this recorder cannot record."
        raise UsageProblem(what, "Record a whole GPU: --gpu N")
    return text(nvml.get("nvmlDeviceGetUUID", handle))


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Record; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds-per-phase", type=float, default=20.0)
    parser.add_argument("--hz", type=float, default=2.0, help="ticks of the probe per second")
    parser.add_argument("--gpu", type=int, default=0, help="NVML's index of the GPU")
    parser.add_argument("--out", type=Path, help="instead of tests/data/gpu")
    parser.add_argument("--allow-idle", action="store_true", help="record also without a load")
    parser.add_argument("--pids", type=Path, help="leave the loads' pids in files of this folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    try:
        report.show(run(options))
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.code
    except LoadFailed as failed:
        print(f"{failed}.", file=sys.stderr)
        return Exit.FINDINGS
    except KeyboardInterrupt:
        print("Interrupted: nothing was written.", file=sys.stderr)
        return Exit.INTERRUPTED
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
