"""Which host call launched each operation of a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from whyidle.monitor.traces.grouping import order_of
from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds, Links, Ops, Table, Trace
from whyidle.monitor.traces.names import GRAPH_LAUNCH

UNKNOWN, BY_CORRELATION, BY_EXTERNAL = 0, 1, 2


@dataclass(slots=True)
class Launches(Table):
    """One row an operation, in the order of the operations; -1 where no launch is known."""

    start: Ints
    end: Ints
    thread: Ids
    graph: Flags  # launched as part of a CUDA graph: many operations, one call
    how: Kinds


@dataclass(frozen=True, slots=True)
class _ByIds:
    """One row an id: the first call that carries it, and the last operator."""

    calls: Links
    externals: Links

    @classmethod
    def of(cls, calls: Links, externals: Links, start: Ints) -> _ByIds:
        return cls(_first_of_each(calls, start), _first_of_each(externals, -start))

    def call_of(self, ops: Ops) -> tuple[Ids, Flags]:
        """For each operation the row of the call of its id, and whether there is one."""
        return _lookup(self.calls, ops.correlation)


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
    n = len(ops)
    found = Launches.of(
        start=np.full(n, -1), graph=np.zeros(n, np.bool_), how=np.full(n, UNKNOWN, np.int8)
    )
    host = trace.host
    row, hit = ids.call_of(ops)
    calls = row[hit]
    found.start[hit], found.end[hit] = host.start[calls], host.end[calls]
    found.thread[hit], found.how[hit] = host.thread[calls], BY_CORRELATION
    if len(calls):
        found.graph[hit] = index.graphs[host.name[calls]]

    row, hit = _lookup(ids.externals, ops.external)
    hit &= found.how == UNKNOWN
    hit[hit] &= host.start[row[hit]] <= ops.start[hit]
    around = row[hit]
    found.start[hit] = host.start[around]
    found.end[hit] = np.minimum(host.end[around], ops.start[hit])
    found.thread[hit], found.how[hit] = host.thread[around], BY_EXTERNAL
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


def _first_of_each(links: Links, order: Ints) -> Links:
    """Keep one row an id: the one that comes first in this order."""
    if (links.id[1:] > links.id[:-1]).all():
        return links
    links = links.take(order_of(links.id, order[links.row]))
    return links.take(np.r_[True, links.id[1:] != links.id[:-1]])


def _lookup(links: Links, wanted: Ints) -> tuple[Ids, Flags]:
    """For each wanted id the row of the span that carries it, and whether there is one."""
    if not len(links):
        return np.zeros(len(wanted), np.int32), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(links.id, wanted), len(links) - 1)
    return links.row[at], (links.id[at] == wanted) & (wanted >= 0)
