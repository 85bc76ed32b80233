"""An SQLite file as columns of numbers: opened so that nothing is written, locked or run in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote_from_bytes

import numpy as np

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.traces.model import Ints
from whyidle.monitor.traces.opening import Source, show

# What reading may raise; SQLite quotes damaged text in its messages, which need not be UTF-8.
DAMAGE: Final = (sqlite3.Error, UnicodeDecodeError)
# What a column has where it says nothing, or nothing that can be.
MISSING: Final = int(np.iinfo(np.int64).min)
# Rows that are there as Python objects at once.
ROWS: Final = 20_000
# Inside of gzip a database is unpacked in memory, since SQLite reads it back and forth.
MOST_UNPACKED: Final = 1 << 30
# Where the header says with what kind of journal the file is written: 2 is WAL, 1 any other.
_JOURNAL: Final = slice(18, 20)
_HEADER: Final = 100
# 64 bits in digits, with room for a sign and quotes.
_LONGEST: Final = 24
_EXPORT: Final = "Export the report again: nsys export --type sqlite --force-overwrite true REPORT"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its columns; SQLite does not tell capitals from small letters."""

    name: str
    columns: dict[str, str]  # in small letters -> as written

    def column(self, *names: str) -> str | None:
        """Return the first of these columns that the table has, ready for a query."""
        found = (self.columns.get(name.lower()) for name in names)
        return next((_quoted(name) for name in found if name is not None), None)


class Database:
    """A file of SQLite, for reading."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.connection = _from_memory(source) if source.compressed else _from_file(source.path)
        # A schema is somebody else's: no function in it is called, no view of it is asked.
        self.connection.execute("PRAGMA trusted_schema = OFF")
        self.connection.text_factory = _text
        self.cut_off = _is_cut_off(source)
        self.tables = self._tables()
        self.connection.text_factory = bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def _tables(self) -> dict[str, Table]:
        try:
            if not self.cut_off:
                return self._read_schema()
        except DAMAGE:
            self.cut_off = True
        try:
            # Then SQLite reads a file whose end is missing, as far as it goes.
            self.connection.execute("PRAGMA writable_schema = ON")
            if tables := self._read_schema():
                return tables
            why = "its tables are missing"
        except DAMAGE as error:
            why = str(error)
        raise UsageProblem(f"{show(self._source.path)} is a damaged SQLite file: {why}.", _EXPORT)

    def _read_schema(self) -> dict[str, Table]:
        """Find the tables; views and virtual tables would run what somebody else wrote."""
        names = self.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        ).fetchall()
        tables = [self._table(name) for (name,) in names if isinstance(name, str)]
        return {table.name.upper(): table for table in tables}

    def _table(self, name: str) -> Table:
        rows = self.connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
        return Table(name, {row[1].lower(): row[1] for row in rows})

    def count(self, table: Table) -> int:
        """Return how many rows a table has; 0 where it cannot be read."""
        try:
            found = self.connection.execute(f"SELECT count(*) FROM {_quoted(table.name)}")  # noqa: S608
            return int(found.fetchone()[0])
        except DAMAGE:
            return 0

    def rows(self, table: Table, columns: Sequence[str], where: str = "") -> Iterator[list[Row]]:
        """Yield these columns, so many rows at a time, texts as bytes.

        Raises ``sqlite3.Error`` at damage.
        """
        query = f"SELECT {', '.join(columns)} FROM {_quoted(table.name)} {where}"  # noqa: S608
        cursor = self.connection.execute(query)
        while rows := cursor.fetchmany(ROWS):
            yield rows

    def small(self, name: str, *columns: str, where: str = "") -> list[Row]:
        """Return the first rows of a small table; none where it, or a column of it, is missing."""
        table = self.tables.get(name)
        quoted = [table.column(column) for column in columns] if table else [None]
        if table is None or None in quoted:
            return []
        try:
            rows = next(self.rows(table, [q for q in quoted if q], f"{where} LIMIT {ROWS}"), [])
        except DAMAGE:
            return []
        return [tuple(_text(v) if isinstance(v, bytes) else v for v in row) for row in rows]


def integers(rows: list[Row], refer: Callable[[Any], int]) -> Ints:
    """Return a block of rows as whole numbers, ``MISSING`` for what is none.

    The last column refers to a text, and may hold the text itself.
    """
    width = len(rows[0])
    try:
        found = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width)
        # No id is negative: such numbers are those of texts.
        np.maximum(found[width - 1 :: width], -1, out=found[width - 1 :: width])
    except (TypeError, ValueError, OverflowError):
        each = ((*map(whole, row[:-1]), refer(row[-1])) for row in rows)
        found = np.fromiter(chain.from_iterable(each), np.int64)
    return found.reshape(len(rows), -1).T


def whole(value: Any) -> int:
    """Return a whole number of 64 bits, also one that is written as text."""
    if isinstance(value, str | bytes | float) and len(str(value)) <= _LONGEST:
        try:
            value = int(value)
        except (ValueError, OverflowError):
            return MISSING
    return value if isinstance(value, int) and MISSING < value <= -(MISSING + 1) else MISSING


def _is_cut_off(source: Source) -> bool:
    """Whether a file is shorter than its header says; inside of gzip, that would say so itself."""
    if source.compressed:
        return False
    with source.open() as stream:
        head = stream.read(_HEADER)
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    # 64 KiB do not fit two bytes; the count holds if the last program that wrote knew of it.
    size = (1 << 16 if page == 1 else page) * pages
    return len(head) < _HEADER or (head[24:28] == head[92:96] and size > source.size)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _from_file(path: Path) -> sqlite3.Connection:
    # Immutable: no lock, no journal, and no file beside it is touched.
    uri = f"file:{quote_from_bytes(bytes(path.absolute()))}?mode=ro&immutable=1"
    try:
        return sqlite3.connect(uri, uri=True)
    except DAMAGE as error:
        raise UsageProblem(f"{show(path)} cannot be opened: {error}.", _EXPORT) from None


def _from_memory(source: Source) -> sqlite3.Connection:
    with source.open() as stream:
        data = bytearray(stream.read(MOST_UNPACKED + 1))
        damage = stream.damage
    name = show(source.path)
    if damage:
        raise UsageProblem(f"{name} could not be unpacked: {damage}.", "Copy it again.")
    if len(data) > MOST_UNPACKED:
        step = f"Unpack it first: gunzip {name}"
        raise UsageProblem(f"{name} is too large to be read inside of gzip.", step)
    data[_JOURNAL] = b"\1\1"
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(bytes(data))
    except DAMAGE as error:
        raise UsageProblem(f"{name} is a damaged SQLite file: {error}.", _EXPORT) from None
    return connection
