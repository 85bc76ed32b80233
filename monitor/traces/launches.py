"""Which host call launched each operation of a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


class Index:
    """The calls and operators of a trace by their ids, for all devices."""

    def __init__(self, trace: Trace) -> None:
        start = trace.host.start
        self.calls = _first_of_each(trace.calls, start)
        self.externals = _first_of_each(trace.externals, -start)


def match(trace: Trace, ops: Ops, index: Index | None = None) -> Launches:
    """Join operations to the calls of the same correlation id, else to the operator around them.

    Several calls may carry one id (a runtime call inside a driver call): the earliest counts.
    An external id is believed only where it is causal: some traces put a correlation id there.
    """
    index = index or Index(trace)
    n = len(ops)
    found = Launches.of(
        start=np.full(n, -1), graph=np.zeros(n, np.bool_), how=np.full(n, UNKNOWN, np.int8)
    )
    host = trace.host
    row, hit = _lookup(index.calls, ops.correlation)
    calls = row[hit]
    found.start[hit], found.end[hit] = host.start[calls], host.end[calls]
    found.thread[hit], found.how[hit] = host.thread[calls], BY_CORRELATION
    if len(calls):
        graphs = np.array([bool(GRAPH_LAUNCH.search(name)) for name in trace.names], np.bool_)
        found.graph[hit] = graphs[host.name[calls]]

    row, hit = _lookup(index.externals, ops.external)
    hit &= found.how == UNKNOWN
    hit[hit] &= host.start[row[hit]] <= ops.start[hit]
    around = row[hit]
    found.start[hit] = host.start[around]
    found.end[hit] = np.minimum(host.end[around], ops.start[hit])
    found.thread[hit], found.how[hit] = host.thread[around], BY_EXTERNAL
    return found


def _first_of_each(links: Links, order: Ints) -> Links:
    """Keep one row an id: the one that comes first in this order."""
    if (links.id[1:] > links.id[:-1]).all():
        return links
    links = links.take(np.lexsort((order[links.row], links.id)))
    return links.take(np.r_[True, links.id[1:] != links.id[:-1]])


def _lookup(links: Links, wanted: Ints) -> tuple[Ids, Flags]:
    """For each wanted id the row of the span that carries it, and whether there is one."""
    if not len(links):
        return np.zeros(len(wanted), np.int32), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(links.id, wanted), len(links) - 1)
    return links.row[at], (links.id[at] == wanted) & (wanted >= 0)
