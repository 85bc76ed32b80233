"""What ``monitor try`` says, beside a long comparison that the job makes of itself.

Run: .venv/bin/python benchmarks/tries_coverage.py [--tries 4] [--write] [JOB ...]
Each job turns the knob itself, in turns of a second, before the tries and after them, with no
monitor near: that is the truth. It has an interval, too: an answer counts as right where it holds
the middle of the truth; how many overlap with its interval is printed beside that.
``--write`` puts the jobs that ran into ``figures.json``, under ``try``. A quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import figures, tries  # noqa: E402  found by the line above
from whyidle.monitor.core.paths import VARIABLE  # noqa: E402
from whyidle.monitor.trying.sequential import student  # noqa: E402

# Of each half of the truth, and the most that a try may take.
TRUTH_S: Final = 30.0
TRY_S: Final = 60.0
FRAME: Final = """
import collections, gc, json, os, random, subprocess, sys, threading, time
asked = []
def hear():
    while os.read(0, 1):
        asked.append(1)
    os._exit(0)
threading.Thread(target=hear, daemon=True).start()
{setup}
def put(on):
    {turn}
def compare(seconds):
    turns, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        # As often this first as that, so that a drift gives neither anything.
        for on in random.choice([(0, 1, 1, 0), (1, 0, 0, 1)]):
            put(on)
            step(); step()
            count, began = 0, time.perf_counter()
            while (took := time.perf_counter() - began) < 1.0:
                step(); count += 1
            turns.append((on, took, count))
    put(False)
    print(json.dumps(turns), flush=True)
while True:
    step()
    if asked:
        asked.pop()
        compare({seconds})
"""
TORCH: Final = """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer, data = torch.optim.SGD(model.parameters(), 1e-3), torch.ones(32, 64)
def update(rows=data):
    optimizer.zero_grad()
    model(rows).pow(2).mean().backward()
    optimizer.step()
"""
JAX: Final = """
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, whyidle.monitor
fit = jax.jit(lambda w: w - 1e-3 * jnp.tanh(w @ w))
weights = jnp.ones((32, 32))
def update():
    global weights
    weights = fit(weights).block_until_ready()
    whyidle.monitor.step()
"""
# Records come and go, in circles, as of a parser's tree; and some work that leaves them alone.
RECORDS: Final = """
recent, wide = collections.deque(maxlen=6), torch.ones(512, 512)
def step():
    recent.append([{"n": n, "next": [n]} for n in range(2_000)])
    for _ in range(3):
        (wide @ wide).sum().item()
    update()
"""
# A thread of Python that never rests wants its lock; each short read gives it away.
READS: Final = """
def count():
    n = 0
    while True:
        n += 1
threading.Thread(target=count, daemon=True).start()
zeros = os.open("/dev/zero", os.O_RDONLY)
def step():
    for _ in range(4):
        os.read(zeros, 4096)
    update()
"""
# Programs that the job has started: of the same session, and gone with it.
HELPERS: Final = """
import signal
BURN = "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)\\nwhile True: pass"
helpers = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range({helpers})]
"""
WIDE: Final = """
wide = torch.ones(512, 512)
def step():
    (wide @ wide).sum().item()
    update()
"""
PIN: Final = """
all_cores = os.sched_getaffinity(0)
one = {min(all_cores)}
def pin(cores):
    threads = [int(each) for each in os.listdir("/proc/self/task")]
    for each in [*threads, *(helper.pid for helper in helpers)]:
        os.sched_setaffinity(each, cores)
pin(one)
"""


@dataclass(frozen=True)
class Job:
    """One job, and a knob that does something to it or nothing."""

    knob: str
    # What it does in each step, and how it turns the knob itself.
    setup: str
    turn: str
    framework: str = TORCH

    @property
    def source(self) -> str:
        """Its program."""
        return FRAME.format(setup=self.framework + self.setup, turn=self.turn, seconds=TRUTH_S)


FREEZE: Final = "gc.freeze() if on else gc.unfreeze()"
COLLECTS: Final = """
wide, made = jnp.ones((512, 512)) if "jax" in sys.modules else torch.ones(512, 512), 0
def step():
    global made
    made += 1
    for _ in range(2):
        float((wide @ wide).sum())
    update()
    if made % 50 == 0:
        gc.collect()
