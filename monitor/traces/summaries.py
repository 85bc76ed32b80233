"""What remains of the rows of a long trace: its communication, and a row of each kind of span."""

from __future__ import annotations

import numpy as np

from whyidle.monitor.traces.causes import COPIES, Cause
from whyidle.monitor.traces.intervals import union
from whyidle.monitor.traces.model import Device, Flags, Links, Messages, Ops, Spans, Stretch, Trace

# Rows of a device: no late rank needs as many collectives to show.
_MOST = 400_000


class Shown:
    """The rows that stay, as they are found."""

    def __init__(self) -> None:
        # By the places of the devices.
        self._ops: dict[int, list[Ops]] = {}
        self._messages: dict[int, list[Messages]] = {}
        self._spans: dict[int, Spans] = {}
        self._calls = False

    def add(self, stretch: Stretch) -> None:
        """Keep what stays of a stretch."""
        host = stretch.trace.host
        for kind, row in zip(*np.unique(host.kind, return_index=True), strict=True):
            self._spans.setdefault(int(kind), host.take(slice(row, row + 1)))
        self._calls |= len(stretch.trace.calls) > 0
        for place, device in enumerate(stretch.trace.devices):
            self._add_device(place, device, stretch)

    def _add_device(self, at: int, device: Device, stretch: Stretch) -> None:
        ops = device.ops
        kept = self._ops.setdefault(at, [])
        count = sum(map(len, kept))
        here = stretch.has(ops.start)
        rows = np.flatnonzero(here & (ops.kind == Cause.COMM))
        if not len(rows) or count > _MOST:
            return
        shown = Ops.joined([ops.take(rows), _covering(ops, here)])
        order = np.argsort(shown.start, kind="stable")
        kept.append(shown.take(order))
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order)) + count
        notes = device.messages.take(np.isin(device.messages.row, rows))
        notes.row = place[np.searchsorted(rows, notes.row)]
        self._messages.setdefault(at, []).append(notes)

    def put_into(self, trace: Trace, devices: dict[int, Device]) -> None:
        """Give a trace and its devices, by their places, the rows that stay."""
        trace.host = Spans.joined(self._spans.values())
        if self._calls and len(trace.host):
            trace.calls = Links.of(row=[0], id=[-1])
        for at, device in devices.items():
            device.ops = Ops.joined(self._ops.get(at, []))
            device.messages = Messages.joined(self._messages.get(at, []))
        trace.devices = [*devices.values()]


def _covering(ops: Ops, here: Flags) -> Ops:
    """Return when the device computes beside its communication, as few rows."""
    comm, computes = ops.kind == Cause.COMM, ~np.isin(ops.kind, (Cause.COMM, *COPIES))
    start, end = union(ops.start[here & computes], ops.end[here & computes])
    begin, until = union(ops.start[comm], ops.end[comm])
    meets = np.searchsorted(until, start, "right") < np.searchsorted(begin, end)
    kind = np.full(int(meets.sum()), Cause.KERNEL)
    return Ops.of(start=start[meets], end=end[meets], kind=kind)
