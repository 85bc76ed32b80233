"""What a fault costs: mutants and their healthy twin take turns on the same machine.

All are started. Then one at a time runs for a few seconds while the others stand still, in random
order in each round, so that what else the machine does meets all alike. The gain is the median
ratio of samples a second over the rounds, with its interval by the order of the ratios: a round in
which the machine paused moves neither. Rounds go on while it is open whether a fault costs
anything. One start of a program is faster than the next by some per cent, for as long as both run,
and more rounds do not tell that from a fault: a gain that is no larger is measured in a second
start, too, and lies between the lowest and the highest that either start leaves open.
"""

from __future__ import annotations

import math
import random
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from benchmarks.faultbench.cases import Case
from benchmarks.faultbench.jobs import Failed, Job, Runs

# In each start; fewer say nothing so surely.
ROUNDS: Final = 8
MOST_ROUNDS: Final = 24
TURN_S: Final = 0.8
# So many start together: most of that is imports, and no turn is taken meanwhile.
START_TOGETHER: Final = 3
WARM_STEPS: Final = 5
# It is looked at after each round: at 95% one in twenty faults that cost nothing would seem to.
SURE: Final = 0.99
# How late the end of a step may be seen: half a per cent of the shortest turn.
LOOK_S: Final = 0.004
# A turn lasts at least so many steps, or its rate is an accident.
LEAST_STEPS: Final = 8
LONGEST_TURN_S: Final = 15.0
# A fault that costs less, or no more than chance, is none.
LEAST_GAIN: Final = 1.03
# Of five starts of each of five healthy programs, one was 9% slower than another. Twice that:
STARTS_DIFFER: Final = 1.2
# What the contract calls medium: it costs 5% of the time.
LOUD_GAIN: Final = 1 / (1 - 0.05)

# Samples and steps in a second.
Rate = tuple[float, float]
_Done = TypeVar("_Done")


def _turn(job: Runs, least_s: float = TURN_S) -> Rate:
    """Let one run for so long; return its samples a second and steps a second."""
    job.send(signal.SIGCONT)
    # What stood still has to come back, and what was fetched ahead meanwhile is used up.
    time.sleep(0.3)
    last = job.counted()
    first: tuple[int, int] | None = None
    began = first_at = last_at = time.monotonic()
    while job.is_running and time.monotonic() - began < max(LONGEST_TURN_S, 2 * least_s):
        time.sleep(LOOK_S)
        # From the end of a step to the end of a step: of eight, a part of one is too much.
        if (counted := job.counted()) == last:
            continue
        last, last_at = counted, time.monotonic()
        if first is None:
            first, first_at = last, last_at
        elif last_at - first_at >= least_s and last[0] - first[0] >= LEAST_STEPS:
            break
    job.send(signal.SIGSTOP)
    job.check()
    took = last_at - first_at
    if first is None or not took:
        return 0.0, 0.0
    return (last[1] - first[1]) / took, (last[0] - first[0]) / took


class _Start:
    """Programs that were started together, and take turns."""

    def __init__(self, starts: Mapping[str, Callable[[], Runs]], turn_s: float) -> None:
        """Start them; the first is the one that all others are held against."""
        names = list(starts)
        self._turn_s = turn_s
        self._healthy = names[0]
        self._jobs: dict[str, Runs] = {}
        # Of each mutant, the rate of the healthy twin and its own, in each round.
        self._turns: dict[str, list[tuple[Rate, Rate]]] = {name: [] for name in names[1:]}
        self.found: dict[str, dict[str, Any]] = {}
        for first in range(0, len(names), START_TOGETHER):
            some = names[first : first + START_TOGETHER]
            for name in some:
                self._jobs[name] = starts[name]()
            for name in some:
                self._act(name, _warm)

    def _act(self, name: str, does: Callable[[Runs], _Done]) -> _Done | None:
        try:
            return does(self._jobs[name])
        except Failed as error:
            self.found[name] = {"failed": str(error)}
            self._jobs.pop(name).end()
            return None

    def _turn(self, job: Runs) -> Rate:
        return _turn(job, self._turn_s)

    def go(self) -> bool:
        """Give each its turn; return whether there is a program to compare with another."""
        names = random.sample(list(self._jobs), len(self._jobs))
        rates = {name: rate for name in names if (rate := self._act(name, self._turn))}
        healthy = rates.pop(self._healthy, None)
        if healthy is not None:
            for name, rate in rates.items():
                self._turns[name].append((healthy, rate))
        return self._healthy in self._jobs and len(self._jobs) > 1

    def settle(self, *, is_over: bool) -> None:
        """End those of which more rounds would say nothing new."""
        for name in [name for name in self._jobs if name != self._healthy]:
            gains = compared(self._turns[name])
            if is_over or is_settled(gains):
                self.found[name] = gains
                self._jobs.pop(name).end()

    def end(self) -> None:
        """End all that is left."""
        for job in self._jobs.values():
            job.end()


