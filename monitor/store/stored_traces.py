"""Stored traces, and windows of their timelines.

All times are ticks since the trace's origin, as in ``Trace``; an answer's figures are nanoseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec
import numpy as np

from whyidle.monitor.core.contracts.trace import TakenJson, TraceJson
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.store.blocks import Columns, Found
from whyidle.monitor.store.columns import unpack_all
from whyidle.monitor.store.timeline_rows import (
    LINKS,
    MARK,
    NAME,
    OP,
    ROWS_MOST,
    SEGMENT,
    SPAN,
    keep,
)
from whyidle.monitor.store.traces import TraceReader, TraceRow
from whyidle.monitor.store.windows import Rows, Window
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.model import Links, Marks, Ops, Spans, Table, Thread

__all__ = ["Kept", "KeptTrace", "Lane", "Names", "Timeline", "keep"]

EVENTS_MOST: Final = 20_000
# Orders events that begin together.
_THEN: Final = {OP: "correlation", SPAN: None, MARK: None, SEGMENT: None}

_T = TypeVar("_T", bound=Table)


class _Header(msgspec.Struct):
    """What ``keep`` writes beside the timeline; a newer version may have written more."""

    answer: dict[str, Any]
    ticks_per_ns: int
    origin_ns: int | None
    start: int
    end: int
    threads: list[tuple[str, int | None, str | None]]
    blocks: int
    notes: list[str]
    taken: dict[str, Any] | None = None


class KeptTrace(NamedTuple):
    """A stored trace without its timeline."""

    id: int
    run: int | None
    ts_ms: int  # when its window began, if we took it ourselves; else when it was stored
    format: str
    path: Path  # of the analysed file
    answer: TraceJson  # as from ``monitor trace --json``
    ticks_per_ns: int
    origin_ns: int | None
    start: int  # of the timeline
    end: int
    threads: list[Thread]
    blocks: int
    notes: list[str]  # what the timeline lacks
    size: int  # of the timeline in bytes; 0: it was left out or made room
    taken: TakenJson | None = None  # how we took it, if we did

    @classmethod
    def of(cls, row: TraceRow) -> Self:
        """Make it from a row of the store; a damaged row raises a ``StorageProblem``."""
        try:
            header = msgspec.convert(row.header, _Header)
        except msgspec.ValidationError:
            raise StorageProblem(
                f"What was kept of trace {row.id} is damaged.",
                _again(row.path),
            ) from None
        found = msgspec.structs.asdict(header)
        found["threads"] = [Thread(*thread) for thread in header.threads]
        return cls(*row[:4], Path(row.path), size=row.size, **found)


class Lane(NamedTuple):
    """What one device did, and why it was idle."""

    ops: Ops
    segments: Segments


class Names:
    """The names in a trace, read on demand."""

    def __init__(self, reader: TraceReader, blocks: Iterable[Found]) -> None:
        self._reader = reader
        self._blocks = {range(b.start, b.stop): b.id for b in blocks if b.table == NAME}
        self._read: dict[int, list[str]] = {}

    def __getitem__(self, name: int) -> str:
        """Return a name; -1 gives an empty one."""
        for ids, block in self._blocks.items():
            if name in ids:
                if block not in self._read:
                    text = unpack_all(self._reader.data(block))["json"].tobytes()
                    self._read[block] = json.loads(text)
                return self._read[block][name - ids.start]
        return ""


@dataclass(slots=True)
class Timeline:
    """A window of a stored trace: all events that reach into it."""

    trace: KeptTrace
    start: int
    end: int
    lanes: list[Lane]  # in the order of the answer's devices
    host: Spans
    calls: Links  # driver calls by correlation id, as in ``Trace``
    externals: Links
    marks: Marks
    names: Names
    # By table: at most so many rows, the shortest, are not here.
    left_out: dict[str, int]
    lost: int  # blocks lost to damage of the file


class Kept:
    """Reads stored traces. Every call sees the file as it is at that moment."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader

    @classmethod
    def open(cls, store: Path) -> Kept:
        """Open an existing store. Every failure raises a ``StorageProblem``."""
        return cls(TraceReader.open(store))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def traces(self, run: int | None = None) -> list[KeptTrace]:
        """Return the traces of a run, or all, oldest first, without damaged ones."""
        found = []
        for row in self._reader.traces(run):
            with contextlib.suppress(StorageProblem):
                found.append(KeptTrace.of(row))
        return found

    def open_trace(self, trace: int) -> KeptTrace:
        """Return one trace; an unknown id raises a ``UsageProblem``."""
        return KeptTrace.of(self._reader.trace(trace))

    def steps(self, trace: int) -> list[tuple[int, int]]:
        """Return when each step began and ended."""
        return self._reader.rows("trace_step", trace, ("start", "stop"))

    def window(
        self, trace: int, start: int, end: int, max_events: int = EVENTS_MOST, *, clip: bool = True
    ) -> Timeline:
        """Return what happened from ``start`` up to ``end``, with limited rows per table.

        If there are more, the shortest are left out. ``clip`` cuts rows off at the edges.
        """
        kept = self.open_trace(trace)
        with _with_remedy(kept):
            return self._window(kept, _between(start, end, max_events, clip=clip))

    def account(self, trace: int, start: int, end: int, *, clip: bool = True) -> list[Segments]:
        """Return the complete account of each device from ``start`` up to ``end``."""
        kept = self.open_trace(trace)
        with _with_remedy(kept):
            window = _between(start, end, ROWS_MOST, clip=clip)
            rows = self._rows(self._blocks(kept), window, SEGMENT)
        return [_table(Segments, rows.lane(i)) for i in range(len(kept.answer["devices"]))]

    def operations(self, trace: int, start: int, end: int, *, clip: bool = True) -> list[Ops]:
        """Return all operations of each device from ``start`` up to ``end``."""
        kept = self.open_trace(trace)
        with _with_remedy(kept):
            window = _between(start, end, ROWS_MOST, clip=clip)
            rows = self._rows(self._blocks(kept), window, OP)
        return [_table(Ops, rows.lane(i)) for i in range(len(kept.answer["devices"]))]

    def _blocks(self, kept: KeptTrace) -> list[Found]:
        blocks = self._reader.blocks(kept.id)
        if not blocks and (kept.blocks or kept.notes):
            why = "It made room for newer ones." if kept.blocks else kept.notes[-1]
            raise StorageProblem(f"There is no timeline of trace {kept.id}. {why}")
        return blocks

    def _rows(self, blocks: list[Found], window: Window, table: str) -> Rows:
        of_table = (block for block in blocks if block.table == table)
        return window.rows(self._reader.data, of_table, _THEN[table])

    def _window(self, kept: KeptTrace, window: Window) -> Timeline:
        blocks = self._blocks(kept)
        rows = {table: self._rows(blocks, window, table) for table in _THEN}
        host = rows[SPAN].lane(0)
        return Timeline(
            trace=kept,
            start=window.start,
            end=window.end,
            lanes=[
                Lane(_table(Ops, rows[OP].lane(i)), _table(Segments, rows[SEGMENT].lane(i)))
                for i in range(len(kept.answer["devices"]))
            ],
            host=_table(Spans, host),
            calls=_links(host, LINKS[0]),
            externals=_links(host, LINKS[1]),
            marks=_table(Marks, rows[MARK].lane(0)),
            names=Names(self._reader, blocks),
            left_out={table: some.left_out for table, some in rows.items()},
            lost=kept.blocks - len(blocks),
        )


def _between(start: int, end: int, most: int, *, clip: bool) -> Window:
    if end <= start:
        raise UsageProblem("A window of time must end after it begins.")
    return Window(start, end, most, clip)


@contextlib.contextmanager
def _with_remedy(kept: KeptTrace) -> Iterator[None]:
    """Say how to get back what cannot be read from the store."""
    try:
        yield
    except StorageProblem as error:
        raise StorageProblem(error.what, _again(str(kept.path))) from error


def _again(path: str) -> str:
    """Return how to get back what the store has lost of a trace."""
    is_there = os.path.exists(path)  # noqa: PTH110  a folder may be closed to us
    begin = "Analyse the file again" if is_there else "Its file is gone; once it is back"
    return f"{begin}: monitor trace {path}"


def _table(cls: type[_T], columns: Columns) -> _T:
    return cls.of(**{name: columns[name] for name in cls.columns() if name in columns})


def _links(host: Columns, name: str) -> Links:
    if name not in host:
        return Links.of()
    rows = np.flatnonzero(host[name] >= 0)
    return Links.of(row=rows, id=host[name][rows])
