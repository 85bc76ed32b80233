"""What a host thread did in a stretch of a trace, and which of its calls launched an operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.store.stored_traces import Timeline
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Ints, Spans
from whyidle.monitor.traces.where.nesting import NONE, nest, portions

_DID_MOST: Final = 8
_STACK_MOST: Final = 30


@dataclass(frozen=True, slots=True)
class Did:
    """Something that a host thread did in a stretch, all times of it together."""

    name: str
    cause: Cause
    count: int
    # Ticks in which it was the innermost, and in which it was open at all.
    own: int
    open: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The call that launched an operation."""

    name: str
    thread: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Doing:
    """What a thread did in a stretch."""

    # That which had most of it for itself first.
    did: Sequence[Did] = ()
    # What was open in the longest part of it, the innermost first.
    stack: Sequence[str] = ()


def doing(timeline: Timeline, thread: int, start: int, end: int) -> Doing:
    """Return what a thread did from one tick up to another."""
    spans = _overlapping(timeline.host, thread, start, end)
    if not len(spans):
        return Doing()
    nested = nest(spans.start, spans.end)
    _, labels, ticks = portions(np.array([start]), np.array([end]), nested.innermost)
    held = labels != NONE
    own = np.zeros(len(spans), np.int64)
    np.add.at(own, labels[held], ticks[held])
    did = _by_name(timeline, spans, own, _Inside.of(spans, nested.parent, start, end))
    if not held.any():
        return Doing(did)
    longest = int(labels[held][int(ticks[held].argmax())])
    return Doing(did, _stack(timeline, spans, nested.parent, longest))


@dataclass(frozen=True, slots=True)
class _Inside:
    """How spans lie in each other, and how much of each lies in the stretch."""

    parent: list[int]
    ticks: list[int]

    @classmethod
    def of(cls, spans: Spans, parent: Ints, start: int, end: int) -> _Inside:
        ticks = np.minimum(spans.end, end) - np.maximum(spans.start, start)
        return cls(parent.tolist(), ticks.tolist())


def _overlapping(host: Spans, thread: int, start: int, end: int) -> Spans:
    """Return the spans of a thread in a stretch, as ``nest`` wants them."""
    rows = (host.thread == thread) & (host.start < end) & (host.end > start)
    some = host.take(rows & (host.end > host.start))
    return some.take(np.lexsort((-some.end, some.start)))


def _by_name(timeline: Timeline, spans: Spans, own: Ints, inside: _Inside) -> list[Did]:
    """Add up what is called the same; what lies in its own kind is not counted twice."""
    found: dict[tuple[int, int], list[int]] = {}
    keys = list(zip(spans.name.tolist(), spans.kind.tolist(), strict=True))
    for row, key in enumerate(keys):
        counted = found.setdefault(key, [0, 0, 0])
        counted[0] += 1
        counted[1] += int(own[row])
        up = inside.parent[row]
        while up != NONE and keys[up] != key:
            up = inside.parent[up]
        counted[2] += inside.ticks[row] if up == NONE else 0
    order = sorted(found.items(), key=lambda pair: (-pair[1][1], -pair[1][2]))
    return [
        Did(timeline.names[name], Cause(max(kind, 0)), *counted)
        for (name, kind), counted in order[:_DID_MOST]
        if counted[1]
    ]


def _stack(timeline: Timeline, spans: Spans, parent: Ints, row: int) -> list[str]:
    found: list[str] = []
    while row != NONE and len(found) < _STACK_MOST:
        found.append(timeline.names[int(spans.name[row])])
        row = int(parent[row])
    return found


def launch_of(timeline: Timeline, device: int, row: int) -> Launch | None:
    """Return the call that launched an operation of a device; none where the trace tells none."""
    calls, host = timeline.calls, timeline.host
    id_ = int(timeline.lanes[device].ops.correlation[row])
    rows = calls.row[calls.id == id_] if id_ >= 0 else calls.row[:0]
    pid = timeline.trace.answer["devices"][device].get("pid")
    pids = [timeline.trace.threads[t].pid for t in host.thread[rows].tolist()]
    own = [r for r, p in zip(rows.tolist(), pids, strict=True) if pid is None or p in {pid, None}]
    mine = own or rows.tolist()
    if not mine:
        return None
    call = min(mine, key=lambda r: int(host.start[r]))
    return Launch(
        name=timeline.names[int(host.name[call])],
        thread=int(host.thread[call]),
        start=int(host.start[call]),
        end=int(host.end[call]),
    )
