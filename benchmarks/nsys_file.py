"""Write an export of Nsight Systems of any size: the real job of two ranks, step after step.

Run: .venv/bin/python benchmarks/nsys_file.py FILE [--events 300000]
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kineto_file import APART, REAL
from tests.traces import nsys_file

TIMED = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "PROFILER_OVERHEAD",
)  # fmt: skip


def write(path: Path, events: int) -> int:
    """Write at least so many rows, whole rounds of the real steps; return how many they are."""
    story = nsys_file.story_of(REAL)
    steps = [span for span in story.spans if span.name.startswith("ProfilerStep#")]
    low, high = min(s.start for s in steps), max(s.end for s in steps)
    story.spans = [span for span in story.spans if low <= span.start < high]
    story.ops = [op for op in story.ops if low <= op.start]
    nsys_file.write(story, path)
    of_one = len(story.spans) + len(story.ops)
    rounds = -(-events // of_one)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA journal_mode = OFF")
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        for table in sorted(there.intersection(TIMED)):
            _repeat(db, table, high - low, rounds)
        db.commit()
    return of_one * rounds


def _repeat(db: sqlite3.Connection, table: str, length: int, rounds: int) -> None:
    """Add the rows of a table again, each time a round later and with ids of their own."""
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    later = {"start": f"start + n.i * {length}", "end": f'"end" + n.i * {length}',
             "correlationId": f"iif(correlationId > 0, correlationId + n.i * {APART}, 0)",
             }  # fmt: skip
    columns = ", ".join(later.get(name, f'"{name}"') for name in names)
    last = db.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
    db.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rounds - 1})"
        f" INSERT INTO {table} SELECT {columns} FROM n CROSS JOIN {table} t"
        f" WHERE t.rowid <= {last} AND n.i < {rounds}"
    )


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--events", type=int, default=300_000)
    options = parser.parse_args()
    print(f"{write(options.file, options.events):,} rows")


if __name__ == "__main__":
    main()
