"""What comes again once a step, in several respects: kernels, calls, loader and optimizer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Flags, Ids, Ints, Spans, Trace
from whyidle.monitor.traces.steps.anchors import anchors
from whyidle.monitor.traces.steps.repetition import TOLERANCE, period
from whyidle.monitor.traces.steps.workload import outermost, same_process, submitted

_FETCH: Final = re.compile(r"__next__")
_OPTIMIZER_STEP: Final = re.compile(r"^Optimizer\.step#")
_JITTED: Final = re.compile(r"^PjitFunction\(|^XlaModule:")

# How surprising a repetition must be, in bits: there are thousands of kernels of many names, and
# a few calls of few names, which nobody makes at random.
_KERNEL_BITS: Final = 20
_CALL_BITS: Final = 6
# What follows without a much longer pause than between two periods belongs to the same thing.
_PAUSE: Final = 2
# A call over more of a thread than this is around the steps, and is none.
_AROUND: Final = 0.5
# A step that holds so much less or more work than the others is none, or not whole.
_IRREGULAR: Final = 0.5
_CALLS: Final = (Cause.OP, Cause.AROUND, Cause.OPTIMIZER, Cause.INPUT, Cause.DRIVER_CALL)

# Start and end of the steps, and how they were found.
FoundSteps = tuple[Ints, Ints, str]


class BusiestProcess:
    """The busiest process of a trace, and what recurs in it."""

    def __init__(self, trace: Trace, launched: Sequence[Launches]) -> None:
        self._names = trace.names
        self._work = submitted(trace, launched)
        self._host = same_process(trace, self._work)
        self._first = int(self._host.start.min(initial=np.iinfo(np.int64).max))
        self._last = max(
            int(ends.max(initial=np.iinfo(np.int64).min))
            for ends in (self._host.end, self._work.done)
        )

    def fetches(self) -> FoundSteps | None:
        """Each fetch of a data loader that work follows."""
        fetches = outermost(self._named(_FETCH, Cause.INPUT))
        return self._cut(fetches.start, self._work.start, "every DataLoader fetch")

    def optimizer_steps(self) -> FoundSteps | None:
        """Each optimizer step ends a step; several optimizers may take turns."""
        calls = outermost(self._named(_OPTIMIZER_STEP, Cause.OPTIMIZER))
        first, turn = _turns(calls, _CALL_BITS, constant=True)
        last = first + turn - 1
        cuts = calls.end[last[last < len(calls)]]
        return self._cut(cuts, self._work.start, "every Optimizer.step")

    def kernels(self) -> FoundSteps | None:
        """A sequence of operations that comes again and again."""
        work = self._work
        found = period(work.name, _KERNEL_BITS) if (work.begun >= 0).any() else None
        if not found:
            return None
        pause = np.diff(work.start, prepend=work.start[:1])
        at = anchors(work.name, found, pause)
        if _enclosed(work.name, found.length, at, pause):
            return None
        how = f"a sequence of {found.length} kernels that repeats"
        return self._cut(work.start[at], work.start, how)

    def jitted_calls(self) -> FoundSteps | None:
        """Calls of compiled functions, those of one step together."""
        calls = outermost(self._named(_JITTED, *_CALLS))
        first, turn = _turns(calls, _CALL_BITS, constant=True)
        if not len(first):
            return None
        name = self._names[int(calls.name[first[0]])]
        how = f"{name} calls" if turn == 1 else f"a sequence of {turn} PjitFunction calls"
        return self._as_run(self._cut(calls.start[first], calls.start, how))

    def calls(self) -> FoundSteps | None:
        """A sequence of calls of the framework, whatever they are."""
        host = self._host.take(np.isin(self._host.kind, _CALLS))
        around = (host.end - host.start) > _AROUND * (self._last - self._first)
        calls = outermost(host.take(~around))
        first, turn = _turns(calls, _KERNEL_BITS)
        if not turn or _enclosed(calls.name, turn, first, _pauses(calls)):
            return None
        how = f"a sequence of {turn} calls that repeats"
        return self._as_run(self._cut(calls.start[first], calls.start, how))

    def _named(self, pattern: re.Pattern[str], *kinds: Cause) -> Spans:
        """Host spans of these kinds and names; each name is looked at once."""
        host = self._host
        wanted = np.zeros(len(self._names) + 1, np.bool_)
        for name in present(host.name):
            wanted[name] = name >= 0 and bool(pattern.search(self._names[name]))
        rows = np.flatnonzero(wanted[host.name])
        return host.take(rows[np.isin(host.kind[rows], kinds)])

    def _cut(self, cuts: Ints, work: Ints, how: str) -> FoundSteps | None:
        start, end = between(cuts, work, self._first, self._last)
        return (start, end, how) if len(start) >= 2 else None

    def _as_run(self, found: FoundSteps | None) -> FoundSteps | None:
        """Steps as the device ran them, where the host ran more than a step ahead of it."""
        work = self._work
        if found is None or not (work.begun >= 0).any():
            return found
        start, end, how = found
        finish = int(work.done.max())
        if finish - end[-1] <= np.median(end - start):
            return found
        begun = np.r_[np.maximum.accumulate(work.begun), finish]
        start, end = (begun[np.searchsorted(work.start, t)] for t in (start, end))
        real = end > start
        return (start[real], end[real], how) if real.sum() >= 2 else None


def _turns(calls: Spans, bits: float, *, constant: bool = False) -> tuple[Ints, int]:
    """Return the first call of each turn, and how many calls make a turn."""
    found = period(calls.name, bits, constant=constant)
    if not found:
        return np.zeros(0, np.int64), 0
    return anchors(calls.name, found, _pauses(calls)), found.length


def _pauses(calls: Spans) -> Ints:
    """The time before each call in which its thread did nothing."""
    return np.concatenate([np.zeros(1, np.int64), calls.start[1:] - calls.end[:-1]])


def _enclosed(names: Ids, length: int, at: Ints, pause: Ints) -> bool:
    """Whether something that does not repeat goes before or after, without a pause.

    Then what repeats may lie within it: the layers of a model that runs once, or the parameters
    of a model that is being made.
    """
    whole = at[at + length <= len(names)]
    end = int(whole[-1]) + length
    head, tail = np.arange(whole[0]), np.arange(end, len(names))
    usual = _PAUSE * float(np.median(pause[whole]))
    before = _strange(names[head] != names[head + length]) and pause[whole[0]] <= usual
    after = _strange(names[tail] != names[tail - length]) and pause[end] <= usual
    return bool(before or after)


def _strange(differs: Flags) -> bool:
    """Whether these entries are no part of a period, cut off."""
    return len(differs) > 2 and bool(differs.mean() > 0.5)


def between(cuts: Ints, work: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """Return start and end of the steps that these cuts divide the sorted times of work into.

    A cut that no work follows begins no step. What lies before the first cut and after the last
    one is a step where it holds as much work as a step does; it reaches as far as the record,
    from ``first`` to ``last``, but is not longer than the longest of the others.
    """
    before = np.searchsorted(work, cuts)
    cuts = cuts[np.r_[True, np.diff(before) > 0]] if len(cuts) else cuts
    if len(cuts) < 2:
        return cuts[:0], cuts[:0]
    before = np.searchsorted(work, cuts)
    held = np.diff(before)
    start, end, typical = cuts[:-1], cuts[1:], float(np.median(held))
    regular = np.abs(held - typical) <= _IRREGULAR * typical
    start, end = start[regular], end[regular]
    long = int((end - start).max(initial=0))
    if _as_much(int(before[0]), typical):
        begin = min(int(work[0]), max(first, int(cuts[0]) - long))
        start, end = np.r_[begin, start], np.r_[cuts[0], end]
    if _as_much(len(work) - int(before[-1]), typical):
        done = max(int(work[-1]), min(last, int(cuts[-1]) + long))
        start, end = np.r_[start, cuts[-1]], np.r_[end, done]
    return start, end


def _as_much(held: int, typical: float) -> bool:
    return abs(held - typical) <= TOLERANCE * typical