def in_turns(
    starts: Mapping[str, Callable[[], Runs]], turn_s: float = TURN_S
) -> dict[str, dict[str, Any]]:
    """Measure how much faster the first is than each of the others, in one start of all."""
    start = _Start(starts, turn_s)
    try:
        for number in range(1, MOST_ROUNDS + 1):
            # Without their twin nothing is known of the others: they are left for another time.
            if not start.go():
                break
            if number >= ROUNDS:
                start.settle(is_over=number == MOST_ROUNDS)
    finally:
        start.end()
    return start.found


def measured(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Measure some mutants of one family and size; the first case is the healthy twin."""
    starts: dict[str, Callable[[], Runs]] = {
        case.id: partial(Job, case, counting=True) for case in cases
    }
    first = in_turns(starts)
    left = {case.id for case in cases if is_small(first.get(case.id, {}))}
    again = {name: start for name, start in starts.items() if name in {cases[0].id, *left}}
    second = in_turns(again) if left else {}
    known = {name: each for name, each in first.items() if name not in left}
    return known | {
        name: joined(first[name], each) if "gain" in each else each for name, each in second.items()
    }


def _warm(job: Runs) -> None:
    """Wait until it has settled, and have it stand still."""
    job.wait_for_steps(WARM_STEPS)
    # Compilation and the first epoch's habits are over.
    time.sleep(1.5)
    job.send(signal.SIGSTOP)
    job.check()


def compared(turns: Sequence[tuple[Rate, Rate]]) -> dict[str, Any]:
    """Return how much faster the healthy twin is, by its rates and the mutant's in each round."""
    ratios = sorted(twin[0] / mutant[0] for twin, mutant in turns if twin[0] and mutant[0])
    rates = [mutant for _, mutant in turns]
    out = _outside(len(ratios))
    if out is None:
        return {"failed": "no steps in most turns"}
    gain = ratios[out], statistics.median(ratios), ratios[-1 - out]
    return {
        "gain": [round(x, 4) for x in gain],
        "rounds": len(ratios),
        "step_ms": round(1000 / statistics.median(m[1] for m in rates if m[1]), 3),
        "samples_per_s": round(statistics.median(m[0] for m in rates), 3),
    }


def joined(*starts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is sure of a gain in each of some starts alone."""
    gains = [start["gain"] for start in starts]
    lows, middles, highs = zip(*gains, strict=True)
    return {
        "gain": [min(lows), round(statistics.median(middles), 4), max(highs)],
        "starts": gains,
        "rounds": sum(start["rounds"] for start in starts),
        **{
            name: round(statistics.median(start[name] for start in starts), 3)
            for name in ("step_ms", "samples_per_s")
        },
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


def own(case: Case, known: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return what the cures of its healthy twin's own faults give, as far as it is measured."""
    gains = {rule: known.get(cured.id, {}).get("gain") for rule, cured in case.cured}
    # The twin was held against the cured program, which is the faster one.
    return {rule: [1 / x for x in reversed(gain)] for rule, gain in gains.items() if gain}


def is_fault(gain: Sequence[float]) -> bool:
    """Tell whether a fault surely costs something, and enough."""
    return gain[0] > 1 and gain[1] >= LEAST_GAIN


def is_harmless(gain: Sequence[float]) -> bool:
    """Tell whether it surely costs little: who calls it loudly is wrong."""
    return gain[2] < LOUD_GAIN and not is_fault(gain)


def is_settled(found: Mapping[str, Any]) -> bool:
    """Tell whether more rounds would say nothing new."""
    gain = found.get("gain")
    return gain is not None and (is_fault(gain) or is_harmless(gain))


def is_small(found: Mapping[str, Any]) -> bool:
    """Tell whether a gain may be no larger than what starts of one program differ by."""
    gain = found.get("gain")
    return gain is not None and gain[0] <= STARTS_DIFFER
