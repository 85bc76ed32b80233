"""What reading a Julia process from outside costs it: one job, in turns read and left alone.

The job counts its own steps, which allocate, and says how many it made. It is read a hundred times
a second, a hundred times as often as a recording does. Each pair is two neighbouring windows, in an
order drawn by chance: what else the machine does slows both alike.

Run: .venv/bin/python benchmarks/julia_cost.py [--pairs 90] [--seconds 1] [--hz 100] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time

from whyidle.monitor.attach.julia_reader import JuliaReader
from whyidle.monitor.demo.pairs import runner
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

JOB = """
keep, steps, said = Any[], 0, time()
while true
    global steps, said
    push!(keep, [rand(50) for _ in 1:200]); length(keep) > 500 && popfirst!(keep)
    steps += 1
    if time() - said > 0.05
        said = time()
        println(steps); flush(stdout)
    end
end
"""
WARM_S = 3.0
SEED = 1
READS = 10_000


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--pairs", type=int, default=90)
    asked.add_argument("--seconds", type=float, default=1.0)
    asked.add_argument("--hz", type=float, default=100.0)
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    julia = runner("julia")
    if julia is None:
        sys.exit("no Julia here: .ci/julia gets one on Debian amd64")
    job = subprocess.Popen([julia, "-e", JOB], stdout=subprocess.PIPE, text=True)
    try:
        said, best, took = _measure(job, given.pairs, given.seconds, given.hz)
    finally:
        job.kill()
    middle = statistics.mean(said)
    error = 2.0 * statistics.stdev(said) / math.sqrt(len(said))
    if given.json:
        found = {"pairs": len(said), "hz": given.hz, "slower": middle, "error": error}
        print(json.dumps(found | {"read_us": took * 1e6}))
        return
    print(
        f"{len(said)} pairs of {given.seconds:g} s, {best:,.0f} steps a second: read {given.hz:g}"
        f" times a second they are {middle:+.2%} slower, +-{error:.2%}; a read takes"
        f" {took * 1e6:.1f} us, in the monitor"
    )


def _measure(
    job: subprocess.Popen[str], pairs: int, seconds: float, hz: float
) -> tuple[list[float], float, float]:
    """Return by how much the job was slower in each pair, its best pace, and how long a read is."""
    draw, slower, best = random.Random(SEED), [], 0.0
    _pace(job, WARM_S)
    reader = JuliaReader(Target.named(str(job.pid)))
    for _ in range(pairs):
        order = [True, False]
        draw.shuffle(order)
        pace = {read: _pace(job, seconds, reader if read else None, hz) for read in order}
        slower.append(pace[False] / pace[True] - 1)
        best = max(best, *pace.values())
    began = time.perf_counter()
    for _ in range(READS):
        reader.read()
    return slower, best, (time.perf_counter() - began) / READS


def _pace(
    job: subprocess.Popen[str], seconds: float, reader: JuliaReader | None = None, hz: float = 1.0
) -> float:
    """Return its steps a second over so long, while it is read or not."""
    assert job.stdout is not None
    first, waited = _newest(job), _waited(job.pid)
    while time.monotonic() - first[0] < seconds:
        time.sleep(1 / hz)
        if reader is not None:
            reader.read()
    last, waited = _newest(job), _waited(job.pid) - waited
    return (last[1] - first[1]) / (last[0] - first[0] - waited)


def _waited(pid: int) -> float:
    """Return how long its main thread has waited for a core: what others take is not our cost."""
    schedule = ProcFs().schedule(pid)
    return 0.0 if schedule is None else schedule[1] / 1e9


def _newest(job: subprocess.Popen[str]) -> tuple[float, int]:
    """Return the count that it says next, and when: what it has said before is read away."""
    assert job.stdout is not None
    while True:
        before = time.monotonic()
        steps = int(job.stdout.readline())
        now = time.monotonic()
        if now - before > 0.01:
            return now, steps


if __name__ == "__main__":
    main()
