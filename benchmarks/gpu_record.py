"""Record what NVML says of a real GPU: a tape for the tests, and what each call costs.

Runs the monitor's own probe while the GPU is idle, multiplies, is copied to, and is shared by two
processes. Needs nvidia-ml-py and torch, and one GPU; changes nothing on it.

Run: python benchmarks/gpu_record.py [--seconds-per-phase 20] [--hz 2]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The probe as it lies here, installed or not.
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import questions, runner, tape  # noqa: E402  found by the line above
from benchmarks.gpu_keep import RECORDINGS, slug  # noqa: E402
from tests.attach.victims import LOOP, Victim, running  # noqa: E402
from whyidle.monitor.core.errors import Exit, Problem, UsageProblem  # noqa: E402
from whyidle.monitor.sources.gpus import GpuProbe, find_gpus  # noqa: E402
from whyidle.monitor.sources.nvml import Nvml, Tap  # noqa: E402

READ_LIMIT_SECONDS, AFTER_SECONDS = 2.0, 2.0
COPY_BYTES = 256 << 20
# With random numbers: on zeros the GPU draws less power.
LOADS = {
    "bf16 products of 8192x8192": """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
def work():
    for _ in range(10):
        a @ a
    torch.cuda.synchronize()
""",
    "copies from pageable and pinned memory in turns": f"""
import itertools, torch
target = torch.empty({COPY_BYTES}, dtype=torch.uint8, device="cuda")
source = torch.ones({COPY_BYTES}, dtype=torch.uint8)
sources = itertools.cycle((source, source.pin_memory()))
def work():
    target.copy_(next(sources))
    torch.cuda.synchronize()
