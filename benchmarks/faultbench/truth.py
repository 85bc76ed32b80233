"""What a fault costs: mutants and their healthy twin take turns on the same machine.

All are started once. Then one at a time runs for a few seconds while the others stand still, in
random order in each round, so that what else the machine does meets all alike. The gain is the
ratio of samples a second, with the interval of its geometric mean over the rounds.
"""

from __future__ import annotations

import math
import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.faultbench.cases import Case
from benchmarks.faultbench.jobs import Failed, Job

ROUNDS: Final = 5
TURN_S: Final = 3.0
WARM_STEPS: Final = 5
# Student's t at 95%, for one round less than there are.
T95: Final = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
# A turn lasts at least so many steps, or its rate is an accident.
LEAST_STEPS: Final = 8
LONGEST_TURN_S: Final = 15.0


def _turn(job: Job) -> tuple[float, float]:
    """Let one run; return its samples a second and steps a second."""
    job.send(signal.SIGCONT)
    # What stood still has to come back, and what was fetched ahead meanwhile is used up.
    time.sleep(0.3)
    began, (steps, samples) = time.monotonic(), job.counted()
    while True:
        time.sleep(0.02)
        now, (steps_now, samples_now) = time.monotonic(), job.counted()
        took = now - began
        enough = took >= TURN_S and steps_now - steps >= LEAST_STEPS
        if enough or took > LONGEST_TURN_S or not job.is_running:
            break
    job.send(signal.SIGSTOP)
    job.check()
    return (samples_now - samples) / took, (steps_now - steps) / took


def measured(cases: Sequence[Case], rounds: int = ROUNDS) -> dict[str, dict[str, Any]]:
    """Measure some mutants of one family and size; the first case is the healthy twin."""
    found: dict[str, dict[str, Any]] = {}
    jobs: dict[str, Job] = {}
    rates: dict[str, list[tuple[float, float]]] = {}

    def act(name: str, does: Callable[[Job], tuple[float, float] | None]) -> None:
        try:
            rate = does(jobs[name])
        except Failed as error:
            found[name] = {"failed": str(error)}
            jobs.pop(name).end()
        else:
            rates.setdefault(name, []).extend([rate] if rate else [])

    try:
        for case in cases:
            jobs[case.id] = Job(case, counting=True)
            act(case.id, _warm)
        for _ in range(rounds):
            for name in random.sample(list(jobs), len(jobs)):
                act(name, _turn)
    finally:
        for job in jobs.values():
            job.end()
    twin = rates[cases[0].id] if cases[0].id in jobs else []
    return found | {name: _compared(twin, rates[name]) for name in jobs if twin}


def _warm(job: Job) -> None:
    """Wait until it has settled, and have it stand still."""
    job.wait_for_steps(WARM_STEPS)
    # Compilation and the first epoch's habits are over.
    time.sleep(1.5)
    job.send(signal.SIGSTOP)
    job.check()


def _compared(twin: list[tuple[float, float]], mutant: list[tuple[float, float]]) -> dict[str, Any]:
    logs = [
        math.log(t[0] / m[0]) for t, m in zip(twin, mutant, strict=True) if t[0] > 0 and m[0] > 0
    ]
    if len(logs) < 3:
        return {"failed": "no steps in most turns"}
    middle = statistics.fmean(logs)
    half = T95.get(len(logs) - 1, 2.3) * statistics.stdev(logs) / math.sqrt(len(logs))
    gain = [round(math.exp(x), 4) for x in (middle - half, middle, middle + half)]
    return {
        "gain": gain,
        "step_ms": round(1000 / statistics.median(m[1] for m in mutant if m[1]), 3),
        "samples_per_s": round(statistics.median(m[0] for m in mutant), 3),
    }
