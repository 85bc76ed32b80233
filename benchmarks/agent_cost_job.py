"""The job of ``agent_cost.py``: steps with the agent and without, and its parts one by one.

Run by ``agent_cost.py`` on any Python from 3.9 on; prints one JSON object.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import statistics
import sys
import threading
import time
from typing import Any, NamedTuple

from agent_cost_inside import Agent, load, tidy, timed

STEP_SECONDS = 0.010
DEPTH = 30
FORK_PAIRS = 10
AGENTS, SECONDS, STEPS, THREADS = sys.argv[1], *map(int, sys.argv[2:5])


def work(rounds: int) -> int:
    """One step: numbers, and now and then a few objects for the collector."""
    total = 0
    for i in range(rounds):
        total += i * i % 7
        if not i % 500:
            total += len([[] for _ in range(20)])
    return total


def calibrate() -> int:
    """Return the rounds of a step of ``STEP_SECONDS`` of CPU time, however busy the machine is."""
    rounds = 20_000
    for _ in range(6):
        costs = []
        for _ in range(15):
            began = time.thread_time_ns()
            work(rounds)
            costs.append(time.thread_time_ns() - began)
        rounds = max(1000, int(rounds * 1e9 * STEP_SECONDS / statistics.median(costs)))
    return rounds


class Block(NamedTuple):
    """What a step took on average: on the clock, and of the CPU."""

    wall_ns: float
    cpu_ns: float
    agent_ns: float


def block(rounds: int, agent: Agent) -> Block:
    """Do one block of steps. A mean, for the agent works in few of them."""
    mine, its, wall = time.thread_time_ns(), agent.cpu_time_ns(), time.perf_counter_ns()
    for _ in range(STEPS):
        work(rounds)
    ends = time.perf_counter_ns() - wall, time.thread_time_ns() - mine, agent.cpu_time_ns() - its
    return Block(*(end / STEPS for end in ends))


def deep(act: Any, levels: int) -> Any:
    """Call something from so deep a stack."""
    return act() if levels == 0 else deep(act, levels - 1)


def pairs(rounds: int, agent: Agent) -> list[tuple[Block, Block]]:
    """Return blocks without the agent and with it, in random order within each pair."""
    found = []
    agent.come()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        made = {}
        for inside in random.sample((True, False), 2):
            if inside:
                made[True] = block(rounds, agent)
            else:
                agent.keep_still()
                made[False] = block(rounds, agent)
                agent.let_on()
        found.append((made[False], made[True]))
    agent.go()
    return found


def forks(number: int = 30) -> list[float]:
    """Return the middle times, in us, of the call that forks and of fork and child together."""
    calls, whole = [], []
    for _ in range(number):
        began = time.perf_counter()
        pid = os.fork()
        if not pid:
            os._exit(0)
        calls.append((time.perf_counter() - began) * 1e6)
        os.waitpid(pid, 0)
        whole.append((time.perf_counter() - began) * 1e6)
    return [statistics.median(calls), statistics.median(whole)]


def fork_costs(agent: Agent) -> list[float]:
    """Return how much more they are with the agent: pairs again."""
    found = []
    for _ in range(FORK_PAIRS):
        without = forks()
        agent.come()
        with_it = forks()
        agent.go()
        found.append([with_it[0] - without[0], with_it[1] - without[1]])
    return [statistics.median(more[n] for more in found) for n in (0, 1)]


def parts(agent: Agent) -> dict[str, float]:
    """Measure each part for itself."""
    extra = fork_costs(agent)
    event = threading.Event()
    other = threading.Thread(target=event.wait)
    other.start()
    extra += fork_costs(agent)
    event.set()
    other.join()
    agent.come()
    taps = list(gc.callbacks)[-3:]
    info = {"generation": 0, "collected": 0, "uncollectable": 0}
    for name in ("start", "stop"):
        for tap in taps:
            tap(name, info)
    gc_ns = timed(lambda: [tap(p, info) for p in ("start", "stop") for tap in taps], 2000) * 1e9
    agent.go()
    return {
        "gc_ns": gc_ns,
        **samples(),
        "fork_alone_us": extra[0],
        "child_alone_us": extra[1],
        "fork_us": extra[2],
        "child_us": extra[3],
    }


def samples() -> dict[str, float]:
    """Measure what the agent's thread does by the clock."""
    load(AGENTS)
    stacks = importlib.import_module("_whyidle_agent.stacks")
    peak = importlib.import_module("_whyidle_agent.python").PeakMemory
    probe = stacks.StackSampler(threading.get_ident(), 0)
    sample = deep(lambda: timed(lambda: probe.sample(0), 500), DEPTH)
    second = timed(lambda: peak(0).read(0), 200) + timed(lambda: probe.record(0), 200)
    return {"sample_us": sample * 1e6, "second_us": second * 1e6}


def main() -> None:
    """Measure and print."""
    rounds = calibrate()
    stop: list[int] = []

    def busy() -> None:
        while not stop:
            work(1000)

    others = [threading.Thread(target=busy, daemon=True) for _ in range(THREADS)]
    for thread in others:
        thread.start()
    agent = Agent(AGENTS)
    found = pairs(rounds, agent)
    costs = parts(agent) if not THREADS else {}
    stop.append(1)
    for thread in others:
        thread.join()
    if THREADS:
        event = threading.Event()
        waiting = [threading.Thread(target=event.wait) for _ in range(THREADS)]
        for thread in waiting:
            thread.start()
        costs = samples()
        event.set()
    print(json.dumps({"pairs": found, "parts": costs}))
    tidy()


if __name__ == "__main__":
    main()
