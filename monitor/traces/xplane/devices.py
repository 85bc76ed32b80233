"""What a device did: the streams of a GPU, the operations of a TPU."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from whyidle.monitor.traces.grouping import order_of
from whyidle.monitor.traces.model import Flags, Ids, Kinds, Marks, Ops
from whyidle.monitor.traces.names import copy_cause, kernel_cause
from whyidle.monitor.traces.xplane.columns import Columns, arranged, column
from whyidle.monitor.traces.xplane.interning import Interner, PerName
from whyidle.monitor.traces.xplane.plane_reader import DEVICE_STATS, PlaneRequest
from whyidle.monitor.traces.xplane.planes import Line, Plane

# What CUPTI notes on a stream without the device doing anything.
_NO_WORK: Final = ("MemoryResidency", "MemoryAlloc", "MemoryFree", "Overhead")
_COPY: Final = ("Memcpy", "Memset")
_SIZE: Final = re.compile(r"(?:size|num_bytes):(\d{1,18})\b")
_NO_ID: Final = np.int64(-1)
_STREAM: Final = "Stream #"
_OPS: Final = "XLA Ops"
_PROGRAM: Final = re.compile(r"\(\d+\)$")


def works(line: Line) -> bool:
    """Whether a line of a device seems to hold operations, before it is read."""
    return line.end > line.begin and line.name.startswith((_STREAM, _OPS))


class Gpu:
    """A GPU: its streams count, the lines that others derived from them do not."""

    def __init__(self, plane: Plane, intern: Interner) -> None:
        self._names = intern.names
        streams = (intern(line.name) if self._counts(line) else -1 for line in plane.lines)
        self._streams = np.fromiter(streams, np.int32)
        self._parts: list[Ops] = []
        self._works = PerName(intern, lambda name: name not in _NO_WORK)
        self._kernel = PerName(intern, kernel_cause)
        self._copies = PerName(intern, lambda name: name.startswith(_COPY))
        self._size = PerName(intern, _size, np.int64)
        self.request = PlaneRequest(self._counts, DEVICE_STATS, self._take)

    def _counts(self, line: Line) -> bool:
        return line.name.startswith(_STREAM)

    def _take(self, columns: Columns) -> None:
        works = self._works(columns.name) == 1
        if not works.all():
            columns = columns.take(works)
        self._parts.append(self._ops(columns, self._kinds(columns)))

    def _ops(self, columns: Columns, kind: Kinds) -> Ops:
        return Ops.of(
            start=columns.start,
            end=columns.end,
            kind=kind,
            name=columns.name,
            stream=self._streams[columns.line],
            correlation=columns.correlation,
            external=np.broadcast_to(_NO_ID, len(columns)),
            bytes=self._size(columns.details),
            hlo_op=columns.hlo_op,
            hlo_module=columns.hlo_module,
        )

    def _kinds(self, columns: Columns) -> Kinds:
        kinds: Kinds = self._kernel(columns.name).astype(np.int8, copy=False)
        rows = np.flatnonzero(self._copies(columns.name) == 1)
        # The name has the direction, the details the kind of memory: there are few pairs.
        pairs = (columns.name[rows].astype(np.int64) << 32) | (columns.details[rows] + 1)
        unique, where = np.unique(pairs, return_inverse=True)
        kinds[rows] = np.array([self._copy(pair) for pair in unique.tolist()], np.int8)[where]
        return kinds

    def _copy(self, pair: int) -> int:
        name, details = self._names[pair >> 32], (pair & 0xFFFFFFFF) - 1
        return copy_cause(f"{name} {self._names[details] if details >= 0 else ''}")

    @property
    def ran(self) -> bool:
        """Whether any operation was read that is not handed over yet."""
        return any(map(len, self._parts))

    def ops(self) -> Ops:
        """Return what ran, in order."""
        parts = [Ops.of(), *self._parts]
        self._parts = []
        order = order_of(column(parts, "start"), column(parts, "correlation"))
        return arranged(Ops, parts, order)


class Tpu(Gpu):
    """A TPU: its operations count; programs and steps are lines of their own."""

    _MODULES: Final = "XLA Modules"
    _STEPS: Final = "Steps"

    def __init__(self, plane: Plane, intern: Interner) -> None:
        super().__init__(plane, intern)
        self._lines = plane.lines
        self._program = PerName(intern, lambda name: intern(_PROGRAM.sub("", name)), np.int32)
        self._modules = [Marks.of()]
        self._steps = [Marks.of()]

    def _counts(self, line: Line) -> bool:
        return line.name in (_OPS, self._MODULES, self._STEPS)

    def _take(self, columns: Columns) -> None:
        ops = columns.take(self._on(columns, _OPS))
        ops.hlo_op = ops.name
        self._parts.append(self._ops(ops, self._kernel(ops.name).astype(np.int8, copy=False)))
        for name, parts in ((self._MODULES, self._modules), (self._STEPS, self._steps)):
            part = columns.take(self._on(columns, name))
            parts.append(Marks.of(start=part.start, end=part.end, name=part.name))

    def _on(self, columns: Columns, name: str) -> Flags:
        mine: Flags = np.array([line.name == name for line in self._lines], np.bool_)
        return mine[columns.line]

    def ops(self) -> Ops:
        """Return what ran, in order, each operation with the program that was running."""
        ops = super().ops()
        modules = _sorted(self._modules)
        if len(modules):
            i = np.searchsorted(modules.start, ops.start, "right") - 1
            inside = (i >= 0) & (ops.start < modules.end[i])
            none: Ids = np.full(len(ops), -1, np.int32)
            ops.hlo_module = np.where(inside, self._program(modules.name[i]), none).astype(np.int32)
        return ops

    def steps(self) -> Marks:
        """Return the steps that the profiler found."""
        return _sorted(self._steps)


def _sorted(parts: list[Marks]) -> Marks:
    return arranged(Marks, parts, order_of(column(parts, "start"), -column(parts, "end")))


def _size(details: str) -> int:
    """Return the bytes of a copy; ROCm writes 0 where it does not know."""
    found = _SIZE.search(details)
    return int(found[1]) or -1 if found else -1
