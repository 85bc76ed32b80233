"""Jobs on the GPU: that they start, that entering them changes nothing, and what the agent costs.

The jobs that are entered are those of the tests, which check themselves, moved to the GPU.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from benchmarks import agent_cost, attach_stress
from benchmarks.gpu.runner import FRAMEWORKS, Check, Failed, LeftOut, Part, monitor, output, tail
from tests.attach import victims
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import AGENT, OUTSIDE, PTRACE, REMOTE_EXEC, RUN
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

PROGRAMS = Path(__file__).with_name("programs.py")
CYCLES, QUICK_CYCLES = 100, 3
CYCLE_SECONDS = 45.0
ALONE_ROUNDS, RUN_ROUNDS = 5, 400
# Long enough for a tick of each source, and for the agent's first figures of the steps.
WATCH_SECONDS, QUICK_WATCH_SECONDS = 6.0, 5.0
COST_SECONDS, QUICK_COST_SECONDS = 7.0, 2.0
PATIENCE = 120.0
# Without the first a GPU may add up in any order; without the second one job takes most of its
# memory, and there is none for the next.
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
ON_THE_GPU = {
    "torch": """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_default_device(device)
torch.use_deterministic_algorithms(True)
if device == "cpu":
    torch.set_num_threads(1)
""",
    "jax": """
import functools, jax
device = jax.default_backend()
exact = functools.partial(jax.jit, compiler_options={"xla_gpu_deterministic_ops": True})
try:
    exact(lambda x: x)(1.0)
except jax.errors.JaxRuntimeError:  # a later one may not know it any more
    exact = jax.jit
