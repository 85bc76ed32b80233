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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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


def check_device(facts: dict[str, Any], *, gpu: bool) -> None:
    """Fail where a job ran on the CPU though there is a GPU."""
    if gpu and facts["device"] == "cpu":
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
    check_device(facts, gpu=check.gpu)


# Jobs are entered --------------------------------------------------------------------------------
def source(framework: str, rounds: int | None = None, port: int | None = None) -> str:
    """Return the program of a job; without a number of rounds it works until a line comes."""
    text: str = getattr(victims, framework.upper())
    work = text.replace("jax.jit(", "exact(").removesuffix("loop(work)\n")
    limit = "" if rounds is None else f"ended = iter([False] * {rounds} + [True]).__next__\n"
    server = "" if port is None else f"jax.profiler.start_server({port})\n"
    return f"{ON_THE_GPU[framework]}{work}{limit}{server}loop(work, lambda: device)\n"


def figures_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a job that checked itself came to."""
    losses, result = result["first"], {**result, "device": result["more"]}
    return {
        **{name: result[name] for name in ("rounds", "wrong", "device")},
        "longest_round_ms": result["gap_ms"],
        "losses": hashlib.sha256(losses.encode()).hexdigest(),
        "last_loss": float.fromhex(ast.literal_eval(losses)[-1]),
    }


def program(check: Check, framework: str, rounds: int) -> list[str]:
    """Write a job that ends by itself; return its command line."""
    file = check.folder / f"{framework}.py"
    file.write_text(source(framework, rounds))
    return [sys.executable, str(file)]


@contextmanager
def running(check: Check, framework: str, port: int | None = None) -> Iterator[victims.Victim]:
    """Start a job and wait until it works; it is gone afterwards."""
    check_installed(framework)
    with (check.folder / f"{framework}.stderr").open("w") as errors:
        program = source(framework, port=port)
        with victims.running(program, stderr=errors, env=os.environ | SETTINGS) as job:
            yield job


def end(check: Check, framework: str, job: victims.Victim) -> dict[str, Any]:
    """Let a job finish, and return what it came to."""
    try:
        return figures_of(job.end())
    except (AssertionError, subprocess.TimeoutExpired):
        said = tail((check.folder / f"{framework}.stderr").read_text(errors="replace"))
        raise Failed(f"the job hangs or died ({job.process.poll()}): {said}") from None


def attach(check: Check) -> None:
    """Enter one job of each framework in every way, and see at the end what it has lost."""
    os.environ["WHYIDLE_STATE_DIR"] = str(check.folder / "state")
    for name in ("jax",) if check.quick else FRAMEWORKS:
        alone: dict[str, Any] = {}
        check.do(f"{name}: alone", partial(_alone, check, name, alone))
        with ExitStack() as stack:
            _enter(check, name, alone, stack)
        if not check.quick:
            check.do(f"{name}: monitor run", partial(_run, check, name, alone))
    if not check.quick:
        check.do("jax: its own profiler server", partial(_server, check))


def _enter(check: Check, name: str, alone: dict[str, Any], stack: ExitStack) -> None:
    jobs: list[victims.Victim] = []

    def start(_: Part) -> None:
        jobs.append(stack.enter_context(running(check, name)))

    check.do(f"{name}: starts", start)
    for job in jobs:
        check.do(f"{name}: every way in", partial(_ways, job))
        check.do(f"{name}: in and out", partial(_cycles, check, job))
        check.do(f"{name}: monitor attach", partial(_attach, check, job))
        if not check.quick:
            check.do(f"{name}: from outside", partial(_observe, check, job))
        check.do(f"{name}: lost the same", partial(_ends, check, name, job, alone))


def _alone(check: Check, framework: str, alone: dict[str, Any], part: Part) -> None:
    """Two jobs without an agent must have the same losses: else the others prove nothing."""
    check_installed(framework)
    command = program(check, framework, ALONE_ROUNDS)
    runs = []
    for _ in range(1 if check.quick else 2):
        out, _ = output("the job", command, env=os.environ | SETTINGS, timeout=PATIENCE)
        runs.append(figures_of(json.loads(out.splitlines()[-1])))
    part.figures = runs[0]
    check_device(runs[0], gpu=check.gpu)
    if len({each["losses"] for each in runs}) > 1 or any(each["wrong"] for each in runs):
        raise Failed("two runs of the job without an agent had different losses")
    alone.update(runs[0])


def _compare(result: dict[str, Any], alone: dict[str, Any]) -> None:
    """Fail where a job did not do what it does alone."""
    if not alone:
        raise LeftOut("it is not known what the job does alone")
    if result["wrong"]:
        raise Failed(f"{result['wrong']} of {result['rounds']} rounds lost something else")
    if result["losses"] != alone["losses"]:
        raise Failed("the job lost something else than alone, from its first round on")


def _ends(
    check: Check, framework: str, job: victims.Victim, alone: dict[str, Any], part: Part
) -> None:
    part.figures = end(check, framework, job)
    _compare(part.figures, alone)


def _ways(job: victims.Victim, part: Part) -> None:
    """Come in by the ladder, once more while the agent is there, and look at every other rung."""
    target = Target(job.key, ProcFs())
    rungs = {r.name: r.refused and r.refused.what for r in ladder.rungs(target)}
    first, second = ladder.enter(target), ladder.enter(target)
    attach_stress.leave(job.key)
    part.figures = {
        "refused": {name: why for name, why in rungs.items() if why},
        "first": {"method": first.method, **_stops(list(first.stops_ms))},
        "again": {"method": second.method, **_stops(list(second.stops_ms))},
    }
    best = REMOTE_EXEC if sys.version_info >= (3, 14) else PTRACE
    if (first.method, second.method) != (best, AGENT) or second.stops_ms:
        raise Failed(f"entered by {first.method}, then by {second.method}: {first.refusal}")


def _cycles(check: Check, job: victims.Victim, part: Part) -> None:
    # The rest of the time is for the other ways in.
    tally, until = attach_stress.Tally(), time.monotonic() + min(CYCLE_SECONDS, check.left)
    for _ in range(QUICK_CYCLES if check.quick else CYCLES):
        if job.process.poll() is not None or time.monotonic() > until:
            break
        attach_stress.cycle(job.key, tally)
    part.figures = {**_stops(tally.stops), "cycles": tally.cycles}
    part.figures["not_entered"] = tally.not_entered
    part.figures["cycle_median_s"] = round(statistics.median(tally.seconds or [0.0]), 3)
    if tally.not_entered:
        raise Failed(f"{tally.not_entered} of {tally.cycles} not entered: {'; '.join(tally.why)}")
    if not check.quick and tally.cycles < CYCLES:
        raise Failed(f"only {tally.cycles} of {CYCLES} times in the time that there was")
    median, p99 = part.figures["stop_median_ms"], part.figures["stop_p99_ms"]
    # Of a few stops on a busy machine nothing is known.
    if not check.quick and (median > attach_stress.BAR_MEDIAN_MS or p99 > attach_stress.BAR_P99_MS):
        raise Failed(f"stops of {median:.2f} ms (median), {p99:.2f} ms (p99) are too long")


def _stops(stops: list[float]) -> dict[str, Any]:
    ordered = sorted(stops) or [0.0]
    found = statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]
    names = ("stop_median_ms", "stop_p99_ms", "stop_max_ms")
    return {"stops": len(stops), **dict(zip(names, (round(ms, 3) for ms in found), strict=True))}


def _watch(check: Check, job: victims.Victim, *more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Have the command watch a job; return its summary, and the figures of it."""
    seconds = f"{QUICK_WATCH_SECONDS if check.quick else WATCH_SECONDS:g}"
    words = ("attach", str(job.process.pid), "--json", "--for", seconds, *more)
    summary, _ = monitor(*words, timeout=PATIENCE)
    return summary, _brief(summary)


