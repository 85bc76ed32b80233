"""Record what NVML tells of a real GPU: a tape for the tests, and what each call costs.

Runs the monitor's own probe while the GPU is idle, multiplies, is copied to, and is shared by two
processes. Needs nvidia-ml-py, numpy and torch or jax; changes nothing on the GPU.

Run: python benchmarks/gpu_record.py [--seconds-per-phase 20] [--hz 2] [--gpu 0]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The probe as it lies here, installed or not.
sys.path.insert(0, str(ROOT / ".typing"))

from gpu_recorder import questions, report, work  # noqa: E402  found by the line above
from gpu_recorder.tape import Tape, error_of, name_of  # noqa: E402
from gpu_recorder.tape_text import Phase  # noqa: E402

from whyidle.monitor.core.errors import Exit, NoGpu, Problem, UsageProblem  # noqa: E402
from whyidle.monitor.sources.gpu import Gpu  # noqa: E402
from whyidle.monitor.sources.gpus import GpuProbe  # noqa: E402
from whyidle.monitor.sources.nvml import Nvml, text  # noqa: E402

RECORDINGS = ROOT / "tests" / "data" / "gpu"
READ_LIMIT_SECONDS = 2.0
READY_SECONDS = 60.0
AFTER_SECONDS = 2.0
# Phase: the loads that run in it, by their names in the tape.
PLAN: dict[str, dict[str, str]] = {
    "idle": {},
    "matmul": {"TRAINER": "matmul"},
    "h2d": {"TRAINER": "h2d"},
    "two_processes": {"TRAINER": "matmul", "NEIGHBOUR": "matmul"},
}
# What the probe does not ask but other tools do, asked once: (function, arguments).
FACTS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("nvmlSystemGetNVMLVersion", ()),
    ("nvmlSystemGetCudaDriverVersion", ()),
    *(
        (f"nvmlDeviceGet{name}", ())
        for name in (
            *("VbiosVersion", "MinorNumber", "Brand", "Architecture", "NumGpuCores", "NumFans"),
            *("MemoryBusWidth", "BAR1MemoryInfo", "ComputeMode", "PersistenceMode", "EccMode"),
            *("PowerManagementLimit", "PowerManagementDefaultLimit", "PcieReplayCounter"),
            *("PowerManagementLimitConstraints", "SupportedClocksEventReasons", "PcieSpeed"),
            *("SupportedEventTypes", "EncoderUtilization", "DecoderUtilization", "FanSpeed"),
        )
    ),
    *(("nvmlDeviceGetMaxClockInfo", (clock,)) for clock in range(4)),
    *(("nvmlDeviceGetTemperatureThreshold", (kind,)) for kind in range(4)),
    *(("nvmlDeviceGetNvLinkState", (link,)) for link in range(18)),
)
# The same, but these change: asked at every tick, after the probe.
BESIDE: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetPerformanceState", ()),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetClockInfo", (0,)),
    ("nvmlDeviceGetClockInfo", (3,)),
)


@dataclass
class Recorder:
    """One recording: the tape, the calls, the phases."""

    options: argparse.Namespace
    framework: str
    tape: Tape
    calls: list[report.Call] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    findings: list[questions.Finding] = field(default_factory=list)
    copied: list[tuple[float, int]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    phase: str = "open"

    def __post_init__(self) -> None:
        self._probe = GpuProbe(Nvml(tap=self._tap("probe")))
        self._beside = Nvml(tap=self._tap("recorder"))
        self._gpu: Gpu
        self._folder = Path()
        self._trouble: Exception | None = None
        self._due = 0.0

    def _tap(self, asker: str) -> Any:
        def tap(function: str, arguments: tuple[Any, ...], seconds: float, outcome: Any) -> None:
            try:
                self._take(asker, function, arguments, seconds, outcome)
            except Exception as error:  # noqa: BLE001  the probe's thread would swallow it
                self._trouble = error

        return tap

    def _take(
        self,
        asker: str,
        function: str,
        arguments: tuple[Any, ...],
        seconds: float,
        outcome: Any,
    ) -> None:
        if self.tape.is_ours(function, arguments, outcome):
            self.tape.take(function, arguments, seconds, outcome)
            error = error_of(outcome)
            name = name_of(function, arguments)
            self.calls.append(report.Call(name, asker, self.phase, seconds, error))

    def record(self, folder: Path) -> None:
        """Go through the phases; ``folder`` is for what the loads say."""
        self._folder = folder
        self._probe.open()
        self._beside.open()
        self._gpu = next(g for g in self._probe.gpus if g.facts.index == str(self.options.gpu))
        self._probe.gpus = [self._gpu]
        for function, arguments in FACTS:
            first = () if function.startswith("nvmlSystem") else (self._gpu.handle,)
            self._beside.get(function, *first, *arguments)
        for name, loads in PLAN.items():
            self._record_phase(name, loads)
        self._tick_for("after", min(AFTER_SECONDS, self.options.seconds_per_phase), None)
        self._probe.close()
        self.findings += questions.look_at_tape(self.tape, self.copied, self.pids)

    def _record_phase(self, name: str, loads: dict[str, str]) -> None:
        seconds = self.options.seconds_per_phase
        kinds = loads if self.framework != work.NONE else {}
        said = " and ".join(f"{work.DESCRIPTIONS[k]} by {self.framework}" for k in kinds.values())
        with ExitStack() as stack:
            started = [stack.enter_context(self._load(name, *load)) for load in loads.items()]
            if started:
                self._wait_until_ready(f"{name}_start", started)
            self._tick_for(name, seconds, said or None, started)
            if name == "h2d" and kinds:
                self.copied = started[0].copied()
            self._ask_driver(name)

    def _load(self, phase: str, role: str, kind: str) -> Any:
        words = ["--work", kind, "--framework", self.framework]
        words += ["--seconds-per-phase", str(self.options.seconds_per_phase)]
        folder = self._folder / f"{phase}-{role}"
        return work.running(Path(__file__), folder, words, self._gpu.facts.uuid)

    def _wait_until_ready(self, name: str, loads: Sequence[work.Work]) -> None:
        for role, load in zip(("TRAINER", "NEIGHBOUR"), loads, strict=False):
            self._introduce(role, load.process.pid)
        began, deadline = self.tape.now(), time.monotonic() + READY_SECONDS
        for _ in self._ticks(name):
            if all(load.is_ready() for load in loads):
                self.phases.append(Phase(name, began, self.tape.now(), "starting"))
                return
            if time.monotonic() > deadline:
                msg = f"A load was not ready after {READY_SECONDS:.0f} s."
                raise work.WorkFailed(msg)

    def _introduce(self, role: str, pid: int) -> None:
        self.tape.processes.roles[pid] = f"${role}"
        if self.framework != work.NONE:
            self.pids.append(pid)
        if self.options.pids is not None:
            (self.options.pids / role).write_text(str(pid))

    def _tick_for(
        self, name: str, seconds: float, load: str | None, loads: Sequence[work.Work] = ()
    ) -> None:
        print(f"{name}: {seconds:g} s", file=sys.stderr)
        began = self.tape.now()
        for _ in self._ticks(name):
            for running in loads:
                running.is_ready()
            if self.tape.now() - began >= seconds:
                break
        self.phases.append(Phase(name, began, self.tape.now(), load))

    def _ticks(self, name: str) -> Iterator[None]:
        self.phase = name
        while True:
            time.sleep(max(0.0, self._due - time.monotonic()))
            # A tick that came too late is not made up for.
            self._due = max(self._due, time.monotonic() - 1 / self.options.hz) + 1 / self.options.hz
            self._probe.read(READ_LIMIT_SECONDS)
            for event in self._probe.events():
                print(event.text, file=sys.stderr)
            if self._trouble is not None:
                raise self._trouble
            for function, arguments in BESIDE:
                self._beside.get(function, self._gpu.handle, *arguments)
            yield

    def _ask_driver(self, phase: str) -> None:
        """Ask what the probe never asks: the tape holds the values before and after."""
        began = self.tape.now()
        nvml = Nvml()
        nvml.open()
        found = questions.ask_driver(nvml, self._gpu.handle, phase)
        if found:
            self.findings += found
            load = self.phases[-1].load
            self.phases.append(Phase(f"{phase}_questions", began, self.tape.now(), load))


def run(options: argparse.Namespace) -> Path:
    """Record and write; return the folder."""
    if options.out is None and "WHYIDLE_NVML_TAPE" in os.environ:
        what = "This is the fake library of the tests: what it tells is no recording."
        raise UsageProblem(what, "Write it elsewhere: --out FOLDER")
    uuid = find(options.gpu)
    framework = work.check(Path(__file__), uuid)
    if framework == work.NONE and not options.allow_idle:
        what = "Neither torch nor jax sees this GPU here, so there is no load to record."
        raise UsageProblem(what, "Install one of them, or record an idle GPU: --allow-idle")
    recorder = Recorder(options, framework, Tape(options.gpu))
    with tempfile.TemporaryDirectory() as folder:
        recorder.record(Path(folder))
    return report.write(
        options.out or RECORDINGS,
        report.Recording(
            recorder.tape,
            recorder.phases,
            recorder.calls,
            recorder.findings,
            framework != work.NONE,
            f"gpu_record.py --seconds-per-phase {options.seconds_per_phase:g} --hz {options.hz:g}",
        ),
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


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds-per-phase", type=float, default=20.0)
    parser.add_argument("--hz", type=float, default=2.0, help="ticks of the probe per second")
    parser.add_argument("--gpu", type=int, default=0, help="NVML's index of the GPU")
    parser.add_argument("--out", type=Path, help="instead of tests/data/gpu")
    parser.add_argument("--allow-idle", action="store_true", help="record also without a load")
    parser.add_argument("--pids", type=Path, help="leave the loads' pids in files of this folder")
    parser.add_argument("--work", choices=("check", "matmul", "h2d"), help=argparse.SUPPRESS)
    parser.add_argument("--framework", default=work.NONE, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Record, or be one of the loads; return the exit code."""
    options = parse()
    if options.work is not None:
        work.main(options.work, options.framework, options.seconds_per_phase)
        return Exit.OK
    signal.signal(signal.SIGTERM, _stop)
    try:
        folder = run(options)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.code
    except work.WorkFailed as failed:
        print(failed, file=sys.stderr)
        return Exit.FINDINGS
    except KeyboardInterrupt:
        print("Interrupted: nothing was written.", file=sys.stderr)
        return Exit.INTERRUPTED
    report.show(json.loads((folder / "nvml.json").read_text()), folder)
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