""",
}


def check_device(device: str, *, gpu: bool) -> None:
    """Fail where a job ran on the CPU though there is a GPU."""
    if gpu and device == "cpu":
        raise Failed("the job ran on the CPU: the framework does not see the GPU")


def check_installed(framework: str) -> None:
    """Leave it out where there is no such framework."""
    if importlib.util.find_spec(framework) is None:
        raise LeftOut(f"{framework} is not installed here")


# The frameworks start ----------------------------------------------------------------------------
def starts(check: Check) -> None:
    """Start each framework twice: what comes after this meets a warm machine."""
    for framework in FRAMEWORKS:
        check.do(framework, partial(_start, check, framework))


def _start(check: Check, framework: str, part: Part) -> None:
    check_installed(framework)
    facts, took = {}, []
    for _ in range(1 if check.quick else 2):
        began = time.monotonic()
        command = [sys.executable, PROGRAMS, "look", framework]
        out, _ = output(framework, command, env=os.environ | SETTINGS, timeout=PATIENCE)
        took.append(round(time.monotonic() - began, 1))
        facts = json.loads(out.splitlines()[-1])
    part.figures = {**facts, "start_s": took}
    check_device(facts["device"], gpu=check.gpu)


# Jobs are entered --------------------------------------------------------------------------------
class JobResult(TypedDict):
    """What a job that checks itself came to."""

    rounds: int
    wrong: int
    device: str
    longest_round_ms: float
    losses: str
    last_loss: float


def source(framework: str, rounds: int | None = None, port: int | None = None) -> str:
    """Return the program of a job; without a number of rounds it works until a line comes."""
    text: str = getattr(victims, framework.upper())
    work = text.replace("jax.jit(", "exact(").removesuffix("loop(work)\n")
    limit = "" if rounds is None else f"ended = iter([False] * {rounds} + [True]).__next__\n"
    server = "" if port is None else f"jax.profiler.start_server({port})\n"
    return f"{ON_THE_GPU[framework]}{work}{limit}{server}loop(work, lambda: device)\n"


def result_of(printed: dict[str, Any]) -> JobResult:
    """Return the result that a job printed, with its losses as a digest."""
    return {
        "rounds": printed["rounds"],
        "wrong": printed["wrong"],
        "device": printed["more"],
        "longest_round_ms": printed["gap_ms"],
        "losses": hashlib.sha256(printed["first"].encode()).hexdigest(),
        "last_loss": float.fromhex(ast.literal_eval(printed["first"])[-1]),
    }


def attach(check: Check) -> None:
    """Enter one job of each framework in every way, and see at the end what it has lost."""
    os.environ |= SETTINGS | {"WHYIDLE_STATE_DIR": str(check.folder / "state")}
    for framework in ("jax",) if check.quick else FRAMEWORKS:
        Entering(check, framework).do_all()
    if not check.quick:
        check.do("jax: its own profiler server", Entering(check, "jax").server)


class Entering:
    """The parts of the check for one framework."""

    job: victims.Victim

    def __init__(self, check: Check, framework: str) -> None:
        self._check, self._framework = check, framework
        self._errors = check.folder / f"{framework}.stderr"
        # What a job does that is left alone.
        self._alone: JobResult | None = None

    def do_all(self) -> None:
        """Do one part after the other; all of them enter the same job."""
        self._do("alone", self._leave_alone)
        with ExitStack() as stack:
            if self._do("starts", partial(self._start, stack)).verdict == "ok":
                self._do("every way in", self._ways)
                self._do("in and out", self._cycles)
                self._do("monitor attach", self._attach)
                if not self._check.quick:
                    self._do("from outside", self._observe)
                self._do("lost the same", self._end)
        if not self._check.quick:
            self._do("monitor run", self._run)

    def _do(self, name: str, work: Callable[[Part], None]) -> Part:
        return self._check.do(f"{self._framework}: {name}", work)

    def _program(self, rounds: int) -> list[str]:
        """Write a job that ends by itself; return its command line."""
        check_installed(self._framework)
        file = self._check.folder / f"job_{self._framework}.py"
        file.write_text(source(self._framework, rounds))
        return [sys.executable, str(file)]

    def _leave_alone(self, part: Part) -> None:
        """Two jobs without an agent must have the same losses: else the others prove nothing."""
        command, runs = self._program(ALONE_ROUNDS), []
        for _ in range(1 if self._check.quick else 2):
            out, _ = output("the job", command, timeout=PATIENCE)
            runs.append(result_of(json.loads(out.splitlines()[-1])))
        part.figures = {**runs[0]}
        check_device(runs[0]["device"], gpu=self._check.gpu)
        if len({each["losses"] for each in runs}) > 1 or any(each["wrong"] for each in runs):
            raise Failed("two runs of the job without an agent had different losses")
        self._alone = runs[0]

    def _compare(self, result: JobResult) -> None:
        """Fail where a job did not do what it does alone."""
        if not self._alone:
            raise LeftOut("it is not known what the job does alone")
        if result["wrong"]:
            raise Failed(f"{result['wrong']} of {result['rounds']} rounds lost something else")
        if result["losses"] != self._alone["losses"]:
            raise Failed("the job lost something else than alone, from its first round on")

    @contextmanager
    def _running(self, port: int | None = None) -> Iterator[victims.Victim]:
        """Start a job and wait until it works; it is gone afterwards."""
        check_installed(self._framework)
        with (
            self._errors.open("w") as errors,
            victims.running(source(self._framework, port=port), stderr=errors) as job,
        ):
            yield job

    def _start(self, stack: ExitStack, _part: Part) -> None:
        self.job = stack.enter_context(self._running())

    def _result(self, job: victims.Victim) -> JobResult:
        """Let a job finish, and return its result."""
        try:
            return result_of(job.end())
        except (AssertionError, subprocess.TimeoutExpired):
            said = tail(self._errors.read_text(errors="replace"))
            raise Failed(f"the job hangs or died ({job.process.poll()}): {said}") from None

    def _end(self, part: Part) -> None:
        result = self._result(self.job)
        part.figures = {**result}
        self._compare(result)

    def _ways(self, part: Part) -> None:
        """Come in by the ladder, again while the agent is there, and look at every other rung."""
        target = Target(self.job.key, ProcFs())
        rungs = {r.name: r.refused and r.refused.what for r in ladder.rungs(target)}
        first, second = ladder.enter(target), ladder.enter(target)
        attach_stress.leave(self.job.key)
        part.figures = {
            "refused": {name: why for name, why in rungs.items() if why},
            "first": {"method": first.method, **_stops(first.stops_ms)},
            "again": {"method": second.method, **_stops(second.stops_ms)},
        }
        best = REMOTE_EXEC if sys.version_info >= (3, 14) else PTRACE
        if (first.method, second.method) != (best, AGENT) or second.stops_ms:
            raise Failed(f"entered by {first.method}, then by {second.method}: {first.refusal}")

    def _cycles(self, part: Part) -> None:
        quick, wanted = self._check.quick, QUICK_CYCLES if self._check.quick else CYCLES
        # The rest of the time is for the other ways in.
        until = time.monotonic() + min(CYCLE_SECONDS, self._check.left)
        tally = attach_stress.Tally()
        while tally.cycles < wanted and time.monotonic() < until:
            if self.job.process.poll() is not None:
                break
            attach_stress.cycle(self.job.key, tally)
        part.figures = {**_stops(tally.stops), "cycles": tally.cycles}
        part.figures["not_entered"] = missed = tally.not_entered
        part.figures["cycle_median_s"] = round(statistics.median(tally.seconds or [0.0]), 3)
        if missed:
            raise Failed(f"{missed} of {tally.cycles} not entered: {'; '.join(tally.why)}")
        if not quick and tally.cycles < wanted:
            raise Failed(f"only {tally.cycles} of {wanted} times in the time that there was")
        median, p99 = part.figures["stop_median_ms"], part.figures["stop_p99_ms"]
        too_long = median > attach_stress.BAR_MEDIAN_MS or p99 > attach_stress.BAR_P99_MS
        # A few stops on a busy machine prove nothing.
        if not quick and too_long:
            raise Failed(f"stops of {median:.2f} ms (median), {p99:.2f} ms (p99) are too long")

    def _watch(self, part: Part, *more: str) -> dict[str, Any]:
        """Have the command watch the job; return its summary."""
        seconds = f"{QUICK_WATCH_SECONDS if self._check.quick else WATCH_SECONDS:g}"
        words = ("attach", str(self.job.process.pid), "--json", "--for", seconds, *more)
        summary, _ = monitor(*words, timeout=PATIENCE)
        part.figures = _brief(summary)
        return summary

    def _attach(self, part: Part) -> None:
        summary = self._watch(part)
        part.figures["gpus"] = gpus = [_gpu(gpu) for gpu in summary["gpus"] or ()]
        part.figures["monitor_cpu_cores"] = (summary["monitor"] or {}).get("cpu_cores")
        if summary["attached"] != "agent":
            why = [each["refused"] for each in summary["agents"] or () if each["refused"]]
            raise Failed(f"the agent did not enter: {'; '.join(why) or 'it was not its turn yet'}")
        if self._check.gpu and not any(gpu["job"] for gpu in gpus):
            raise Failed(f"no GPU was said to be the job's: {summary['gpu_problem']}")

    def _observe(self, part: Part) -> None:
        self._watch(part, "--observe")
        if part.figures["attached"] != OUTSIDE:
            raise Failed(f"attached: {part.figures['attached']}")

    def _run(self, part: Part) -> None:
        command = self._program(RUN_ROUNDS)
        summary, said = monitor("run", "--json", "--", *command, timeout=PATIENCE)
        printed = [each for each in said.splitlines() if each.startswith('{"rounds"')]
        if not printed:
            raise Failed(f"the job said nothing: {tail(said)}")
        result = result_of(json.loads(printed[-1]))
        part.figures = {**_brief(summary), "job": result}
        if (summary["attached"], summary["method"]) != ("agent", RUN):
            raise Failed(f"attached: {summary['attached']} by {summary['method']}")
        self._compare(result)

    def server(self, part: Part) -> None:
        """Take a trace by the job's own server: nothing is put into the job."""
        if importlib.util.find_spec("grpc") is None:
            raise LeftOut("grpcio is not installed here")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with self._running(port) as job:
            words = ("trace", str(job.process.pid), "--server", str(port), "--json")
            trace, _ = monitor(*words, timeout=PATIENCE)
            result, devices = self._result(job), len(trace["devices"])
        part.figures = {"events": trace["events"], "devices": devices, "job": result}
        if not devices or result["wrong"]:
            raise Failed(f"devices: {devices}; wrong rounds: {result['wrong']}")


