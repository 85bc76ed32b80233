"""What a fault costs: mutants and their healthy twin take turns on the same machine.

All are started once. Then one at a time runs for a few seconds while the others stand still, in
random order in each round, so that what else the machine does meets all alike. The gain is the
median ratio of samples a second over the rounds, with its interval by the order of the ratios: a
round in which the machine paused moves neither. Rounds go on while it is open whether a fault costs
anything.
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

ROUNDS: Final = 7
MOST_ROUNDS: Final = 21
TURN_S: Final = 0.8
# So many start together: most of that is imports, and no turn is taken meanwhile.
START_TOGETHER: Final = 3
WARM_STEPS: Final = 5
SURE: Final = 0.95
# A turn lasts at least so many steps, or its rate is an accident.
LEAST_STEPS: Final = 8
LONGEST_TURN_S: Final = 15.0
# A fault that costs less, or no more than chance, is none.
LEAST_GAIN: Final = 1.03
# What the contract calls medium: it costs 5% of the time.
LOUD_GAIN: Final = 1 / (1 - 0.05)


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


class _Rounds:
    """Programs that take turns, and how fast each went in which round."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._healthy = cases[0].id
        self._jobs: dict[str, Job] = {}
        self._rates: dict[str, list[tuple[float, float]]] = {}
        self.found: dict[str, dict[str, Any]] = {}
        for first in range(0, len(cases), START_TOGETHER):
            some = cases[first : first + START_TOGETHER]
            for case in some:
                self._jobs[case.id] = Job(case, counting=True)
            for case in some:
                self._act(case.id, _warm)

    def _act(self, name: str, does: Callable[[Job], tuple[float, float] | None]) -> None:
        try:
            rate = does(self._jobs[name])
        except Failed as error:
            self.found[name] = {"failed": str(error)}
            self._jobs.pop(name).end()
        else:
            self._rates.setdefault(name, []).extend([rate] if rate else [])

    def go(self) -> bool:
        """Give each its turn; return whether there is a program to compare with another."""
        for name in random.sample(list(self._jobs), len(self._jobs)):
            self._act(name, _turn)
        return self._healthy in self._jobs and len(self._jobs) > 1

    def settle(self, *, last: bool) -> None:
        """End those of which more rounds would say nothing new; ``last``: all."""
        for name in [name for name in self._jobs if name != self._healthy]:
            gains = compared(self._rates[self._healthy], self._rates[name])
            if last or not is_open(gains):
                self.found[name] = gains
                self._jobs.pop(name).end()

    def end(self) -> None:
        """End all that is left."""
        for job in self._jobs.values():
            job.end()


def measured(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Measure some mutants of one family and size; the first case is the healthy twin."""
    rounds = _Rounds(cases)
    try:
        for number in range(1, MOST_ROUNDS + 1):
            if not rounds.go():
                break
            if number >= ROUNDS:
                rounds.settle(last=number == MOST_ROUNDS)
    finally:
        rounds.end()
    return rounds.found


def _warm(job: Job) -> None:
    """Wait until it has settled, and have it stand still."""
    job.wait_for_steps(WARM_STEPS)
    # Compilation and the first epoch's habits are over.
    time.sleep(1.5)
    job.send(signal.SIGSTOP)
    job.check()


def compared(twin: list[tuple[float, float]], mutant: list[tuple[float, float]]) -> dict[str, Any]:
    """Return how much faster the healthy twin is."""
    ratios = sorted(t[0] / m[0] for t, m in zip(twin, mutant, strict=True) if t[0] and m[0])
    out = _outside(len(ratios))
    if out is None:
        return {"failed": "no steps in most turns"}
    gain = ratios[out], statistics.median(ratios), ratios[-1 - out]
    return {
        "gain": [round(x, 4) for x in gain],
        "rounds": len(ratios),
        "step_ms": round(1000 / statistics.median(m[1] for m in mutant if m[1]), 3),
        "samples_per_s": round(statistics.median(m[0] for m in mutant), 3),
    }


def _outside(count: int) -> int | None:
    """Return how many of the ordered values the median's interval leaves out at each end."""
    out, chance = None, 0.0
    for number in range(count // 2):
        chance += 2 * math.comb(count, number) / 2**count
        if chance > 1 - SURE:
            break
        out = number
    return out


def is_fault(gain: Sequence[float]) -> bool:
    """Tell whether a fault surely costs something, and enough."""
    return gain[0] > 1 and gain[1] >= LEAST_GAIN


def is_harmless(gain: Sequence[float]) -> bool:
    """Tell whether it surely costs little: who calls it loudly is wrong."""
    return gain[2] < LOUD_GAIN and not is_fault(gain)


def is_open(found: dict[str, Any]) -> bool:
    """Tell whether more rounds may say more."""
    gain = found.get("gain")
    return gain is None or not (is_fault(gain) or is_harmless(gain))
