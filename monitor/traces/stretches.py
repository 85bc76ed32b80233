"""A long file, stretch by stretch: as many rows as memory has room for, and what lies around them.

A stretch has the rows that start in it; of those before it the calls whose work it has, and what is
open from the first of these calls on, or is the last of its thread; some thousand rows after it,
which say how long a silence at its end lasts; and the operation of each device that comes next.
Edges lie where an operation starts, so that no gap is cut on the device that does most.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

import numpy as np

from whyidle.monitor.traces.corrections import correct
from whyidle.monitor.traces.model import EVER, Flags, Ints, Stretch, Table, Trace
from whyidle.monitor.traces.spill import EACH, MOST_ROWS, Kept, Records, Spill

# How many rows of the host follow a stretch, for the silence at its end.
_AFTER: Final = 4_096
# A driver takes some thousand launches ahead of their work.
_AWAITED: Final = 50_000
# An edge may be moved by this part of a stretch, to where an operation starts.
_MOVED: Final = 0.25
# The ids by which operations name spans of the host; a format may lack one.
_IDS: Final = ("correlation", "external")
_Kind = TypeVar("_Kind", bound=Table)
_Rows = TypeVar("_Rows", bound=Kept[Any, Any])


class Stretches(Generic[_Rows]):
    """The stretches of a file in their order; they may be read again.

    ``assemble`` makes a trace of the rows of one, with times from a given moment on.
    """

    def __init__(self, rows: _Rows, spill: Spill, assemble: Callable[[_Rows, int], Trace]) -> None:
        rows.write(spill)
        self._rows, self._spill, self._assemble = rows, spill, assemble
        self._host_starts = spill.host.starts()
        work = spill.work.starts()
        first = [int(starts[0]) for starts in (self._host_starts, work) if len(starts)]
        self.origin = min(first)
        self._edges = _edges(self._host_starts, work, MOST_ROWS // 2)
        self._awaited = _Awaited()
        self._next = self._following()

    def __iter__(self) -> Iterator[Stretch]:
        """Read one after the other."""
        host, work = self._spill.host, self._spill.work
        before, running = host.between(0, 0), work.between(0, 0)
        edges = [-EVER, *self._edges, EVER]
        for k, (start, end) in enumerate(pairwise(edges)):
            until = self._after(end)
            spans, ops = host.between(start, until), work.between(start, until)
            if k:
                running = running[(running["end"] > start) | _last_of_each(running, "device")]
                before = before[_needed(before, ops, start)]
            yield Stretch(
                self._trace([before, spans], [running, ops, *self._coming(k, until)]),
                max(start - self.origin, -EVER),
                min(end - self.origin, EVER),
            )
            stays = (before["end"] > end) | self._awaited.after(k, before)
            before = np.concatenate([before[stays], spans[spans["start"] < end]])
            stays = (running["end"] > end) | _last_of_each(running, "device")
            running = np.concatenate([running[stays], ops[ops["start"] < end]])

    def _after(self, edge: int) -> int:
        """Return until when rows are read for what ends at an edge."""
        at = int(np.searchsorted(self._host_starts, edge)) + _AFTER // EACH
        return max(edge, int(self._host_starts[at])) if at < len(self._host_starts) else EVER

    def _following(self) -> list[dict[int, Records]]:
        """For each stretch the first operation of each device that starts after it."""
        found: list[dict[int, Records]] = [{}]
        edges = [-EVER, *self._edges, EVER]
        for k in range(len(edges) - 2, -1, -1):
            ops = self._spill.work.between(edges[k], edges[k + 1])
            self._awaited.note(ops["correlation"])
            ops = ops[np.argsort(ops["start"], kind="stable")]
            devices, first = np.unique(ops["device"], return_index=True)
            here = {int(d): ops[at : at + 1].copy() for d, at in zip(devices, first, strict=True)}
            found.append({**found[-1], **here})
        # Of the first stretch nothing follows anything.
        return found[-2::-1]

    def _coming(self, k: int, until: int) -> list[Records]:
        return [op for op in self._next[k].values() if op["start"][0] >= until]

    def _trace(self, host: list[Records], work: list[Records]) -> Trace:
        part = copy.copy(self._rows)
        ops = np.concatenate(work)
        part.host = [_table(part.host_kind, np.concatenate(host))]
        part.work = [_table(part.work_kind, ops)]
        part.places = ops["place"]
        trace = self._assemble(part, self.origin)
        correct(trace)
        return trace


class _Awaited:
    """Which calls of a stretch have work in a later one: ids grow as calls are made."""

    def __init__(self) -> None:
        self._least: list[int] = [EVER]

    def note(self, ids: Ints) -> None:
        """Note the ids of the operations of a stretch, the last stretch first."""
        self._least.append(int(ids[ids > 0].min(initial=self._least[-1])))

    def after(self, k: int, calls: Records) -> Flags:
        """Mark the calls that may have work after a stretch; the newest, if they are many."""
        found: Flags = calls["correlation"] >= self._least[-k - 2]
        if np.count_nonzero(found) > _AWAITED:
            rows = np.flatnonzero(found)
            found[rows[np.argsort(calls["start"][rows])[:-_AWAITED]]] = False
        return found


def _edges(host: Ints, work: Ints, each: int) -> list[int]:
    """Return the times between stretches: where an operation starts, so that no gap is cut."""
    starts = np.sort(np.concatenate([host, work]))
    step = max(1, each // EACH)
    edges = starts[step::step][: max(0, round(len(starts) / step) - 1)]
    if len(work):
        at = np.minimum(np.searchsorted(work, edges), len(work) - 1)
        moved = np.searchsorted(starts, work[at]) - np.searchsorted(starts, edges)
        edges = np.where(moved <= _MOVED * step, work[at], edges)
    found: list[int] = np.unique(edges).tolist()
    return found


def _needed(before: Records, ops: Records, start: int) -> Ints:
    """Return the rows before a stretch that say something of it."""
    named = {name: _named(before, ops, name) for name in _IDS}
    since = min(start, int(before["start"][named["correlation"]].min(initial=start)))
    is_open = before["end"] > since
    # Of each thread the one that ended last, and the last that says on which line it was.
    ended = before["end"] <= start
    is_open |= _last_of_each(before, "thread", ended)
    if "stack" in _columns(before):
        is_open |= _last_of_each(before, "thread", ended & (before["stack"] >= 0))
    return np.flatnonzero(np.logical_or.reduce([is_open, *named.values()]))


def _named(before: Records, ops: Records, name: str) -> Flags:
    """Mark the rows that operations name by an id."""
    if name not in _columns(before):
        return np.zeros(len(before), np.bool_)
    return np.isin(before[name], ops[name][ops[name] >= 0])


def _columns(rows: Records) -> tuple[str, ...]:
    return rows.dtype.names or ()


def _last_of_each(rows: Records, what: str, among: Flags | None = None) -> Flags:
    """Mark the row of each thread, or device, that ends last."""
    found = np.zeros(len(rows), np.bool_)
    some = np.arange(len(rows)) if among is None else np.flatnonzero(among)
    if len(some):
        some = some[np.lexsort((rows["end"][some], rows[what][some]))]
        found[some[np.append(np.diff(rows[what][some]) != 0, True)]] = True
    return found


def _table(kind: type[_Kind], rows: Records) -> _Kind:
    return kind(**{name: np.ascontiguousarray(rows[name]) for name in kind.columns()})