def _stops(stops: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(stops) or [0.0]
    found = statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]
    names = ("stop_median_ms", "stop_p99_ms", "stop_max_ms")
    return {"stops": len(stops), **dict(zip(names, (round(ms, 3) for ms in found), strict=True))}


def _brief(summary: dict[str, Any]) -> dict[str, Any]:
    found = [each["rule"] for each in summary.get("findings", [])]
    return {n: summary.get(n) for n in ("attached", "method", "steps")} | {"findings": found}


def _gpu(gpu: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a GPU, as means, and why the rest is not; nothing that is its own."""
    each = {name: value for name, value in gpu.items() if isinstance(value, dict)}
    means = {name: value["mean"] for name, value in each.items() if "mean" in value}
    return {"job": gpu["job"], "means": means, "unknown": gpu.get("unknown")}


# What the agent costs ----------------------------------------------------------------------------
def cost(check: Check) -> None:
    """Measure one job of each framework."""
    for framework in ("torch",) if check.quick else FRAMEWORKS:
        check.do(framework, partial(_cost, check, framework))


def _cost(check: Check, framework: str, part: Part) -> None:
    """Do what ``agent_cost.py`` does, on the GPU: blocks with the probes' hooks and without."""
    check_installed(framework)
    seconds = QUICK_COST_SECONDS if check.quick else COST_SECONDS
    agents = agent_cost.ROOT / "agents"
    words = [agents, framework, "10", str(seconds), "gpu"]
    out, _ = output("the job", [sys.executable, agent_cost.TRAINING, *words], timeout=check.left)
    measured = json.loads(out.splitlines()[-1])
    # The agent's own thread is held in both blocks: what it takes comes on top.
    share = measured["agent_share"] * 100
    more = [(on[0] / off[0] - 1) * 100 + share for off, on in measured["pairs"]]
    middle, low, high = agent_cost.interval(more)
    part.figures = {
        "device": measured["device"],
        "pairs": len(more),
        "round_ms": round(measured["step_ns"] / 1e6, 3),
        "more_with_it_percent": [round(each, 3) for each in (low, middle, high)],
        "agent_percent_of_core": round(share, 3),
        "traces": [
            {key.replace("_ns", "_ms"): _ms(value) for key, value in trace.items()}
            for trace in measured["traces"]
        ],
    }
    check_device(measured["device"], gpu=check.gpu)


def _ms(value: Any) -> Any:
    return round(value / 1e6, 1) if isinstance(value, int | float) else value
