"""The one form that every trace file is read into: columns, no object per event.

Times are integer ticks since ``Trace.origin_ns``: a tick is a nanosecond for Kineto, a picosecond
for XPlane (``ticks_per_ns`` says which). Names are indices into ``Trace.names``; -1 means none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Kinds = NDArray[np.int8]

# The last is no file: the ranks of a job, put together from several.
Format = Literal["kineto", "xplane", "nsys", "ranks"]
DeviceKind = Literal["gpu", "cpu", "tpu"]


Flags = NDArray[np.bool_]
# Later than any time of a trace.
EVER: Final = 1 << 62

_DTYPES: dict[str, type[np.generic]] = {
    "Ints": np.int64,
    "Ids": np.int32,
    "Kinds": np.int8,
    "Flags": np.bool_,
}


_Kind = TypeVar("_Kind", bound="Table")


class Table:
    """Columns of one length: every field of a subclass is an array with one entry a row."""

    @classmethod
    def columns(cls) -> dict[str, type[np.generic]]:
        """Return the columns and their types."""
        return {f.name: _DTYPES[f.type] for f in fields(cls)}  # type: ignore[arg-type, index]

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Make a table of these columns; what is not given is -1, "none", in every row."""
        rows = max((len(column) for column in given.values()), default=0)
        return cls(
            **{
                name: np.asarray(given[name], dtype) if name in given else np.full(rows, -1, dtype)
                for name, dtype in cls.columns().items()
            }
        )

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Put tables one after the other; without any, the table is empty."""
        tables = [cls.of(), *parts]
        return cls(**{c: np.concatenate([getattr(t, c) for t in tables]) for c in cls.columns()})

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Return these rows only, in this order."""
        # One look for the marked rows instead of one for each column.
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return type(self)(**{name: getattr(self, name)[rows] for name in self.columns()})


@dataclass(slots=True)
class Ops(Table):
    """What one device did, sorted by start, then correlation: kernels, copies, memsets."""

    start: Ints
    end: Ints
    kind: Kinds  # a Cause of DEVICE_CAUSES
    name: Ids
    stream: Ids  # the stream's label, an index into names
    correlation: Ints
    external: Ints
    bytes: Ints
    hlo_op: Ids
    hlo_module: Ids


@dataclass(slots=True)
class Spans(Table):
    """What the host threads did, sorted by start, longer first: calls, operators, frames."""

    start: Ints
    end: Ints
    thread: Ids  # an index into Trace.threads
    kind: Kinds  # a Cause of HOST_CAUSES, or HOLE: it says where the host is, not what it does
    name: Ids


@dataclass(slots=True)
class Links(Table):
    """An id that some host spans carry: row of the span, and the id."""

    row: Ids
    id: Ints


@dataclass(slots=True)
class Messages(Table):
    """What a file says of the communication of a device, beside the names of its kernels."""

    row: Ids  # of the operation
    name: Ids  # of the collective, an index into names
    group: Ids  # the process group, an index into names
    sequence: Ints  # which one of its group it is
    bytes: Ints


@dataclass(slots=True)
class Marks(Table):
    """Step markers, sorted by start."""

    start: Ints
    end: Ints
    name: Ids
    thread: Ids  # an index into Trace.threads


@dataclass(frozen=True, slots=True)
class Thread:
    """One host thread, as the trace names it."""

    label: str
    pid: int | None = None
    tid: str | None = None

    @property
    def main(self) -> bool:
        """Linux gives the main thread the number of its process, XPlane the name ``python``."""
        return self.tid == str(self.pid) or self.label.startswith("python")


@dataclass(frozen=True, slots=True)
class Site:
    """A line of source code."""

    file: str
    line: int
    function: str = ""


@dataclass(slots=True)
class Device:
    """One device and what it did."""

    kind: DeviceKind
    index: str  # the trace's own: args.device, or the ordinal of the plane
    ops: Ops
    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    model: str | None = None
    messages: Messages = field(default_factory=Messages.of)


@dataclass(frozen=True, slots=True)
class GpuMetric:
    """What a counter of a GPU said on average, as the profiler sampled it."""

    gpu: str
    name: str
    mean: float
    samples: int


@dataclass(slots=True)
class Trace:
    """A whole file."""

    format: Format
    ticks_per_ns: int
    events: int = 0  # records in the file, read or skipped
    origin_ns: int | None = None  # unix time of tick 0, where the file says
    names: list[str] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    host: Spans = field(default_factory=Spans.of)
    calls: Links = field(default_factory=Links.of)  # driver calls by correlation id
    externals: Links = field(default_factory=Links.of)  # operators by external id
    stacks: Links = field(default_factory=Links.of)  # operators by call stack, an index into names
    marks: Marks = field(default_factory=Marks.of)
    # Where the user's code asked for a compiled operation: (hlo_module, hlo_op) as name ids.
    sources: dict[tuple[int, int], Site] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # Records that the profiler had no room for, as far as the file says.
    dropped: int = 0
    # The file ends early, and its head names GPUs: their work may be in what is missing.
    gpus_cut_off: bool = False
    # How many ranks the job has, and its only process group, where the file says so.
    world: int | None = None
    group: str | None = None
    # Of a file of one process: its rank, and its machine.
    rank: int | None = None
    machine: str | None = None
    gpu_metrics: list[GpuMetric] = field(default_factory=list)
    # Why a field of a device is None: field -> reason.
    unknown: dict[str, str] = field(default_factory=dict)
    # Of a file too long for memory: its tables are empty, and these have the rows.
    stretches: Iterable[Stretch] | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a trace, and in ticks from when to when it is the only one that counts.

    ``trace`` has more than starts there: whatever the account of this time needs.
    """

    trace: Trace
    start: int = -EVER
    end: int = EVER

    @property
    def is_all(self) -> bool:
        """Whether it is the only one."""
        return (self.start, self.end) == (-EVER, EVER)

    def has(self, times: Ints) -> Flags:
        """Mark what belongs to this stretch and to no other."""
        found: Flags = (times >= self.start) & (times < self.end)
        return found

    def own(self, rows: _Kind, starts: Ints) -> _Kind:
        """Return those of its rows that belong to no other stretch, by when they start."""
        return rows if self.is_all else rows.take(self.has(starts))
