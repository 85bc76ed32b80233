"""Which host call launched each operation of a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds, Links, Ops, Spans, Table, Trace
from whyidle.monitor.traces.names import GRAPH_LAUNCH

UNKNOWN, BY_CORRELATION, BY_EXTERNAL = 0, 1, 2
# A table of ids has so many places for each id at most, and so many more.
SPARSE, LEAST = 8, 1 << 16


@dataclass(slots=True)
class Launches(Table):
    """One row an operation, in the order of the operations; -1 where no launch is known."""

    start: Ints
    end: Ints
    thread: Ids
    graph: Flags  # launched as part of a CUDA graph: many operations, one call
    how: Kinds


@dataclass(frozen=True, slots=True)
class _Rows:
    """One row an id, of the span that comes first in some order.

    Ids are numbers that were counted up, so that a table of rows finds one at once; where they are
    far apart, the table is of their places among the distinct ones.
    """

    ids: Ints | None  # the distinct ones, where they are far apart
    low: int
    row: Ids  # -1 where there is none; the last entry is for no id

    @classmethod
    def of(cls, links: Links, order: Ints) -> _Rows:
        """Keep one row an id; ``order`` has a number for each span."""
        number, row, ids, low = links.id, links.row, None, 0
        key = order[row]
        if (key[1:] < key[:-1]).any():
            first = np.argsort(key, kind="stable")
            number, row = number[first], row[first]
        if len(number):
            low = int(number.min())
            if int(number.max()) - low > SPARSE * len(number) + LEAST:
                ids, number = np.unique(number, return_inverse=True)
                low = 0
        places = int(number.max()) - low + 1 if len(number) else 0
        # One more, for no id.
        table = np.full(places + 1, -1, np.int32)
        # Of several for one place the last one stays.
        table[number[::-1] - low] = row[::-1]
        return cls(ids, low, table)

    def __len__(self) -> int:
        return int((self.row >= 0).sum())

    def find(self, wanted: Ints) -> tuple[Ids, Flags]:
        """For each wanted id the row of the span that carries it, and whether there is one."""
        there = wanted >= 0
        place = wanted - self.low
        if self.ids is not None:
            place = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
            there &= self.ids[place] == wanted
        there &= (place >= 0) & (place < len(self.row) - 1)
        row = self.row[np.where(there, place, -1)]
        return row, row >= 0


@dataclass(frozen=True, slots=True)
class _ByIds:
    """By their ids: the first call that carries each, and the last operator."""

    calls: _Rows
    externals: _Rows

    @classmethod
    def of(cls, calls: Links, externals: Links, start: Ints) -> _ByIds:
        return cls(_Rows.of(calls, start), _Rows.of(externals, -start))

    def call_of(self, ops: Ops) -> tuple[Ids, Flags]:
        """For each operation the row of the call of its id, and whether there is one."""
        return self.calls.find(ops.correlation)


class Index:
    """The calls and operators of a trace by their ids, for all devices.

    Ids are numbers of one process. Where calls of several processes carry one id, the work of a
    device is matched with those of its own process only.
    """

    def __init__(self, trace: Trace) -> None:
        self._all = _ByIds.of(trace.calls, trace.externals, trace.host.start)
        self._of = _by_process(trace)
        self.graphs = np.array([bool(GRAPH_LAUNCH.search(n)) for n in trace.names], np.bool_)
        self._clash = sum(len(own.calls) for own in self._of.values()) > len(self._all.calls)

    @property
    def processes(self) -> list[int]:
        """The processes that make driver calls, where there are several."""
        return list(self._of)

    def of(self, pid: int) -> _ByIds:
        """Return the calls of one of several processes."""
        return self._of[pid]

    def for_ops(self, trace: Trace, ops: Ops) -> _ByIds:
        """Return what may have launched the operations of a device."""
        if not self._clash:
            return self._all
        pid = next((device.pid for device in trace.devices if device.ops is ops), None)
        return self._all if pid is None else self._of.get(pid, self._all)


def match(trace: Trace, ops: Ops, index: Index | None = None) -> Launches:
    """Join operations to the calls of the same correlation id, else to the operator around them.

    Several calls may carry one id (a runtime call inside a driver call): the earliest counts.
    An external id is used only where it is causal: some traces have a correlation id there.
    """
    index = index or Index(trace)
    ids = index.for_ops(trace, ops)
    host = trace.host
    row, hit = ids.call_of(ops)
    found = _called(host, row, hit, index.graphs)

    row, hit = ids.externals.find(ops.external)
    hit &= found.how == UNKNOWN
    hit[hit] &= host.start[row[hit]] <= ops.start[hit]
    around = row[hit]
    found.start[hit] = host.start[around]
    found.end[hit] = np.minimum(host.end[around], ops.start[hit])
    found.thread[hit], found.how[hit] = host.thread[around], BY_EXTERNAL
    return found


def _called(host: Spans, row: Ids, hit: Flags, graphs: Flags) -> Launches:
    """What the calls of these rows say; nothing where none was found."""
    if not hit.any():
        none = np.full(len(row), -1)
        return Launches.of(start=none, graph=none >= 0, how=np.full(len(row), UNKNOWN))
    # NumPy takes twice as long to look up by short numbers.
    place = np.where(hit, row, 0).astype(np.int64)
    found = Launches.of(
        start=host.start.take(place), end=host.end.take(place), thread=host.thread.take(place),
        graph=graphs.take(host.name.take(place)) if graphs.any() else np.zeros(len(row), np.bool_),
        how=np.full(len(row), BY_CORRELATION),
    )  # fmt: skip
    if not hit.all():
        none = np.flatnonzero(~hit)
        found.start[none] = found.end[none] = found.thread[none] = -1
        found.graph[none], found.how[none] = False, UNKNOWN
    return found


@dataclass(frozen=True, slots=True)
class GraphLaunches:
    """Launches of whole CUDA graphs, and those of which any operation is in the file."""

    count: int
    shown: int

    @property
    def hidden(self) -> int:
        """How many did work that the file does not show."""
        return self.count - self.shown


def graph_launches(trace: Trace, launched: Iterable[Launches]) -> GraphLaunches:
    """Count the launches of graphs; ``launched`` has one entry a device.

    Operations without a launch may be theirs: where there are as many, nothing is hidden.
    """
    is_graph = np.array([bool(GRAPH_LAUNCH.search(n)) for n in trace.names], np.bool_)
    if not is_graph.any():
        return GraphLaunches(0, 0)
    ids = np.unique(trace.calls.id[is_graph[trace.host.name[trace.calls.row]]])
    ran = [device.ops.correlation for device in trace.devices]
    shown = int(np.isin(ids, np.concatenate([np.zeros(0, np.int64), *ran])).sum())
    unmatched = sum(int((each.how == UNKNOWN).sum()) for each in launched)
    return GraphLaunches(len(ids), min(len(ids), shown + unmatched))


def _by_process(trace: Trace) -> dict[int, _ByIds]:
    """The calls and operators of each process, where several make calls."""
    pids = np.array([-1 if t.pid is None else t.pid for t in trace.threads], np.int64)
    if len({pid for pid in pids.tolist() if pid >= 0}) < 2:
        return {}
    callers = pids[trace.host.thread[trace.calls.row]]
    makers = np.unique(callers[callers >= 0]).tolist()
    if len(makers) < 2:
        return {}
    around, start = pids[trace.host.thread[trace.externals.row]], trace.host.start
    return {
        pid: _ByIds.of(trace.calls.take(callers == pid), trace.externals.take(around == pid), start)
        for pid in makers
    }
