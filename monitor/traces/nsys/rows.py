"""The rows of an export as columns, table by table: no object of a row outlives its block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.interning import MOST_DEVICES, MOST_THREADS, Keys
from whyidle.monitor.traces.model import Flags, Ids, Ints, Kinds, Table
from whyidle.monitor.traces.nsys.database import MISSING
from whyidle.monitor.traces.nsys.database import Table as Columns
from whyidle.monitor.traces.nsys.distinct import Distinct
from whyidle.monitor.traces.nsys.strings import Strings
from whyidle.monitor.traces.nsys.tables import EVENT_TYPES, HOST, WORK, HostTable, WorkTable
from whyidle.monitor.traces.spill import Kept

# Nanoseconds since the session began: no session lasts 36 years, nor did one begin so long before.
_FARTHEST: Final = 1 << 60


@dataclass(slots=True)
class WorkRows(Table):
    """Operations of devices, as they stand in the file."""

    start: Ints
    end: Ints
    name: Ints  # a reference to a text; -1: none, or made of ``extra``
    extra: Ids  # the table, and what the name is made of: an index into ``Rows.made_of``
    device: Ids
    stream: Ints
    correlation: Ints
    bytes: Ints


@dataclass(slots=True)
class HostRows(Table):
    """Spans of threads, as they stand in the file."""

    start: Ints
    end: Ints
    table: Kinds  # an index into tables.HOST
    name: Ints  # a reference to a text
    thread: Ids
    correlation: Ints


class Rows(Kept[HostRows, WorkRows]):
    """Everything kept of the rows read so far."""

    def __init__(self, strings: Strings) -> None:
        super().__init__(HostRows, WorkRows)
        self.strings = strings
        self.events = 0
        self.unreadable = 0
        self.negative = 0
        self.open = 0
        self.threads: Keys[int] = Keys(MOST_THREADS)
        self.devices: Keys[tuple[int, int]] = Keys(MOST_DEVICES)  # process, device
        # References to texts, of each table.
        self.of_host = [Distinct() for _ in HOST]
        self.of_work = [Distinct() for _ in WORK]
        self.streams = Distinct()
        self._made_of: dict[tuple[int, ...], int] = {}

    @property
    def made_of(self) -> list[tuple[int, ...]]:
        """What the names of operations without one are made of."""
        return list(self._made_of)

    # ------------------------------------------------------------------ work of devices

    def work_query(self, table: WorkTable, columns: Columns) -> list[str]:
        """Return what to ask of a table of work."""
        plain = ("deviceId", "globalPid", "streamId", "correlationId", "bytes", *table.extra)
        return [*_times(columns), *(_or_none(columns, name) for name in plain),
                _first(columns, table.names)]  # fmt: skip

    def add_work(self, number: int, table: WorkTable, block: Ints) -> None:
        """Keep a block of operations."""
        self.events += block.shape[1]
        # CUPTI writes 0 where it could not tell the time.
        timed = (block[0] != 0) | (block[1] != 0)
        self.unreadable += len(timed) - int(timed.sum())
        good = self._sound(block[0], block[1], timed)
        start, end, device, process, stream, correlation, size, *extra, name = block[:, good]
        keys = zip(process.tolist(), device.tolist(), strict=True)
        name = name if table.names else np.full(len(start), -1)
        self.of_work[number].add(name)
        self.streams.add(stream)
        self.waiting += len(start)
        self.work.append(
            WorkRows(
                start=start,
                end=np.maximum(end, start),
                name=name,
                extra=self._extra(number, extra, len(start)),
                device=self.devices.column(keys),
                stream=stream,
                # CUPTI counts from 1.
                correlation=np.where(correlation > 0, correlation, -1),
                bytes=np.maximum(size, -1),
            )
        )

    def _extra(self, number: int, columns: list[Ints], count: int) -> Ids:
        """Number what the names are made of: there are few combinations."""
        made_of = self._made_of
        if not columns:
            return np.full(count, made_of.setdefault((number,), len(made_of)), np.int32)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return np.array([made_of.setdefault((number, *r), len(made_of)) for r in rows], np.int32)

    # ------------------------------------------------------------------ what threads did

    def host_query(self, table: HostTable, columns: Columns) -> list[str]:
        """Return what to ask of a table of spans."""
        plain = ("globalTid", "correlationId", "eventType")
        return [*_times(columns), *(_or_none(columns, name) for name in plain),
                _first(columns, table.names)]  # fmt: skip

    def add_host(self, number: int, block: Ints, texts: Iterable[Any] | None = None) -> None:
        """Keep a block of spans; a text of its own is a row's name before what it refers to."""
        self.events += block.shape[1]
        start, end, _, _, kind, name = block
        if texts is not None:
            own = self.strings.column(texts)
            name = np.where(own == -1, name, own)
        wanted: Flags = np.ones(len(start), np.bool_)
        if HOST[number].says == "range":
            wanted = np.isin(kind, (*EVENT_TYPES, -1))
            open_ = wanted & (end == MISSING)
            self.open += int(open_.sum())
            wanted &= ~open_
        good = self._sound(start, end, wanted)
        start, end, thread, correlation, *_ = block[:, good]
        self.of_host[number].add(name[good])
        self.waiting += len(start)
        self.host.append(
            HostRows(
                start=start,
                end=np.maximum(end, start),
                table=np.full(len(start), number, np.int8),
                name=name[good],
                thread=self.threads.column(thread.tolist()),
                correlation=np.where(correlation > 0, correlation, -1),
            )
        )

    def _sound(self, start: Ints, end: Ints, wanted: Flags) -> Flags:
        """Which of the wanted rows have times that can be."""
        good: Flags = (start > -_FARTHEST) & (start < _FARTHEST)
        good &= (end > -_FARTHEST) & (end < _FARTHEST) & wanted
        self.unreadable += int(wanted.sum()) - int(good.sum())
        self.negative += int((good & (end < start)).sum())
        return good


def _times(columns: Columns) -> list[str]:
    return [f"ifnull({columns.column(name)}, {MISSING})" for name in ("start", "end")]


def _or_none(columns: Columns, name: str) -> str:
    found = columns.column(name)
    return f"ifnull({found}, -1)" if found else "-1"


def _first(columns: Columns, names: tuple[str, ...]) -> str:
    """Ask for the first of these columns that says something."""
    there = [found for name in names if (found := columns.column(name))]
    return f"coalesce({', '.join([*there, '-1', '-1'])})"
