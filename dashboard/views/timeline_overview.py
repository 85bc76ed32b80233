"""A whole trace at a glance: how its time divides from start to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ints

MOMENTS: Final = 240
# A shorter part without an account is not mentioned.
_NOTABLE: Final = 0.01
_SLICES: Final = list(Slice)
_SLICE_OF: Final = np.array([_SLICES.index(cause.slice) for cause in Cause])


@dataclass(frozen=True, slots=True)
class Overview:
    """The share of each slice in equal intervals of a trace."""

    # The edges of the intervals, in ticks.
    edges: Sequence[int]
    parts: dict[Slice, list[float]]
    # The part of the trace with data of these devices; ``None``: all of it.
    known: tuple[int, int] | None = None


def overview(store: Path, number: int, devices: Sequence[int]) -> Overview:
    """Return how the time of these devices divides over the whole trace."""
    with Kept.open(store) as kept:
        trace = kept.open_trace(number)
        account = kept.account(number, trace.start, trace.end + 1)
    edges = np.linspace(trace.start, max(trace.end, trace.start + MOMENTS), MOMENTS + 1)
    cut = edges.astype(np.int64)
    ticks = np.zeros((len(_SLICES), MOMENTS))
    for device in devices:
        for place, of in _by_slice(account[device]):
            ticks[place] += np.diff(_until(of, cut))
    total = ticks.sum(axis=0)
    shares = np.divide(ticks, total, out=np.zeros_like(ticks), where=total > 0)
    found = {part: shares[i].tolist() for i, part in enumerate(_SLICES) if shares[i].any()}
    return Overview(cut.tolist(), found, _known([account[device] for device in devices], cut))


def _known(accounts: Sequence[Segments], cut: Ints) -> tuple[int, int] | None:
    """Return where the accounts begin and end, if not where the trace does."""
    known = [some for some in accounts if len(some)]
    if not known:
        return None
    start, end = min(int(s.start[0]) for s in known), max(int(s.end[-1]) for s in known)
    first, last = int(cut[0]), int(cut[-1])
    near = _NOTABLE * (last - first)
    return (start, end) if start - first > near or last - end > near else None


def _by_slice(segments: Segments) -> list[tuple[int, Segments]]:
    of = _SLICE_OF[segments.cause]
    return [(i, segments.take(of == i)) for i in range(len(_SLICES)) if (of == i).any()]


def _until(segments: Segments, times: Ints) -> Ints:
    """Return how much of these disjoint segments lies before each time."""
    before = np.r_[0, np.cumsum(segments.end - segments.start)]
    ended = np.searchsorted(segments.end, times, "right")
    start = np.append(segments.start, np.iinfo(np.int64).max)[ended]
    found: Ints = before[ended] + np.maximum(0, times - start)
    return found
