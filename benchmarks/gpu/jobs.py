"""Jobs on the GPU: that they start, that entering them changes nothing, and what the agent costs.

The jobs that are entered are those of the tests, which check themselves, moved to the GPU.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from benchmarks import agent_cost, attach_stress
from benchmarks.gpu.runner import Check, Failed, Result, answer, monitor, need
from tests.attach import victims
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import AGENT, OUTSIDE, PTRACE, REMOTE_EXEC, RUN
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

COSTS = (("torch", 10), ("jax", 10), ("torch", 1), ("jax", 1))
CYCLES, QUICK_CYCLES, CYCLE_SECONDS = 100, 3, 45.0
ALONE_SECONDS, RUN_ROUNDS, WATCH_SECONDS = 0.5, 400, "6"
COST_SECONDS, QUICK_COST_SECONDS = 3.5, 2.0
# Of each framework, in this order; the last one not in a quick look.
PARTS = ("alone", "starts", "every_way_in", "in_and_out", "monitor_attach", "from_outside",
         "lost_the_same", "monitor_run")  # fmt: skip
# Without the first two a GPU may add up in any order; without the last one job takes most of its
# memory, and there is none for the next.
SETTINGS = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
ON_THE_GPU = {
    "jax": "import jax\ndevice = jax.default_backend()\n",
    "torch": """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_default_device(device)
torch.use_deterministic_algorithms(True)
""",
}


# Jobs are entered --------------------------------------------------------------------------------
def attach_torch(check: Check) -> None:
    """Enter a job of PyTorch in every way."""
    _attach(check, "torch")


def attach_jax(check: Check) -> None:
    """Enter a job of JAX in every way, and one that serves its profiler."""
    _attach(check, "jax")
    if not check.quick:
        check.do("jax: its own profiler server", _server)


def _attach(check: Check, framework: str) -> None:
    """Enter one job in every way, and see at the end what it has lost."""
    os.environ |= SETTINGS | {"WHYIDLE_STATE_DIR": str(check.work / "state")}
    with ExitStack() as stack:
        entering = Entering(framework, stack)
        for name in PARTS[:-1] if check.quick else PARTS:
            check.do(f"{framework}: {name.replace('_', ' ')}", getattr(entering, name))


def source(framework: str, more: str = "") -> str:
    """Return the program of a job that works until a line comes, unless ``more`` of it ends it."""
    work: str = getattr(victims, framework.upper()).removesuffix("loop(work)\n")
    return f"{ON_THE_GPU[framework]}{work}{more}loop(work, lambda: device)\n"


def _running(framework: str, more: str = "") -> AbstractContextManager[victims.Victim]:
    """Return a job that is started and works; it is gone afterwards."""
    need(framework)
    return victims.running(source(framework, more))


class Entering:
    """The parts of the check for one framework: most enter one job."""

    # The job that is entered, once it has started; the losses of one that is left alone.
    job: victims.Victim
    _alone: str | None = None

    def __init__(self, framework: str, stack: ExitStack) -> None:
        self._framework, self._stack = framework, stack

    def _compare(self, result: dict[str, Any]) -> None:
        """Fail where a job lost something else from round to round, or than one left alone."""
        if result["wrong"] or result["first"] != self._alone:
            losses = f"{result['first']} in its first round, alone {self._alone}"
            raise Failed(f"{result['wrong']} of {result['rounds']} rounds differ; it lost {losses}")

    def alone(self, check: Check, part: Result) -> None:
        """Run two jobs without an agent: if their losses differ the other parts prove nothing."""
        took = []
        for _ in range(2):
            began = time.monotonic()
            with _running(self._framework) as job:
                took.append(time.monotonic() - began)
                time.sleep(ALONE_SECONDS)
                part.figures = job.end() | {"start_s": took}
            check.see_device(part.figures["more"])
            self._alone = self._alone or part.figures["first"]
            self._compare(part.figures)

    def starts(self, _check: Check, _part: Result) -> None:
        """Start the job that is entered."""
        self.job = self._stack.enter_context(_running(self._framework))

    def every_way_in(self, _check: Check, part: Result) -> None:
        """Come in by the ladder, again while the agent is there, and look at every other rung."""
        target = Target(self.job.key, ProcFs())
        rungs = ladder.rungs(target)
        first, second = ladder.enter(target), ladder.enter(target)
        attach_stress.leave(self.job.key)
        part.figures = {
            "refused": {rung.name: rung.refused.what for rung in rungs if rung.refused},
            "methods": [first.method, second.method],
            "stops_ms": [first.stops_ms, second.stops_ms],
        }
        best = REMOTE_EXEC if sys.version_info >= (3, 14) else PTRACE
        if (first.method, second.method) != (best, AGENT) or second.stops_ms:
            raise Failed(f"entered by {first.method}, then by {second.method}: {first.refusal}")

    def in_and_out(self, check: Check, part: Result) -> None:
        """Come in and leave, again and again."""
        wanted, tally = QUICK_CYCLES if check.quick else CYCLES, attach_stress.Tally()
        # The rest of the time is for the other ways in.
        until = time.monotonic() + min(CYCLE_SECONDS, check.left)
        while tally.cycles < wanted and time.monotonic() < until:
            attach_stress.cycle(self.job.key, tally)
        rows = attach_stress.results({"job": tally}, {})
        part.figures = {row.what: round(row.value, 3) for row in rows}
        bad = [row.what for row in rows if row.verdict == "NO"]
        # A few stops on a busy machine prove nothing.
        if tally.not_entered or (not check.quick and (bad or tally.cycles < wanted)):
            raise Failed(f"{tally.cycles} of {wanted} times; not good: {bad}; {[*tally.why]}")

    def _watch(self, part: Result, *more: str) -> dict[str, Any]:
        """Have the command watch the job; return its summary."""
        pid = str(self.job.process.pid)
        summary, _ = monitor("attach", pid, "--json", "--for", WATCH_SECONDS, *more)
        part.figures = _brief(summary)
        return summary

    def monitor_attach(self, check: Check, part: Result) -> None:
        """Have ``monitor attach`` come in."""
        summary = self._watch(part)
        gpus = summary["gpus"] or []
        # Nothing that is a GPU's own.
        part.figures["gpus"] = [
            {name: value["mean"] for name, value in gpu.items()
             if isinstance(value, dict) and "mean" in value} | {"unknown": gpu.get("unknown")}
            for gpu in gpus
        ]  # fmt: skip
        part.figures["monitor_cpu_cores"] = (summary["monitor"] or {}).get("cpu_cores")
        if summary["attached"] != "agent":
            why = [each["refused"] for each in summary["agents"] or () if each["refused"]]
            raise Failed(f"the agent did not enter: {'; '.join(why) or 'it was not its turn yet'}")
        if check.gpu and not any(gpu["job"] for gpu in gpus):
            raise Failed(f"no GPU was said to be the job's: {summary['gpu_problem']}")

    def from_outside(self, _check: Check, part: Result) -> None:
        """Watch it without coming in."""
        if (attached := self._watch(part, "--observe")["attached"]) != OUTSIDE:
            raise Failed(f"attached: {attached}")

    def lost_the_same(self, _check: Check, part: Result) -> None:
        """Let it finish; what it printed has the losses of its first round."""
        part.figures = self.job.end()
        self._compare(part.figures)

    def monitor_run(self, _check: Check, part: Result) -> None:
        """Start another one under ``monitor run``."""
        need(self._framework)
        ends = f"ended = iter([False] * {RUN_ROUNDS} + [True]).__next__\n"
        job = [sys.executable, "-c", source(self._framework, ends)]
        summary, said = monitor("run", "--json", "--", *job)
        (printed,) = (each for each in said.splitlines() if each.startswith('{"rounds"'))
        part.figures = _brief(summary) | {"job": json.loads(printed)}
        if (summary["attached"], summary["method"]) != ("agent", RUN):
            raise Failed(f"attached: {summary['attached']} by {summary['method']}")
        self._compare(part.figures["job"])


def _brief(summary: dict[str, Any]) -> dict[str, Any]:
    found = [each["rule"] for each in summary.get("findings", [])]
    return {n: summary.get(n) for n in ("attached", "method", "steps")} | {"findings": found}


def _server(_check: Check, part: Result) -> None:
    """Ask for a trace by the job's own server, which ends it on a thread of its own: refused."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with _running("jax", f"jax.profiler.start_server({port})\n") as job:
        try:
            monitor("trace", str(job.process.pid), "--server", str(port), "--json")
            part.figures = job.end() | {"refused": None}
        except Failed as refused:
            part.figures = job.end() | {"refused": str(refused)}
    if part.figures["refused"] is None or part.figures["wrong"]:
        raise Failed("it was not refused, or a round lost something else")


