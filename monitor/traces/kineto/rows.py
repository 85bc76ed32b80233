"""The events of a file, batch by batch, as columns: no object of an event outlives its batch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.interning import LONGEST_NAME, MOST_DEVICES, MOST_THREADS, Keys, Names
from whyidle.monitor.traces.kineto.messages import Sent
from whyidle.monitor.traces.kineto.numbers import integers, nanoseconds
from whyidle.monitor.traces.kineto.record import NO_ARGS, Args, Batch, Event, ExactEvent, Metadata
from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds, Links, Table
from whyidle.monitor.traces.names import Category
from whyidle.monitor.traces.spill import Kept

CATEGORIES: Final[tuple[Category, ...]] = ("driver", "python", "operator", "annotation")
_DRIVER: Final = CATEGORIES.index("driver")
_OPERATOR: Final = CATEGORIES.index("operator")
_OF: Final[dict[Category, tuple[str, ...]]] = {
    "driver": (
        *("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "mtia_runtime"),
        *("xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"),
        *("runtime", "Runtime"),
    ),
    "python": ("python_function",),
    "operator": ("cpu_op", "operator", "Operator"),
    "annotation": ("user_annotation", "overhead"),
}
HOST: Final[dict[str | None, int]] = {
    name: CATEGORIES.index(category) for category, names in _OF.items() for name in names
}
# Work of a device: kernels, then copies and memsets.
KERNEL, COPY = 0, 1
WORK: Final[dict[str | None, int]] = {
    **dict.fromkeys(("kernel", "Kernel"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "memcpy", "Memcpy", "gpu_memset", "memset", "Memset"), COPY),
}

Events = Sequence[Event | ExactEvent]
# Rows of communication, and what they say of it.
Notes = Sequence[tuple[int, Args]]


@dataclass(slots=True)
class HostRows(Table):
    """Spans of host threads as they stand in the file, with the ids by which others find them."""

    start: Ints
    end: Ints
    category: Kinds  # an index into CATEGORIES
    name: Ids
    thread: Ids
    correlation: Ints
    external: Ints
    stack: Ids  # an index into the call stacks

    def calls(self) -> Links:
        """Return the driver calls by their ids."""
        return self._linked(self.correlation, self.category == _DRIVER)

    def externals(self) -> Links:
        """Return the operators by their ids."""
        return self._linked(self.external, self.category >= _OPERATOR)

    def stacks(self) -> Links:
        """Return the spans that have a call stack."""
        return self._linked(self.stack, self.stack >= 0)

    def _linked(self, ids: Ints | Ids, wanted: Flags) -> Links:
        rows = np.flatnonzero(wanted & (ids >= 0))
        return Links.of(row=rows, id=ids[rows])


@dataclass(slots=True)
class WorkRows(Table):
    """Operations of devices as they stand in the file."""

    start: Ints
    end: Ints
    category: Kinds  # KERNEL or COPY
    name: Ids
    device: Ids
    stream: Ids
    correlation: Ints
    external: Ints
    bytes: Ints


class Rows(Kept[HostRows, WorkRows]):
    """Everything kept of the events read so far."""

    def __init__(self) -> None:
        super().__init__(HostRows, WorkRows)
        self.events = 0
        self.unreadable = 0
        self.negative = 0
        self.names = Names()  # of host spans
        self.kernels = Names()  # of operations
        self.streams = Names()
        self.stack_names = Names()
        self.threads: Keys[tuple[Any, Any]] = Keys(MOST_THREADS)
        self.devices: Keys[str] = Keys(MOST_DEVICES)
        self.messages = Sent()
        self.thread_names: dict[tuple[str, str], str] = {}

    def add(self, batch: Batch) -> None:
        """Keep what counts; raises ``InexactError`` before anything is kept."""
        host = _Timed([e for e in batch.events if e.cat in HOST])
        work = _Timed([e for e in batch.events if e.cat in WORK])
        self.events += batch.count
        self.unreadable += batch.unreadable + host.bad + work.bad
        self.negative += host.negative + work.negative
        if host.events:
            self.keep_host(self._host_of(host), _noted(host.args()))
        if work.events:
            self.keep_work(self._work_of(work), _noted(work.args()))
        self.keep_names(batch.metadata)

    def _host_of(self, timed: _Timed) -> HostRows:
        events, args = timed.events, timed.args()
        return HostRows(
            start=timed.start,
            end=timed.end,
            category=np.frombuffer(array("b", [HOST[e.cat] for e in events]), np.int8),
            name=self.names.column([e.name for e in events]),
            thread=self.threads.column(
                zip([e.pid for e in events], [e.tid for e in events], strict=True)
            ),
            correlation=integers([a.correlation for a in args]),
            external=_externals(args),
            stack=np.array([self._stack_of(a) for a in args], np.int32),
        )

    def _stack_of(self, args: Args) -> int:
        stack = args.stack
        return self.stack_names[stack] if stack and type(stack) is str else -1

    def _work_of(self, timed: _Timed) -> WorkRows:
        events, args = timed.events, timed.args()
        pairs = list(zip(events, args, strict=True))
        return WorkRows(
            start=timed.start,
            end=timed.end,
            category=np.frombuffer(array("b", [WORK[e.cat] for e in events]), np.int8),
            name=self.kernels.column([e.name for e in events]),
            device=self.devices.column(
                [str(e.pid if a.device is None else a.device) for e, a in pairs]
            ),
            stream=self.streams.column(
                [str(e.tid if a.stream is None else a.stream) for e, a in pairs]
            ),
            correlation=integers([a.correlation for a in args]),
            external=_externals(args),
            bytes=integers([a.bytes for a in args]),
        )

    def keep_host(self, found: HostRows, notes: Notes) -> None:
        """Keep spans."""
        self.messages.by_operator(notes, found.external)
        self.host.append(found)
        self.waiting += len(found)

    def keep_work(self, found: WorkRows, notes: Notes) -> None:
        """Keep operations."""
        self.messages.by_kernel(notes, len(found))
        self.work.append(found)
        self.waiting += len(found)

    def keep_names(self, events: list[Metadata]) -> None:
        """Keep the names of threads."""
        for event in events:
            name = event.args.name if event.args and event.name == "thread_name" else None
            if isinstance(name, str) and len(self.thread_names) < MOST_THREADS:
                self.thread_names[str(event.pid), str(event.tid)] = name[:LONGEST_NAME]


class _Timed:
    """Events with their times in nanoseconds; those without are left out and counted."""

    def __init__(self, events: Events) -> None:
        self.events = events
        start, no_start = nanoseconds([e.ts for e in events])
        length, no_length = nanoseconds([e.dur for e in events])
        self.bad = self.negative = 0
        if no_start is not None or no_length is not None:
            good = ~(_flags(no_start, events) | _flags(no_length, events))
            self.events = [e for e, fine in zip(events, good.tolist(), strict=True) if fine]
            self.bad = len(events) - len(self.events)
            start, length = start[good], length[good]
        if len(length) and length.min() < 0:
            self.negative = int((length < 0).sum())
            length = np.maximum(length, 0)
        self.start, self.end = start, start + length

    def args(self) -> list[Args]:
        return [e.args or NO_ARGS for e in self.events]


def _flags(flags: Flags | None, events: Events) -> Flags:
    return np.zeros(len(events), np.bool_) if flags is None else flags


def _noted(args: list[Args]) -> Notes:
    return [(at, each) for at, each in enumerate(args) if each.collective is not None]


def _externals(args: list[Args]) -> Ints:
    ids = integers([a.external for a in args])
    if len(ids) and ids.min() < 0:
        return np.where(ids < 0, integers([a.old_external for a in args]), ids)
    return ids