""",
}
MULTIPLIES, COPIES = LOADS
NO_LOAD = "def work():\n    time.sleep(0.05)\n"
# Phase: the loads that run in it, by their names in the tape.
PLAN: dict[str, dict[str, str]] = {
    "idle": {},
    "matmul": {"TRAINER": MULTIPLIES},
    "h2d": {"TRAINER": COPIES},
    "two_processes": {"TRAINER": MULTIPLIES, "NEIGHBOUR": MULTIPLIES},
}


class Recorder:
    """One recording: the calls, the phases, and the claims that were looked at."""

    def __init__(self, options: argparse.Namespace, *, loaded: bool) -> None:
        self.calls: list[tape.Call] = []
        self.phases: list[dict[str, Any]] = []
        self.claims: list[runner.Claim] = []
        # Our own loads by pid: "$TRAINER".
        self.roles: dict[int, str] = {}
        self.zero, self._over = time.monotonic(), threading.Event()
        self._options, self._loaded = options, loaded
        self._probe = GpuProbe(Nvml(tap=self._tap("probe")))
        self._beside, self._asking = Nvml(tap=self._tap("recorder")), Nvml()

    def _tap(self, asker: str) -> Tap:
        def tap(function: str, arguments: tuple[Any, ...], seconds: float, outcome: Any) -> None:
            # The driver read the value somewhere in the call. The probe uses this answer again.
            t = max(0.0, time.monotonic() - self.zero - seconds / 2)
            if hasattr(outcome, "numMetrics"):
                outcome = type(outcome).from_buffer_copy(outcome)
            phase = self.phases[-1]["name"] if self.phases else "open"
            self.calls.append(tape.Call(t, seconds, function, arguments, outcome, asker, phase))

        return tap

    def record(self) -> None:
        """Go through the phases."""
        for nvml in (self._probe, self._beside, self._asking):
            nvml.open()
        (gpu,) = self._probe.gpus
        for function, arguments in tape.asked(tape.ONCE):
            self._beside.get(function, gpu.handle, *arguments)
        ticks = threading.Thread(target=self._tick, args=(gpu.handle,))
        ticks.start()
        try:
            for name, loads in PLAN.items():
                self._record(gpu.handle, name, loads)
            self._begin("after", None)
            time.sleep(min(AFTER_SECONDS, self._options.seconds_per_phase))
        finally:
            self._over.set()
            ticks.join()
            self._probe.close()
        self._begin("end", None)

    def _begin(self, name: str, load: str | None) -> None:
        print(name, file=sys.stderr)
        now = time.monotonic() - self.zero
        for phase in self.phases[-1:]:
            phase["end"] = now
        self.phases.append({"name": name, "start": now, "end": now, "load": load})

    def _record(self, handle: Any, name: str, loads: dict[str, str]) -> None:
        """Record one phase, and ask the driver itself what its load can show."""
        with ExitStack() as stack:
            if loads:
                self._begin(f"{name}_start", "starting")
            started = [stack.enter_context(self._load(*load)) for load in loads.items()]
            self._begin(name, " and ".join(loads.values() if self._loaded else ()) or None)
            time.sleep(self._options.seconds_per_phase)
            self.claims += questions.ask_driver(self._asking, handle, name)
            ends = [load.end() for load in started]
            if name == "h2d":
                (began, ended), rounds = ends[0]["more"], ends[0]["rounds"]
                times = began - self.zero, ended - self.zero
                self.claims.append(questions.bytes_match(self.calls, *times, rounds * COPY_BYTES))

    @contextmanager
    def _load(self, role: str, kind: str) -> Iterator[Victim]:
        """Run a load, and end it whatever happens; it ends by itself when we do."""
        work = LOADS[kind] if self._loaded else NO_LOAD
        source = (
            f"{LOOP}{work}began = time.monotonic()\nloop(work, lambda: (began, time.monotonic()))"
        )
        # Ctrl-C is for the recorder, which ends the load itself.
        with running(source, process_group=0) as load:
            self.roles[load.process.pid] = f"${role}"
            if self._options.pids is not None:
                (self._options.pids / role).write_text(str(load.process.pid))
            yield load

    def _tick(self, handle: Any) -> None:
        """Read until it is over; a tick that came too late is not made up for."""
        due, every = time.monotonic(), 1 / self._options.hz
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic() - every) + every
            self._probe.read(READ_LIMIT_SECONDS)
            for event in self._probe.events():
                print(event.text, file=sys.stderr)
            for function, arguments in tape.asked(tape.CHANGING):
                self._beside.get(function, handle, *arguments)


def run(options: argparse.Namespace) -> None:
    """Record, and write nvml.tape and nvml.json."""
    if options.out == RECORDINGS and "WHYIDLE_NVML_TAPE" in os.environ:
        what = "This is the fake library of the tests: what it says is no recording."
        raise UsageProblem(what, "Write it elsewhere: --out FOLDER")
    nvml = Nvml()
    nvml.open()
    if (count := len(find_gpus(nvml))) != 1:
        what = f"This machine has {count} GPUs, or parts of one: what is recorded is one alone."
        raise UsageProblem(what, "In a container let it see one: docker run --gpus device=0")
    command = [sys.executable, "-c", "import torch; torch.ones(8, device='cuda').sum().item()"]
    loaded = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not loaded and not options.allow_idle:
        what = "torch does not see this GPU here, so there is no load to record."
        raise UsageProblem(what, "Install it, or record an idle GPU: --allow-idle")
    made = Recorder(options, loaded=loaded)
    made.record()
    made.calls.sort(key=lambda call: call.t)
    made.claims += questions.look_at_calls(made.calls, made.roles)
    asked = f"gpu_record.py --seconds-per-phase {options.seconds_per_phase:g} --hz {options.hz:g}"
    facts = runner.facts() | {"command": asked, "loaded": loaded}
    text = "\n".join(tape.lines(made.calls, made.phases[-1]["end"], made.roles, facts)) + "\n"
    document = {
        **facts,
        "phases": made.phases,
        "functions": functions(made.calls),
        "claims": [claim._asdict() for claim in made.claims],
        "tape_bytes": len(text),
    }
    folder: Path = options.out / slug(facts["model"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvml.tape").write_text(text)
    runner.write_json(folder / "nvml.json", document)
    print("" if loaded else "NO LOAD: torch here does not see the GPU, so no phase had one.")
    print(json.dumps({"folder": str(folder), "tape_bytes": len(text)}))


def functions(calls: list[tape.Call]) -> dict[str, Any]:
    """Return who called each function, how it failed, and how long it took in each phase."""
    found: dict[str, Any] = {}
    for call in calls:
        empty: dict[str, Any] = {"asked_by": [], "errors": {}, "us": {}}
        one = found.setdefault(call.name, empty)
        one["us"].setdefault(call.phase, []).append(round(call.seconds * 1e6, 1))
        if call.asker not in one["asked_by"]:
            one["asked_by"].append(call.asker)
        if call.error:
            one["errors"][call.error[1:]] = one["errors"].get(call.error[1:], 0) + 1
    for one in found.values():
        one["median_us"] = statistics.median(us for each in one["us"].values() for us in each)
    return found


def main() -> int:
    """Record; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds-per-phase", type=float, default=20.0)
    parser.add_argument("--hz", type=float, default=2.0, help="ticks of the probe per second")
    parser.add_argument("--out", type=Path, default=RECORDINGS, help="instead of tests/data/gpu")
    parser.add_argument("--allow-idle", action="store_true", help="record also without a load")
    parser.add_argument("--pids", type=Path, help="leave the loads' pids in files of this folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(options)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.code
    except KeyboardInterrupt:
        print("Interrupted: nothing was written.", file=sys.stderr)
        return Exit.INTERRUPTED
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
