"""What the agent costs a job, paired and interleaved, and what each of its parts costs.

One job does steps of 10 ms of plain Python, which never lets go of the GIL by itself: the worst
case for a thread beside it. Blocks of steps with the agent and without come in turns in that one
process, in random order within each pair, so that both meet the same machine. Without means: its
thread is held and its callbacks are out; for its timers that time does not count, or it would do
the work of two blocks in one.

The overhead of a pair is (with - without) / without, of the mean step. ``CPU`` is what the bar is
for, and holds on a busy machine: how much more CPU time the job's thread takes, and the share of a
core that the agent's takes, for which a job that never waits has to wait. ``wall`` is the clock,
with all the noise. Figures are medians over the pairs, the intervals are bootstraps over the pairs.

Four more jobs train, with torch and with JAX, in steps of 10 ms and of about 100 us. There a pair
is one block with the probes' hooks in the job and one without, and the agent's thread is held in
both: what a step pays is the CPU time of its own thread. What a long step of torch's takes differs
by more than hooks cost, and one of JAX's mostly waits: there the calls that hooks hang on are
timed, in the middle step of each block, and the whole step beside them, with all its noise. Each
job runs in three processes, one after the other. What the agent's thread takes is measured beside
it, with everything on: in its first seconds, when it looks at all that is there, and over many
seconds after them. Then traces are taken: what the steps around one took more
than usual is what it cost, and over the time that must pass until the next one is due at a share of
1% it is what tracing costs on average. The intervals are of all pairs together, and say nothing of
processes that were not run.

Run: .venv/bin/python benchmarks/agent_cost.py [--quick] [--python PYTHON] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.results import Result, print_results  # noqa: E402  found by the line above

BAR_PERCENT = 0.5
BAR_US = 6.0
BAR_TRACING_PERCENT = 5.0
TRACE_SHARE = 0.01
RESAMPLES = 4000
BUSY_THREADS = 8
# Where things lie in memory is another in each process, and what is cold costs by that.
PROCESSES = 3
# Of a block.
STEPS = 25
JOB = Path(__file__).with_name("agent_cost_job.py")
TRAINING = JOB.with_name("agent_cost_frameworks.py")
# Kind and milliseconds of a step, and what the table calls it.
KINDS = {
    "torch, 10 ms": ("torch", 10.0),
    "jax, 10 ms": ("jax", 10.0),
    "torch, 100 us": ("torch", 0.1),
    "jax, 100 us": ("jax", 0.1),
}


def interval(values: list[float], seed: int = 4) -> tuple[float, float, float]:
    """Return the median, and the ends of its 95% bootstrap interval."""
    chance = random.Random(seed)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return statistics.median(values), medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def measure(python: str, seconds: int, steps: int, threads: int) -> dict[str, Any]:
    """Run one job and return what it measured."""
    line = [python, str(JOB), str(ROOT / "agents"), str(seconds), str(steps), str(threads)]
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def overheads(name: str, pairs: list[Any], bar: float | None) -> Iterator[Result]:
    """Yield the figures of one job."""
    wall, cpu, total = [], [], []
    for (wall_off, cpu_off, _), (wall_on, cpu_on, agent_on) in pairs:
        wall.append((wall_on / wall_off - 1) * 100)
        cpu.append((cpu_on / cpu_off - 1) * 100)
        total.append((cpu_on / cpu_off - 1 + agent_on / wall_on) * 100)
    yield Result(f"{name}: pairs", len(pairs), "")
    yield Result(f"{name}: CPU of a step", statistics.median(p[0][1] for p in pairs) / 1e6, "ms")
    for kind, values, its_bar in (
        ("CPU", total, bar),
        ("job's own CPU", cpu, None),
        ("wall", wall, None),
    ):
        middle, low, high = interval(values)
        yield Result(f"{name}: {kind}, more with it", middle, "%", its_bar)
        yield Result(f"{name}: {kind}, 95% from", low, "%")
        yield Result(f"{name}: {kind}, 95% to", high, "%", its_bar)
    share = [p[1][2] / p[1][0] * 100 for p in pairs]
    yield Result(f"{name}: CPU of the agent", statistics.median(share), "% of core")


def training(python: str, name: str, seconds: float) -> Iterator[Result]:
    """Yield what the probes cost a job that trains; a framework that is missing is left out."""
    kind, milliseconds = KINDS[name]
    line = [python, str(TRAINING), str(ROOT / "agents"), kind, str(milliseconds), str(seconds)]
    runs = []
    for _ in range(PROCESSES):
        done = subprocess.run(line, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            print(f"{name}: left out, the job did not run", file=sys.stderr)
            return
        runs.append(json.loads(done.stdout))
    pairs = [pair for run in runs for pair in run["pairs"]]
    usual = statistics.mean(run["step_ns"] for run in runs)
    more = interval([(on[2] - off[2]) / 1000 for off, on in pairs])
    whole = interval([(on[1] - off[1]) / 1000 for off, on in pairs])
    share = statistics.mean(run["agent_share"] for run in runs) * 100
    bar = BAR_PERCENT if milliseconds >= 10 else None
    # Of a long step the share counts: there the hooks come cold, and cost a few times as much.
    bar_us = BAR_US if bar is None else None
    yield Result(f"{name}: pairs", len(pairs), "")
    yield Result(f"{name}: a step", usual / 1000, "us")
    yield Result(f"{name}: hooks, a step", more[0], "us", bar_us)
    yield Result(f"{name}: hooks, 95% from", more[1], "us")
    yield Result(f"{name}: hooks, 95% to", more[2], "us")
    if whole != more:
        yield Result(f"{name}: the whole step, more with it", whole[0], "us")
        yield Result(f"{name}: the whole step, 95% from", whole[1], "us")
        yield Result(f"{name}: the whole step, 95% to", whole[2], "us")
    first = statistics.mean(run["agent_first"] for run in runs) * 100
    yield Result(f"{name}: CPU of the agent, in its first seconds", first, "% of core")
    yield Result(f"{name}: CPU of the agent", share, "% of core")
    for what, us in zip(("CPU, more with it", "CPU, 95% from", "CPU, 95% to"), more, strict=True):
        its_bar = None if "from" in what else bar
        yield Result(f"{name}: {what}", us * 1e5 / usual + share, "%", its_bar)
    yield from tracing(name, [trace for run in runs for trace in run["traces"]])


def tracing(name: str, traces: list[dict[str, Any]]) -> Iterator[Result]:
    """Yield what a trace costs, and what they cost on average."""
    taken = [trace for trace in traces if "why" not in trace]
    for why in {trace["why"] for trace in traces if "why" in trace}:
        print(f"{name}: a trace was not taken: {why}", file=sys.stderr)
    if not taken:
        return

    yield Result(f"{name}: traces", len(taken), "")
    for key, what in (
        ("window_ns", "its window"),
        ("held_ns", "the job is held"),
        ("lost_ns", "the job loses"),
    ):
        # How long it was held may be unknown.
        if known := [trace[key] for trace in taken if trace[key] is not None]:
            yield Result(f"{name}: a trace, {what}", statistics.median(known) / 1e6, "ms")
    during = [trace["lost_ns"] / (trace["window_ns"] + (trace["held_ns"] or 0)) for trace in taken]
    yield Result(f"{name}: during a trace", statistics.median(during) * 100, "%")
    average = statistics.median(during) * TRACE_SHARE * 100
    yield Result(f"{name}: averaged at a share of 1%", average, "%", BAR_TRACING_PERCENT)


def results(python: str, seconds: int) -> list[Result]:
    """Return the figures of the jobs that train, of one alone, and of one with busy threads."""
    trained = [row for name in KINDS for row in training(python, name, seconds / 4)]
    # Its bar is near: of fewer pairs the interval of a noisy machine would say nothing.
    alone = measure(python, 6 * seconds, STEPS, 0)
    # Each step there lasts as long as nine.
    busy = measure(python, seconds // 2, max(1, STEPS // (BUSY_THREADS + 1)), BUSY_THREADS)
    parts = alone["parts"]
    return [
        *trained,
        *overheads("1 thread", alone["pairs"], BAR_PERCENT),
        *overheads("9 threads", busy["pairs"], None),
        Result("a collection: our three callbacks", parts["gc_ns"], "ns"),
        Result("a stack sample, 30 frames deep", parts["sample_us"], "us"),
        Result("a stack sample, 8 more threads", busy["parts"]["sample_us"], "us"),
        Result("the figures of a second", parts["second_us"], "us"),
        Result("a fork, job of 1 thread: the call", parts["fork_alone_us"], "us"),
        Result("a fork, job of 1 thread: and its child", parts["child_alone_us"], "us"),
        Result("a fork, job of threads: the call", parts["fork_us"], "us"),
        Result("a fork, job of threads: and its child", parts["child_us"], "us"),
        Result("load average, 1 minute", os.getloadavg()[0], ""),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=50, help="for the pairs of a job, about")
    parser.add_argument("--quick", action="store_true", help="a fifth of it, for a first look")
    parser.add_argument("--python", default=sys.executable, help="the job's Python")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds = max(5, options.seconds // 5) if options.quick else options.seconds
    print_results(results(options.python, seconds), as_json=options.json)


if __name__ == "__main__":
    main()