"""
PLAIN: Final = "\ndef step():\n    update()\n"
JOBS: Final = {
    "collects every 50 steps": Job("gc.freeze", COLLECTS, FREEZE),
    "collects every 50 steps, JAX": Job("gc.freeze", COLLECTS, FREEZE, JAX),
    "makes many objects": Job("gc.disable", RECORDS, "gc.disable() if on else gc.enable()"),
    "makes many objects, less often": Job(
        "gc.threshold=50000", RECORDS, "gc.set_threshold(50000 if on else 700, 10, 10)"
    ),
    "a thread counts": Job(
        "python.switch_interval=0.002", READS, "sys.setswitchinterval(0.002 if on else 0.005)"
    ),
    "on one core with a helper": Job(
        "cpu.affinity", HELPERS.format(helpers=1) + PIN + PLAIN, "pin(all_cores if on else one)"
    ),
    "helpers burn on the same core": Job(
        "helpers.nice",
        HELPERS.format(helpers=3) + PIN + PLAIN,
        "[os.setpriority(os.PRIO_PROCESS, each.pid, 10 if on else 0) for each in helpers]",
    ),
    "two threads for large products": Job(
        "torch.threads=2",
        WIDE,
        "torch.set_num_threads(2 if on else 1)",
    ),
    "one thread": Job(
        "python.switch_interval=0.002", PLAIN, "sys.setswitchinterval(0.002 if on else 0.005)"
    ),
    "few objects": Job("gc.freeze", PLAIN, FREEZE),
}  # fmt: skip


def rows_of(name: str, count: int) -> dict[str, Any]:
    """Return the truth and each try's interval, in one job."""
    job = JOBS[name]
    with subprocess.Popen(
        [sys.executable, "-c", job.source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        before = tries.asked(process)
        answers = [_tried(process.pid, job.knob) for _ in range(count)]
        after = tries.asked(process)
        process.kill()
    truth, low, high = truth_of(before + after)
    some = [each["ratio"] for each in answers if each.get("ratio")]
    return {
        "knob": job.knob,
        "truth": round(truth, 4),
        "from": [round(low, 4), round(high, 4)],
        "halves": [round(truth_of(half)[0], 4) for half in (before, after)],
        "intervals": [[round(each["low"], 4), round(each["high"], 4)] for each in some],
        "held": sum(each["low"] <= truth <= each["high"] for each in some),
        "met": sum(each["low"] <= high and low <= each["high"] for each in some),
        "without": [each.get("error") or each.get("state") for each in answers
                    if not each.get("ratio")],
    }  # fmt: skip


def truth_of(turns: Sequence[tuple[int, float, int]]) -> tuple[float, float, float]:
    """Return how many times faster it is with the change, and from where to where, 95%.

    By all steps of each side; how far chance moves that, from leaving out four turns at a time.
    """
    groups = [turns[n : n + 4] for n in range(0, len(turns), 4)]

    def ratio(some: Sequence[Sequence[tuple[int, float, int]]]) -> float:
        def step_s(side: int) -> float:
            of_side = [turn for group in some for turn in group if turn[0] == side]
            return sum(took for _, took, _ in of_side) / sum(count for _, _, count in of_side)

        return step_s(0) / step_s(1)

    without = [ratio(groups[:n] + groups[n + 1 :]) for n in range(len(groups))]
    freedom = len(groups) - 1
    half = (freedom * statistics.pvariance(without)) ** 0.5 * student(0.975, freedom)
    middle = ratio(groups)
    return middle, middle - half, middle + half


def _tried(pid: int, knob: str) -> dict[str, Any]:
    read, write = os.pipe()
    child = tries.fork_monitor(pid, knob, TRY_S, write)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as said:
        answer: dict[str, Any] = json.loads(said.read() or "{}")
    return answer


def coverage(names: Sequence[str], count: int) -> dict[str, Any]:
    """Return the rows of these jobs, one after the other."""
    rows: dict[str, Any] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            os.environ[VARIABLE] = folder
            rows[name] = rows_of(name, count)
        print(name, rows[name], file=sys.stderr, flush=True)
    return rows


def summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Return how many intervals hold the truth."""
    return {
        "tries": sum(len(row["intervals"]) + len(row["without"]) for row in rows.values()),
        "measured": sum(len(row["intervals"]) for row in rows.values()),
        "held": sum(row["held"] for row in rows.values()),
        "met": sum(row["met"] for row in rows.values()),
        "rows": rows,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = coverage(given.jobs or list(JOBS), given.tries)
    if given.write:
        known = json.loads(figures.FILE.read_text()).get("try", {})
        old = known.get("coverage", {}).get("rows", {})
        figures.keep("try", {**known, "coverage": summary({**old, **rows})})
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
