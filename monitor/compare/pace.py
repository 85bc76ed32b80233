"""The time of a step on both sides, and how certain it is that they differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from whyidle.monitor.compare import bootstrap
from whyidle.monitor.compare.bootstrap import Compared, Interval, Samples
from whyidle.monitor.compare.result import Per, Steps, Took, Verdict
from whyidle.monitor.compare.sides import Pace, Side, Stretch

# After its first step a job still fills its queues; never more than half is left out for it.
SETTLING_NS: Final = 2e9
MOST_SETTLING: Final = 0.5
# Batches that were worked out from rates and differ by less are the same.
ALIKE: Final = 0.1
NOT_KEPT: Final = "how much the steps vary is not known of it"
# A program that is run twice differs by as much, whatever the steps of each run say: memory lies
# elsewhere, clocks and neighbours change.
BETWEEN_RUNS: Final = 0.03
# Bounds that leave room for more than this say nothing of whether there is a difference.
TELLING: Final = 0.1


@dataclass(frozen=True, slots=True)
class Paces:
    """What the steps of both come to, and what they are counted in."""

    per: Per
    steps: Steps | None
    # Why there are none, or why not per step.
    why: str | None


def paces(a: Side, b: Side) -> Paces:
    """Return the time of a step on both sides; of a sample, where their batches differ."""
    if a.pace is None or b.pace is None:
        return _by_samples(a, b)
    if (batches := _batches(a, b)) is not None:
        why = f"their batches differ: {batches[0]:g} and {batches[1]:g} samples"
        return Paces("sample", _steps(a.pace, b.pace, batches), why)
    return Paces("step", _steps(a.pace, b.pace, (1.0, 1.0)), None)


def verdict(steps: Steps | None) -> Verdict:
    """Say what the speed-up means."""
    if steps is None:
        return Verdict.UNKNOWN
    speedup = steps.speedup
    if speedup.excludes(1.0) and not is_below_floor(speedup):
        return Verdict.FASTER if speedup.middle > 1 else Verdict.SLOWER
    bounds = (speedup.low, speedup.high)
    narrow = all(bound is not None and abs(bound - 1) <= TELLING for bound in bounds)
    return Verdict.SAME if narrow else Verdict.UNCERTAIN


def is_below_floor(speedup: Interval) -> bool:
    """Tell whether it is less than one program differs by from run to run."""
    return abs(speedup.middle - 1) < BETWEEN_RUNS


def took(pace: Pace) -> Took:
    """Return how long the steps of one side took, whatever the other side knows."""
    found = settled(pace)
    if not found:
        return Took(Interval(None, pace.middle_ns, None, NOT_KEPT), None, pace.p95_ns)
    return Took(
        bootstrap.median(_medians(found, 1.0)), bootstrap.mean(_means(found, 1.0)), pace.p95_ns
    )


def settled(pace: Pace) -> tuple[Stretch, ...]:
    """Return the stretches without those in which the job began; a trace comes later."""
    found = pace.stretches
    if pace.by == "trace":
        return found
    limit = min(SETTLING_NS, MOST_SETTLING * sum(each.ns for each in found))
    ended = accumulate(each.ns for each in found)
    return tuple(each for each, end in zip(found, ended, strict=True) if end > limit)


def _batches(a: Side, b: Side) -> tuple[float, float] | None:
    """Return the batches where both are known, and differ."""
    if not a.batch or not b.batch or abs(a.batch / b.batch - 1) < ALIKE:
        return None
    return a.batch, b.batch


def _by_samples(a: Side, b: Side) -> Paces:
    """Compare by samples a second where steps are not known; else say whose are missing."""
    missing = [side for side in (a, b) if side.pace is None]
    why = "; ".join(f"{side.label}: {side.why_no_pace}" for side in missing)
    if a.sample_ns and b.sample_ns:
        return Paces("sample", _alone(a.sample_ns, b.sample_ns), why)
    return Paces("second", None, why)


def _steps(a: Pace, b: Pace, work: tuple[float, float]) -> Steps:
    """Compare what there is: all of the stretches, or only the middle step."""
    ours, theirs = settled(a), settled(b)
    if not ours or not theirs:
        return _alone(a.middle_ns / work[0], b.middle_ns / work[1])
    by: Literal["mean", "median"] = "mean" if a.by == b.by == "counted" else "median"
    return Steps(
        by,
        bootstrap.medians(_medians(ours, work[0]), _medians(theirs, work[1])),
        bootstrap.means(_means(ours, work[0]), _means(theirs, work[1])),
    )


def _alone(a: float, b: float) -> Steps:
    known = (Interval(None, value, None, NOT_KEPT) for value in (a, b, a / b, b - a))
    return Steps("median", Compared(*known))


def _medians(stretches: tuple[Stretch, ...], work: float) -> Samples:
    values = [each.median_ns / work for each in stretches]
    return Samples.of(values, [float(each.steps) for each in stretches])


def _means(stretches: tuple[Stretch, ...], work: float) -> Samples:
    values = [each.ns / each.steps / work for each in stretches]
    return Samples.of(values, [float(each.steps) for each in stretches])