def _brief(summary: dict[str, Any]) -> dict[str, Any]:
    found = [each["rule"] for each in summary.get("findings", [])]
    return {n: summary.get(n) for n in ("attached", "method", "steps")} | {"findings": found}


def _attach(check: Check, job: victims.Victim, part: Part) -> None:
    summary, part.figures = _watch(check, job)
    part.figures["gpus"] = [_gpu(gpu) for gpu in summary["gpus"] or ()]
    part.figures["monitor_cpu_cores"] = (summary["monitor"] or {}).get("cpu_cores")
    if summary["attached"] != "agent":
        why = [each["refused"] for each in summary["agents"] or () if each["refused"]]
        raise Failed(f"the agent did not come in: {'; '.join(why) or 'it was not its turn yet'}")
    if check.gpu and not any(gpu["job"] for gpu in part.figures["gpus"]):
        raise Failed(f"no GPU was said to be the job's: {summary['gpu_problem']}")


def _gpu(gpu: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a GPU, as means, and why the rest is not; nothing that is its own."""
    each = {name: value for name, value in gpu.items() if isinstance(value, dict)}
    means = {name: value["mean"] for name, value in each.items() if "mean" in value}
    return {"job": gpu["job"], "means": means, "unknown": gpu.get("unknown")}


def _observe(check: Check, job: victims.Victim, part: Part) -> None:
    _, part.figures = _watch(check, job, "--observe")
    if part.figures["attached"] != OUTSIDE:
        raise Failed(f"attached: {part.figures['attached']}")


def _run(check: Check, framework: str, alone: dict[str, Any], part: Part) -> None:
    check_installed(framework)
    job = program(check, framework, RUN_ROUNDS)
    env = os.environ | SETTINGS
    summary, said = monitor("run", "--json", "--", *job, env=env, timeout=PATIENCE)
    last = [each for each in said.splitlines() if each.startswith('{"rounds"')]
    if not last:
        raise Failed(f"the job said nothing: {tail(said)}")
    part.figures = {**_brief(summary), "job": figures_of(json.loads(last[-1]))}
    if (summary["attached"], summary["method"]) != ("agent", RUN):
        raise Failed(f"attached: {summary['attached']} by {summary['method']}")
    _compare(part.figures["job"], alone)


def _server(check: Check, part: Part) -> None:
    """Take a trace by the job's own server: nothing of ours goes in."""
    if importlib.util.find_spec("grpc") is None:
        raise LeftOut("grpcio is not installed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running(check, "jax", port) as job:
        words = ("trace", str(job.process.pid), "--server", str(port), "--json")
        answer, _ = monitor(*words, timeout=PATIENCE)
        how = end(check, "jax", job)
    part.figures = {"events": answer["events"], "devices": len(answer["devices"]), "job": how}
    if not answer["devices"] or how["wrong"]:
        raise Failed(f"devices: {len(answer['devices'])}; wrong rounds: {how['wrong']}")


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
    check_device(measured, gpu=check.gpu)


def _ms(value: Any) -> Any:
    return round(value / 1e6, 1) if isinstance(value, int | float) else value
