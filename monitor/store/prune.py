"""Delete recordings, and return their space to the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.metrics import Scope, metrics_of
from whyidle.monitor.store import connect, recovery, timelines
from whyidle.monitor.store.connect import transaction
from whyidle.monitor.store.schema import LEVELS, RAW, RUN_TABLES, Level
from whyidle.monitor.store.subjects import among, of_run

_PAGES_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class RunSize:
    """The approximate size of a recording on the disk."""

    run: int
    rows: int
    size: int


def run_sizes(path: Path) -> list[RunSize]:
    """Return each recording's share of the file; reads all keys, so too slow for every tick."""
    connection = connect.for_reading(path)
    try:
        runs = [row[0] for row in connection.execute("SELECT id FROM run ORDER BY id")]
        rows, weights = dict.fromkeys(runs, 0), dict.fromkeys(runs, 0)
        for scope in Scope:
            owner = {s: run for run in runs for s in of_run(connection, run, scope)}
            for level in LEVELS:
                query = f"SELECT subject, count(*) FROM {level.table(scope)} GROUP BY subject"  # noqa: S608
                for subject, count in connection.execute(query):
                    if subject in owner:
                        rows[owner[subject]] += count
                        weights[owner[subject]] += count * _weight(scope, level)
        total = sum(weights.values()) or 1
        traces = timelines.sizes(connection)
        size = max(path.stat().st_size - sum(traces.values()), 0)
        return [
            RunSize(run, rows[run], size * weights[run] // total + traces.get(run, 0))
            for run in runs
        ]
    except sqlite3.Error as error:
        raise connect.cannot_open(path, error) from error
    finally:
        connection.close()


def delete_runs(path: Path, runs: Collection[int]) -> int:
    """Delete ended recordings with all their data; return the number of sample rows deleted."""
    with _writing(path) as connection, transaction(connection):
        recovery.recover(connection)
        for run in runs:
            found = connection.execute("SELECT ended_ms FROM run WHERE id = ?", (run,)).fetchone()
            if found is None:
                what = f"There is no recording {run}."
                raise UsageProblem(what, "List them: monitor runs")
            if found[0] is None:
                what = f"Recording {run} is still running."
                raise UsageProblem(what, f"End it first: monitor stop {run}")
        return sum(_delete(connection, run) for run in runs)


def shrink(path: Path) -> int:
    """Return free pages to the disk; return the bytes freed."""
    before = path.stat().st_size
    with _writing(path) as connection:
        left = _free_pages(connection)
        while left:
            # A script runs to its end; execute() would stop after the first page. Work in parts,
            # so that recorders get their turn in between.
            connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
            before_that, left = left, _free_pages(connection)
            if left >= before_that:
                break
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return before - path.stat().st_size


def _free_pages(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])


def copy(path: Path, into: Path) -> None:
    """Write a compact copy of the whole store, consistent even while it is recorded to."""
    connection = connect.for_reading(path)
    try:
        # Made by us, so that it is never readable by others, not even while it grows.
        into.touch(0o600, exist_ok=False)
        # The file stays opened read-only; this lets the copy be written.
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("VACUUM INTO ?", (str(into),))
    except FileExistsError as error:
        what = f"{into} exists already; it is not overwritten."
        raise StorageProblem(what, "Give another name.") from error
    except OSError as error:
        what = f"Cannot write {into}: {error.strerror}."
        raise StorageProblem(what, "Choose another folder for the copy.") from error
    except sqlite3.Error as error:
        into.unlink(missing_ok=True)
        what = f"Cannot copy {path} to {into}: {error}."
        raise StorageProblem(what, "Choose another folder for the copy.") from error
    finally:
        connection.close()


def _weight(scope: Scope, level: Level) -> int:
    # Of the four columns of a roll-up the count is nearly always empty.
    return len(metrics_of(scope)) * (1 if level is RAW else 3) + 2


def _delete(connection: sqlite3.Connection, run: int) -> int:
    deleted = 0
    for scope in Scope:
        where = among(of_run(connection, run, scope))
        for level in LEVELS:
            query = f"DELETE FROM {level.table(scope)} WHERE {where}"  # noqa: S608
            deleted += connection.execute(query).rowcount
    # Joins first: they are found by the GPUs.
    connection.execute(
        "DELETE FROM gpu_process WHERE gpu IN (SELECT id FROM gpu WHERE run = ?)", (run,)
    )
    traces = connection.execute("SELECT id FROM trace WHERE run = ?", (run,)).fetchall()
    timelines.delete(connection, [row[0] for row in traces])
    for table in RUN_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608
    connection.execute("DELETE FROM run WHERE id = ?", (run,))
    return deleted


@contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    connect.check_exists(path)
    connection = connect.for_writing(path).connection
    try:
        yield connection
    except sqlite3.Error as error:
        raise connect.cannot_open(path, error) from error
    finally:
        connection.close()
