"""What being watched costs a job on the GPU: with the agent and without, in turns; and traces."""

from __future__ import annotations

import os
import random
import statistics
import time
from bisect import bisect_left, bisect_right
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent_cost import interval

from gpu_checks.jobs import FRAMEWORKS, Running, moments, running
from gpu_checks.room import Failed, LeftOut, Part, Room
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.target import Target
from whyidle.monitor.core.paths import database
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.tracing.by_agent import ByAgent
from whyidle.monitor.tracing.space import Space, of_pid
from whyidle.monitor.tracing.taken import Taken

SECONDS = 90
PAIRS, QUICK_PAIRS = 6, 2
BLOCK_SECONDS, QUICK_BLOCK_SECONDS = 2.0, 1.0
SETTLE_SECONDS = 0.5
TRACES, QUICK_TRACES = 4, 1
TRACE_SECONDS = 0.25
# What a trace costs after its window shows in the steps that follow.
AFTER_SECONDS = 0.5
PATIENCE = 30.0
EXCHANGE_EVERY = 0.2
LEAVE_SECONDS = 5.0
LEAST_ROUNDS = 3
MS = 1e-6


def run(room: Room) -> None:
    """Measure one job of each framework."""
    os.environ["WHYIDLE_STATE_DIR"] = str(room.folder / "state")
    for framework in ("torch",) if room.quick else FRAMEWORKS:
        file = room.folder / f"{framework}.moments"
        room.do(framework, partial(_measure, room, framework, file))


def _measure(room: Room, framework: str, file: Path, part: Part) -> None:
    with running(framework, room.folder, "--moments", str(file)) as job:
        blocks = _blocks(room, job)
        taken = _traces(room, job)
        told = job.end()
    rounds = moments(file)
    part.figures = {"job": told, "traces": [_cost(each, rounds) for each in taken]}
    more = [each for pair in blocks if (each := _more(pair, rounds)) is not None]
    if told["wrong"]:
        raise Failed(f"{told['wrong']} of {told['rounds']} rounds lost something else")
    if not more:
        raise LeftOut("the blocks held too few rounds to compare")
    middle, low, high = interval(more)
    usual = statistics.median(b - a for a, b in pairwise(rounds))
    part.figures |= {
        "pairs": len(more),
        "round_ms": round(usual * MS, 3),
        "more_with_it_percent": [round(each, 3) for each in (low, middle, high)],
    }


Block = tuple[int, int]


def _blocks(room: Room, job: Running) -> list[dict[bool, Block]]:
    """Let the job work with the agent and without, in random order within each pair."""
    seconds = QUICK_BLOCK_SECONDS if room.quick else BLOCK_SECONDS
    found = []
    for _ in range(QUICK_PAIRS if room.quick else PAIRS):
        order = random.sample((True, False), 2)
        found.append({on: _block(job, seconds, on=on) for on in order})
    return found


def _block(job: Running, seconds: float, *, on: bool) -> Block:
    """Return when a block began and ended."""
    if not on:
        time.sleep(SETTLE_SECONDS)
        began = time.monotonic_ns()
        time.sleep(seconds)
        return began, time.monotonic_ns()
    link = _enter(job)
    try:
        _listen(link, SETTLE_SECONDS)
        began = time.monotonic_ns()
        _listen(link, seconds)
        return began, time.monotonic_ns()
    finally:
        link.leave(LEAVE_SECONDS)
        link.close()


def _enter(job: Running) -> Link:
    target = Target(job.key, ProcFs())
    outcome = ladder.enter(target)
    link = Link.open(job.key, target.fs)
    if link is None:
        raise Failed(f"the agent is not in: {outcome.refusal}")
    return link


def _listen(link: Link, seconds: float) -> None:
    """Do with an agent's records what a monitor does, for so long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        link.exchange()
        time.sleep(min(EXCHANGE_EVERY, left))


def _more(pair: dict[bool, Block], rounds: list[int]) -> float | None:
    """Return how much longer a round took with the agent, in percent."""
    took = {on: _mean(rounds, *block) for on, block in pair.items()}
    with_it, without = took[True], took[False]
    return None if with_it is None or without is None else (with_it / without - 1) * 100


def _mean(rounds: list[int], began: int, ended: int) -> float | None:
    first, last = bisect_left(rounds, began), bisect_right(rounds, ended) - 1
    if last - first < LEAST_ROUNDS:
        return None
    return (rounds[last] - rounds[first]) / (last - first)


def _traces(room: Room, job: Running) -> list[Taken | str]:
    """Take a few traces, one after the other; the first one wakes the profiler."""
    link = _enter(job)
    found = []
    try:
        for _ in range(QUICK_TRACES if room.quick else TRACES):
            _listen(link, 2 * AFTER_SECONDS)
            found.append(_trace(link, job))
        _listen(link, 2 * AFTER_SECONDS)
    finally:
        link.leave(LEAVE_SECONDS)
        link.close()
    return found


def _trace(link: Link, job: Running) -> Taken | str:
    way = ByAgent(link, Space(database()), of_pid(job.process.pid))
    why = way.ask(TRACE_SECONDS)
    if why is not None:
        return why
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        _listen(link, EXCHANGE_EVERY)
        found = way.poll()
        if found is not None:
            return found
    way.close()
    return "it did not come in time"


def _cost(taken: Taken | str, rounds: list[int]) -> dict[str, Any]:
    """Return what the job lost by a trace: its rounds around it beside its usual ones."""
    if isinstance(taken, str):
        return {"why": taken}
    after = round(AFTER_SECONDS * 1e9)
    usual = _mean(rounds, taken.began_ns - 2 * after, taken.began_ns)
    first, last = (
        bisect_left(rounds, taken.began_ns) - 1,
        bisect_right(rounds, taken.ended_ns + after),
    )
    told: dict[str, Any] = {
        "window_ms": round((taken.ended_ns - taken.began_ns) * MS, 1),
        "held_ms": None if taken.held_ns is None else round(taken.held_ns * MS, 1),
        "bytes": taken.path.stat().st_size if taken.path.exists() else None,
    }
    if usual is None or first < 0 or last >= len(rounds):
        return told | {"lost_ms": None, "why_lost": "too few rounds around it"}
    lost = rounds[last] - rounds[first] - (last - first) * usual
    return told | {"lost_ms": round(lost * MS, 1)}
