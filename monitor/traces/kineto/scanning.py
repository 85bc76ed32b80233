"""Lists of events as columns by the compiled scanner, where it was built and is sure of the text.

What it leaves, and a machine without it, `record.py` and `rows.py` read to the same end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from whyidle.monitor.traces.kineto.record import Id, Scalar, decode_one
from whyidle.monitor.traces.kineto.rows import HOST, WORK, HostRows, Notes, Rows, WorkRows
from whyidle.monitor.traces.model import Ids, Table

try:
    from whyidle.monitor.traces.kineto._scan import Scanner
except ImportError:  # built without a compiler
    Scanner = None  # type: ignore[assignment, misc]

Piece = bytearray | memoryview
_Kind = TypeVar("_Kind", bound=Table)
_TEXT: Final = msgspec.json.Decoder(str)
_ID: Final = msgspec.json.Decoder(Id)
_SCALAR: Final = msgspec.json.Decoder(Scalar)


def _pair(raw: bytes) -> Hashable:
    pid, _, tid = raw.partition(b"\0")
    return _ID.decode(pid), _ID.decode(tid)


def _label(raw: bytes) -> str:
    return str(_SCALAR.decode(raw))


class _Numbers:
    """What the scanner's numbers for pieces of text are here."""

    def __init__(self, table: Any, read: Callable[[bytes], Any]) -> None:
        self.read = read
        self._table: Mapping[Any, int] = table
        self._known = np.zeros(0, np.int32)

    def add(self, new: list[Any]) -> None:
        if new:
            found = np.array([self._table[key] for key in new], np.int32)
            self._known = np.append(self._known, found)

    def of(self, column: Ids) -> Ids:
        return self._known[column] if len(self._known) else column

    def of_some(self, column: Ids) -> Ids:
        """The same where -1 is none."""
        return np.append(self._known, np.int32(-1))[column]


class Scan:
    """The compiled scanner over the rows of a file."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._scanner = Scanner(_coded(HOST), _coded(WORK))
        self._numbers = (
            _Numbers(rows.names, _TEXT.decode),
            _Numbers(rows.kernels, _TEXT.decode),
            _Numbers(rows.threads, _pair),
            _Numbers(rows.devices, _label),
            _Numbers(rows.streams, _label),
            _Numbers(rows.stack_names, _TEXT.decode),
        )

    def take(self, piece: Piece) -> bool:
        """Keep what counts of a JSON list of events; False: nothing of it was kept."""
        found = self._scanner.scan(piece)
        if found is None:
            return False
        events, negative, host, work, new, *places = found
        try:
            read = [
                [numbers.read(raw) for raw in raws]
                for numbers, raws in zip(self._numbers, new, strict=True)
            ]
            metadata, by_host, by_work = [_decoded(piece, place) for place in places]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        self._scanner.keep()
        for numbers, keys in zip(self._numbers, read, strict=True):
            numbers.add(keys)
        self._rows.events += events
        self._rows.negative += negative
        if host[0]:
            self._rows.keep_host(self._host_of(host), _notes(by_host))
        if work[0]:
            self._rows.keep_work(self._work_of(work), _notes(by_work))
        self._rows.keep_names([event for _, event in metadata])
        return True

    def _host_of(self, columns: tuple[bytes, ...]) -> HostRows:
        names, _, threads, _, _, stacks = self._numbers
        found = _table(HostRows, columns)
        found.name, found.thread = names.of(found.name), threads.of(found.thread)
        found.stack = stacks.of_some(found.stack)
        return found

    def _work_of(self, columns: tuple[bytes, ...]) -> WorkRows:
        _, kernels, _, devices, streams, _ = self._numbers
        start, end, category, name, device, correlation, external, stream, sizes = columns
        ordered = start, end, category, name, device, stream, correlation, external, sizes
        found = _table(WorkRows, ordered)
        found.name, found.device = kernels.of(found.name), devices.of(found.device)
        found.stream = streams.of(found.stream)
        return found


def scan_of(rows: Rows) -> Scan | None:
    """Return the compiled scanner, if there is one."""
    return None if Scanner is None else Scan(rows)


def _coded(categories: Mapping[str | None, int]) -> list[tuple[bytes, int]]:
    return [(name.encode(), code) for name, code in categories.items() if name]


def _table(kind: type[_Kind], columns: tuple[bytes, ...]) -> _Kind:
    return kind(
        *(np.frombuffer(c, t) for c, t in zip(columns, kind.columns().values(), strict=True))
    )


def _decoded(piece: Piece, places: bytes) -> list[tuple[int, Any]]:
    """Read the events at these places of the text, each with its row."""
    text = memoryview(piece)
    return [
        (row, decode_one(text[begin:end]))
        for row, begin, end in np.frombuffer(places, np.int64).reshape(-1, 3).tolist()
    ]


def _notes(found: list[tuple[int, Any]]) -> Notes:
    return [(row, event.args) for row, event in found]