# What the agent costs ----------------------------------------------------------------------------
def cost(check: Check) -> None:
    """Measure jobs of each framework with long steps and with short ones."""
    for framework, milliseconds in COSTS[:2] if check.quick else COSTS:
        check.do(f"{framework}, {milliseconds} ms", _cost, framework, milliseconds)


def _cost(check: Check, part: Result, framework: str, milliseconds: int) -> None:
    """Do what ``agent_cost.py`` does, on the GPU: blocks with the probes' hooks and without."""
    need(framework)
    seconds = QUICK_COST_SECONDS if check.quick else COST_SECONDS
    words = [f"{agent_cost.ROOT}/agents", framework, str(milliseconds), str(seconds), "gpu"]
    command = [sys.executable, str(agent_cost.TRAINING), *words]
    measured, _ = answer("the job", command, timeout=check.left)
    # The agent's own thread is held in both blocks: what it takes comes on top.
    share = measured["agent_share"] * 100
    more = [(on[0] / off[0] - 1) * 100 + share for off, on in measured["pairs"]]
    hooks = [(on[2] - off[2]) / 1000 for off, on in measured["pairs"]]
    part.figures = {
        **{name: measured[name] for name in ("device", "step_ns", "traces")},
        "pairs": len(more),
        "more_with_it_percent": agent_cost.interval(more),
        "hooks_us": agent_cost.interval(hooks),
        "agent_percent_of_core": share,
    }
    check.see_device(measured["device"])
