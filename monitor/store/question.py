"""A question in SQL that somebody else wrote: it sees the views, and costs little whatever it says.

The file is opened so that nothing can be written. SQLite asks ``_Allowed`` about each table and
column of a question, and runs a question for a limited time, over limited rows and text.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.store import connect, views

MOST_ROWS: Final = 200
MOST_SECONDS: Final = 2.0
# Of one value: no function can be made to search in more.
LONGEST_VALUE: Final = 1 << 20
LONGEST_SQL: Final = 10_000
# Steps of SQLite's machine between two looks at the clock: a fraction of a millisecond.
_STEPS: Final = 5_000
# They reach outside, where a build of SQLite has them.
_FORBIDDEN: Final = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_TABLES: Final = {"json_each", "json_tree"}
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 16,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer: at most so many rows, and whether there were more."""

    columns: list[str]
    rows: list[list[Cell]]
    more: bool
    seconds: float


class _Allowed:
    """What a question may read.

    Each view is two: the one that is named, over one whose name nobody can know. Only within the
    second are tables read: a question may call a part of its own by the name of a view, but not by
    that one.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._inner: dict[str, str] = {}
        for view in views.of(connection):
            inner = f"v{secrets.token_hex(16)}"
            connection.execute(f"CREATE TEMP VIEW {inner} AS {view.select}")
            connection.execute(f"CREATE TEMP VIEW {view.name} AS SELECT * FROM {inner}")  # noqa: S608
            self._inner[inner] = view.name

    def __call__(
        self, action: int, one: str | None, two: str | None, _: str | None, within: str | None
    ) -> int:
        """Answer SQLite."""
        if action in {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            is_fine = (two or "").lower() not in _FORBIDDEN
        else:
            # Without a column it is only that a table has rows: SQLite asks so within views, too.
            is_fine = action == sqlite3.SQLITE_READ and (
                not two or self._may_read(one or "", within)
            )
        return sqlite3.SQLITE_OK if is_fine else sqlite3.SQLITE_DENY

    def _may_read(self, table: str, within: str | None) -> bool:
        if within in self._inner:
            return True
        if table in self._inner:
            return within == self._inner[table]
        return table in _TABLES or table in self._inner.values()


def ask(path: Path, sql: str, most: int = MOST_ROWS, seconds: float = MOST_SECONDS) -> Rows:
    """Answer a question; whatever is wrong with it is a sentence."""
    if len(sql) > LONGEST_SQL:
        raise UsageProblem(f"The question is longer than {LONGEST_SQL} characters.", _HINT)
    connection = connect.for_reading(path)
    began = time.monotonic()
    try:
        # A view lies in the connection, not in the file.
        connection.execute("PRAGMA query_only = OFF")
        allowed = _Allowed(connection)
        connection.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.set_authorizer(allowed)
        connection.set_progress_handler(lambda: time.monotonic() > began + seconds, _STEPS)
        cursor = connection.execute(sql)
        found = cursor.fetchmany(most + 1)
        columns = [str(each[0]) for each in cursor.description or ()]
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise _refused(error, seconds) from None
    finally:
        connection.close()
    rows = [[_cell(value) for value in row] for row in found[:most]]
    return Rows(columns, rows, len(found) > most, time.monotonic() - began)


_HINT: Final = "Ask one SELECT over the views: runs, findings, events, job_minutes, and others."


def _refused(error: Exception, seconds: float) -> UsageProblem:
    code = error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else None
    if code == sqlite3.SQLITE_INTERRUPT:
        return UsageProblem(f"The question took longer than {seconds:g} s.", "Ask for less.")
    if code == sqlite3.SQLITE_AUTH:
        return UsageProblem("The question asks for more than the views, or writes.", _HINT)
    return UsageProblem(f"The question cannot be answered: {error}.", _HINT)


def _cell(value: object) -> Cell:
    if isinstance(value, str | int | float) or value is None:
        return value
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def described(path: Path) -> str:
    """Return the views of a file with their columns, as text."""
    connection = connect.for_reading(path)
    try:
        return "\n".join(views.listing(views.of(connection)))
    except sqlite3.Error as error:
        raise connect.cannot_open(path, error) from error
    finally:
        connection.close()
