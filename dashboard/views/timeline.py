"""Which trace is shown, and which window of it.

Links use nanoseconds since the trace's first event; everything inside uses ticks, like the store.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.monitor.core.contracts.trace import AccountJson, BudgetJson, RanksJson, TraceJson
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.escape import printable
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.store.stored_traces import Kept, KeptTrace
from whyidle.monitor.traces.budgets.budget import Budget, Segments, by_slice, rounded, to_ns
from whyidle.monitor.traces.causes import Cause

_MARKUP: Final = re.compile(r"[*`\[\]<>$:~#\\|]|\b_|_\b")
_LONGEST: Final = 60
FIRST_TO_LAST: Final = "first to last operation"
_PROFILERS: Final = {
    "kineto": "PyTorch (Kineto)",
    "xplane": "JAX or TensorFlow (XPlane)",
    "nsys": "Nsight Systems",
    "ranks": "The ranks of a job",
}
_WINDOW: Final = re.compile(r"(\d{1,18})-(\d{1,18})")
_WORK: Final = np.array([not cause.slice.idle for cause in Cause])
# The smallest window; picture times stay distinct at this width.
LEAST_TICKS: Final = 20


@dataclass(frozen=True, slots=True)
class TickRange:
    """A window of a trace, in ticks."""

    start: int
    end: int

    @property
    def ticks(self) -> int:
        """How long it is."""
        return self.end - self.start


def traces(store: Path, run: int) -> list[KeptTrace]:
    """Return the traces of a run, the newest first, then those that are of no run."""
    with Kept.open(store) as kept:
        found = [trace for trace in kept.traces() if trace.run in {run, None}]
    return sorted(found, key=lambda trace: (trace.run is None, -trace.ts_ms, -trace.id))


def ranks_of(trace: KeptTrace) -> RanksJson | None:
    """Return what is known of the ranks, if the trace is of a job that was put together of them."""
    return trace.answer.get("ranks") if trace.format == "ranks" else None


def name(trace: KeptTrace) -> str:
    """Return a trace as a picker entry: when it was taken, or from which file."""
    ranks = ranks_of(trace)
    if trace.taken is None:
        number = "" if trace.run is None else f"{trace.id} · "
        what = "file" if ranks is None else f"{_ranks(ranks)} of"
        return f"{number}{what} {for_picker(trace.path.name)}"
    moment = datetime.fromtimestamp(trace.ts_ms / 1000, tz=UTC).astimezone()
    rank = trace.taken.get("rank")
    of = f" of rank {rank}" if isinstance(rank, int) else ""
    if ranks is not None:
        of = f" of {_ranks(ranks)}"
    return f"{trace.id} · taken at {moment:%H:%M:%S}{of}"


def _ranks(found: RanksJson) -> str:
    count = len(found["each"])
    return "1 rank" if count == 1 else f"{count} ranks"


def for_picker(text: str) -> str:
    """Return text for a picker, without anything that it could read as markdown."""
    return _MARKUP.sub("", printable(text))[:_LONGEST]


def format_name(trace: KeptTrace) -> str:
    """Return which profiler wrote a trace, and how many events it has."""
    return f"{_PROFILERS.get(trace.format, trace.format)}, {trace.answer.get('events', 0):,} events"


def whole(trace: KeptTrace) -> TickRange:
    """Return all of a trace."""
    return TickRange(trace.start, max(trace.end, trace.start + LEAST_TICKS))


def part_of(trace: KeptTrace, text: str | None) -> TickRange:
    """Return the window that a link names; the whole trace if it names none."""
    found = _WINDOW.fullmatch(text or "")
    if found is None:
        return whole(trace)
    return within(trace, *(trace.start + int(ns) * trace.ticks_per_ns for ns in found.groups()))


def within(trace: KeptTrace, start: float, end: float) -> TickRange:
    """Return a window with these bounds, clipped to the trace."""
    all_ = whole(trace)
    first = min(max(all_.start, int(start)), all_.end - LEAST_TICKS)
    return TickRange(first, max(first + LEAST_TICKS, min(int(end), all_.end)))


def begin(trace: KeptTrace, steps: Sequence[TickRange]) -> TickRange:
    """Return the window to begin with: of ranks the slowest step, else all."""
    if ranks_of(trace) is None or not steps:
        return whole(trace)
    slowest = max(steps, key=lambda part: part.ticks)
    return within(trace, slowest.start, slowest.end)


def link(trace: KeptTrace, part: TickRange) -> str | None:
    """Return how a link names a window; ``None`` for the whole trace."""
    if part == whole(trace):
        return None
    start, end = (at - trace.start for at in (part.start, part.end))
    # Rounded outwards to whole nanoseconds.
    return f"{start // trace.ticks_per_ns}-{-(-end // trace.ticks_per_ns)}"


def zoomed(trace: KeptTrace, part: TickRange, times: float) -> TickRange:
    """Return a window this many times as long, around the same middle."""
    middle, half = (part.start + part.end) / 2, part.ticks * times / 2
    return within(trace, middle - half, middle + half)


def shifted(trace: KeptTrace, part: TickRange, parts: float) -> TickRange:
    """Return the window moved by some of its lengths, at most to the end of the trace."""
    all_ = whole(trace)
    start = part.start + int(part.ticks * parts)
    start = max(all_.start, min(start, all_.end - part.ticks))
    return TickRange(start, start + part.ticks)


@dataclass(frozen=True, slots=True)
class TraceSteps:
    """The steps of a trace, and which of them a window shows."""

    parts: Sequence[TickRange]
    shown: TickRange

    @property
    def at(self) -> int | None:
        """The index of the shown step; ``None`` if the window is not a step."""
        near = max(2, self.shown.ticks // 1000)
        for i, part in enumerate(self.parts):
            off = abs(part.start - self.shown.start), abs(part.end - self.shown.end)
            if max(off) <= near:
                return i
        return None

    @property
    def previous(self) -> int | None:
        """The last step that begins before the shown window."""
        i = self.at
        before = [k for k, p in enumerate(self.parts) if p.start < self.shown.start]
        return (i - 1 if i else None) if i is not None else (before[-1] if before else None)

    @property
    def following(self) -> int | None:
        """The first step that begins after the start of the shown window."""
        i = self.at
        if i is not None:
            return i + 1 if i + 1 < len(self.parts) else None
        whole_trace = len(self.parts) and self.shown.start <= self.parts[0].start
        if whole_trace:
            return 0
        return next((k for k, p in enumerate(self.parts) if p.start > self.shown.start), None)

    @property
    def slowest(self) -> int | None:
        """The longest step."""
        lengths = [part.ticks for part in self.parts]
        return lengths.index(max(lengths)) if lengths else None

    @property
    def median(self) -> int | None:
        """The step of median length."""
        lengths = [part.ticks for part in self.parts]
        return lengths.index(statistics.median_low(lengths)) if lengths else None


def steps_of(store: Path, trace: int, shown: TickRange) -> TraceSteps:
    """Return the steps of a trace."""
    with Kept.open(store) as kept:
        return TraceSteps([TickRange(*pair) for pair in sorted(kept.steps(trace))], shown)


def step_of(data: object, steps: TraceSteps) -> TickRange | None:
    """Return the step that was clicked on; ``None`` if it was something else."""
    if not isinstance(data, list) or len(data) < 2 or data[0] != "step":
        return None
    number = data[1]
    known = isinstance(number, int) and 1 <= number <= len(steps.parts)
    return steps.parts[number - 1] if known else None


def account(trace: KeptTrace, segments: Sequence[Segments], part: TickRange) -> list[BudgetJson]:
    """Return for each device how the time of a window divides, to the nanosecond.

    For the whole trace that is, as in its answer, from the first operation to the last.
    """
    return [_account(trace, some, part, worked=part == whole(trace)) for some in segments]


def _account(trace: KeptTrace, segments: Segments, part: TickRange, *, worked: bool) -> BudgetJson:
    work = np.flatnonzero(_WORK[segments.cause]) if worked else np.arange(len(segments))
    start, end = part.start, part.start
    if len(work):
        start = max(start, int(segments.start[work[0]]))
        end = min(part.end, int(segments.end[work[-1]]))
    edges = [np.array([at] if start < end else [], np.int64) for at in (start, end)]
    sums = rounded(Budget(segments).sums(*edges), trace.ticks_per_ns)
    slices, details = by_slice(sums)
    return {"total_ns": sum(sums.values()), "steps": 0, "slices": slices, "details": details}


@dataclass(frozen=True, slots=True)
class Headline:
    """The account that represents a trace on every page, and what it covers."""

    budget: AccountJson
    of: str
    # It covers the whole steps rather than first to last operation.
    is_of_steps: bool

    @property
    def total_ns(self) -> int:
        """The total time of all devices."""
        return sum(self.budget["slices"].values())


def headline(answer: TraceJson) -> Headline:
    """Return the account that the other pages show for a trace."""
    traced = Traced(answer, "")
    budget, steps = traced.account, answer.get("step_budget")
    if steps and budget["slices"] == steps["slices"]:
        count = steps["steps"]
        return Headline(budget, f"its {count} whole steps" if count > 1 else "its one step", True)
    return Headline(budget, FIRST_TO_LAST, False)


def rows(
    trace: KeptTrace, part: TickRange, budgets: Mapping[str, AccountJson]
) -> dict[str, AccountJson]:
    """Return accounts by what they cover: all of the trace has the one that all pages show."""
    of = FIRST_TO_LAST if part == whole(trace) else f"these {clock(ns(trace, part.ticks))}"
    if len(budgets) != 1:
        return {f"{name}, {of}": budget for name, budget in budgets.items()}
    shown, (budget,) = headline(trace.answer), budgets.values()
    if part == whole(trace) and shown.is_of_steps:
        return {shown.of: shown.budget}
    return {of: budget}


def device_names(answer: TraceJson) -> list[str]:
    """Return the names of a trace's devices, as short as they stay distinct."""
    devices = answer["devices"]
    hosts = {device.get("host") for device in devices}
    kinds = [device["kind"] for device in devices]
    return [
        " ".join(
            [
                str(device["kind"]).upper(),
                *([] if device["kind"] == "cpu" and kinds.count("cpu") == 1 else [device["index"]]),
                *([] if device.get("rank") is None else [f"rank {device['rank']}"]),
                *([] if len(hosts) < 2 else [f"on {device.get('host') or 'an unknown host'}"]),
            ]
        )
        for device in devices
    ]


def ns(trace: KeptTrace, ticks: int) -> int:
    """Return ticks as nanoseconds."""
    return to_ns(ticks, trace.ticks_per_ns)
