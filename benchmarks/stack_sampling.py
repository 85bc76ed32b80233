"""What share of a job's time stack samples find where it is, from inside and from outside.

The job spends most of its time in stretches of pure Python of 2 ms, and the rest in calls that let
go of Python's lock; it measures both by its own clocks. At the same time its main thread is sampled
by the agent's sampler in a thread of the job, by the reader from outside, and by py-spy. What is
asked for is the share of the pure part. Then the cost: CPU time of a sample where it is taken, and
how much more CPU time a round of the job takes while it is sampled from outside 200 times a second,
in windows with and without in turns.

Run: .venv/bin/python benchmarks/stack_sampling.py [--seconds N] [--python PYTHON]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from whyidle.monitor.attach.stack_reader.reader import StackReader  # noqa: E402
from whyidle.monitor.processes.target import Target  # noqa: E402

HZ, WINDOW_HZ, WINDOWS, WINDOW_SECONDS = 20.0, 200.0, 60, 0.5
DEEP = 60
JOB = """
import importlib, importlib.util, json, sys, threading, time, zlib
agents, seconds, deep = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
def pure(until):
    number = 0
    while time.perf_counter() < until:
        for _ in range(50):
            number = (number * 7 + 1) % 1013
data = bytes(range(256)) * 64
def frees_lock():
    zlib.compress(data, 1)
    time.sleep(0.0004)
spent, rounds = [0.0, 0.0], 0
def train(n):
    global rounds
    if n:
        return train(n - 1)
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        pure(began + 0.002)
        middle = time.perf_counter()
        frees_lock()
        spent[0] += middle - began
        spent[1] += time.perf_counter() - middle
        rounds += 1
spec = importlib.util.spec_from_file_location(
    "_whyidle_agent", agents + "/__init__.py", submodule_search_locations=[agents])
sys.modules["_whyidle_agent"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sampler = importlib.import_module("_whyidle_agent.stacks").StackSampler(threading.get_ident(), 0)
costs, going = [], True
def sample():
    while going:
        time.sleep(0.05)
        began = time.thread_time()
        sampler.sample(0)
        costs.append(time.thread_time() - began)
thread = threading.Thread(target=sample, daemon=True)
print("ready", flush=True)
thread.start()
train(deep)
going = False
record = sampler.record(1)
inside = sum(count for count, leaf, *_ in record[4] if leaf[2] == "pure")
print(json.dumps({"truth": spent[0] / sum(spent), "agent": inside / record[3], "costs": costs}))
"""
# Counts what it does by its own CPU time; nobody else is in it.
ROUNDS = """
import time
def step():
    number = 0
    for _ in range(2000):
        number = (number * 7 + 1) % 1013
print("ready", flush=True)
while True:
    input()
    began, rounds, end = time.thread_time(), 0, time.perf_counter() + 0.5
    while time.perf_counter() < end:
        step()
        rounds += 1
    print((time.thread_time() - began) / rounds, flush=True)
"""


def start(python: str, source: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a job and wait until it is ready."""
    pipe = subprocess.PIPE
    line = [python, "-c", source, *arguments]
    job = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    return job


def read(job: subprocess.Popen[str], seconds: float, hz: float) -> tuple[StackReader, Any]:
    """Sample a job from outside; returns the functions that were seen, and what each cost."""
    reader = StackReader(Target.named(str(job.pid)), lambda file: file == "<string>")
    seen, costs = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(random.uniform(0.5, 1.5) / hz)
        began = time.thread_time()
        stack = reader.sample()
        costs.append(time.thread_time() - began)
        if stack is not None:
            seen.append(stack.leaf.function)
    reader.close()
    return reader, (seen, costs)


def by_py_spy(job: subprocess.Popen[str], seconds: float, out: Path) -> subprocess.Popen[bytes]:
    """Let py-spy sample a job without stopping it."""
    spy = str(Path(sys.executable).with_name("py-spy"))
    how = ["record", "--nonblocking", "--idle", "--rate", "20", "--format", "raw"]
    what = ["--duration", str(int(seconds)), "--output", str(out), "--pid", str(job.pid)]
    return subprocess.Popen([spy, *how, *what], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)


def shares_of(path: Path) -> float:
    """Return the share of the main thread's stacks of py-spy that end in the pure part."""
    counts = [0, 0]
    for line in path.read_text().splitlines():
        frames, _, count = line.rpartition(" ")
        if "train" in frames:
            counts[" (" in frames and frames.split(";")[-1].startswith("pure ")] += int(count)
    return counts[1] / max(1, sum(counts))


def main() -> None:
    """Print both tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--python", default=sys.executable)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "stacks"
        job = start(chosen.python, JOB, str(ROOT / "agents"), str(chosen.seconds), str(DEEP))
        spy = by_py_spy(job, chosen.seconds - 2, out)
        reader, (seen, costs) = read(job, chosen.seconds - 1, HZ)
        spy.wait()
        said = json.loads(job.communicate()[0])
        spied = f"{shares_of(out):6.1%}" if out.exists() else "not installed"
    print("share of the time in pure Python")
    print(f"  by the job's own clocks       {said['truth']:6.1%}")
    print(f"  by the agent, from inside     {said['agent']:6.1%}  of {len(said['costs'])} samples")
    outside = seen.count("pure") / max(1, len(seen))
    print(f"  by the reader, from outside   {outside:6.1%}  of {len(seen)} samples")
    print(f"  by py-spy --nonblocking       {spied}")
    print(f"  torn: {reader.torn} samples, read again: {reader.tried_again} times")
    print(f"cost of a sample, of a stack {DEEP} deep")
    print(f"  outside     {statistics.median(costs) * 1e6:6.0f} us of the monitor's CPU time")
    print(f"  the agent   {statistics.median(said['costs']) * 1e6:6.0f} us of the job's CPU time")
    print(f"  what a sample from outside costs the job: {in_the_job(chosen.python)}")


def in_the_job(python: str) -> str:
    """Return how much longer a job computes for each sample, by its own CPU time."""
    job = start(python, ROUNDS)
    assert job.stdin is not None
    assert job.stdout is not None
    more = []
    for _ in range(WINDOWS):
        took = {}
        for sampled in random.sample([True, False], 2):
            job.stdin.write("\n")
            job.stdin.flush()
            if sampled:
                read(job, WINDOW_SECONDS - 0.02, WINDOW_HZ)
            took[sampled] = float(job.stdout.readline())
        more.append((took[True] / took[False] - 1) / WINDOW_HZ * 1e6)
    job.kill()
    job.communicate()
    low, middle, high = statistics.quantiles(more)
    return f"{middle:.1f} us (middle half of {len(more)} pairs: {low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
