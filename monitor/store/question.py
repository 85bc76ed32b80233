"""A question in SQL that somebody else wrote: it sees the views, and costs little whatever it says.

The file is opened so that nothing can be written, and SQLite asks ``_Allowed`` about each table and
column of a question. It runs in a process of its own, as one function of SQLite can go on for
seconds, and nothing but the end of its process stops it.
"""

from __future__ import annotations

import math
import os
import pickle
import resource
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.store import connect, views

MOST_ROWS: Final = 200
MOST_SECONDS: Final = 2.0
LONGEST_VALUE: Final = 1 << 20
LONGEST_SQL: Final = 10_000
# Letters and bytes of all rows: no more of them are fetched.
LONGEST_ANSWER: Final = 4 << 20
# What its process may use beside the files that it maps; without a question it is a tenth.
MOST_MEMORY: Final = 256 << 20
# Not in the user's working directory: a file there may be named like a module of ours.
_COMMAND: Final = (sys.executable, "-P", "-m", "whyidle.monitor.store.question")
# They reach outside, where a build of SQLite has them.
_FORBIDDEN: Final = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_VALUE,
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
        return table in self._inner.values()


def ask(path: Path, sql: str, most: int = MOST_ROWS, seconds: float = MOST_SECONDS) -> Rows:
    """Answer a question; whatever is wrong with it is a sentence."""
    if len(sql) > LONGEST_SQL:
        raise UsageProblem(f"The question is longer than {LONGEST_SQL} characters.", _HINT)
    done = subprocess.run(  # noqa: S603  ourselves
        _COMMAND,
        input=pickle.dumps((path, sql, most, seconds)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode == -signal.SIGALRM:
        raise UsageProblem(f"The question took longer than {seconds:g} s.", "Ask for less.")
    if done.returncode:
        raise UsageProblem("The process that asked the question has ended.", "Ask for less.")
    found = pickle.loads(done.stdout)  # noqa: S301  written by ourselves
    if isinstance(found, Rows):
        return found
    kind, what, next_step = found
    raise kind(what, next_step)


_HINT: Final = "Ask one SELECT over the views: runs, findings, events, job_minutes, and others."


def _answered(path: Path, sql: str, most: int) -> Rows:
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
        cursor = connection.execute(sql)
        columns = [str(each[0]) for each in cursor.description or ()]
        rows: list[list[Cell]] = []
        left = LONGEST_ANSWER
        for row in cursor:
            if len(rows) == most or left < 0:
                return Rows(columns, rows, True, time.monotonic() - began)
            left -= sum(len(value) for value in row if isinstance(value, str | bytes))
            rows.append([_cell(value) for value in row])
        return Rows(columns, rows, False, time.monotonic() - began)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise _refused(error) from None
    except MemoryError:
        raise UsageProblem(
            f"The question needs more than {MOST_MEMORY >> 20} MiB.", "Ask for less."
        ) from None
    finally:
        connection.close()


def _refused(error: Exception) -> UsageProblem:
    code = error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else None
    if code == sqlite3.SQLITE_AUTH:
        return UsageProblem("The question asks for more than the views, or writes.", _HINT)
    return UsageProblem(f"The question cannot be answered: {error}.", _HINT)


def _cell(value: object) -> Cell:
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no number for it.
        return str(value)
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


def serve() -> None:
    """Answer the one question on standard input, or be ended."""
    path, sql, most, seconds = pickle.load(sys.stdin.buffer)  # noqa: S301  written by ourselves
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    # By the kernel: no handler, which would wait until SQLite returns.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    said: Rows | tuple[type[Problem], str, str]
    try:
        said = _answered(path, sql, most)
    except Problem as problem:
        said = type(problem), problem.what, problem.next_step
    sys.stdout.buffer.write(pickle.dumps(said))


if __name__ == "__main__":
    # Under the name by which the one who asks knows its classes.
    from whyidle.monitor.store import question

    question.serve()
