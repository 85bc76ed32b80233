"""End recordings whose recorder was killed, at their last tick."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from whyidle.monitor.store import identity, rollup, subjects

DIED: Final = "recorder died"
# If the recorder is not visible from here, silence decides; a tick is due each second.
_SILENT_MS: Final = 600_000


def recover(connection: sqlite3.Connection) -> None:
    """End the runs whose recorder is gone; the caller holds the transaction."""
    open_runs = connection.execute(
        "SELECT id, started_ms, host, boot_id, recorder_namespace, recorder_pid,"
        " recorder_start_ticks FROM run WHERE ended_ms IS NULL"
    ).fetchall()
    for run, started_ms, *recorder in open_runs:
        last = partial(_last_moment, connection, run, started_ms)
        if _alive(identity.Recorder(*recorder), last):
            continue
        rollup.fill_missing(connection, run)
        connection.execute(
            "UPDATE run SET ended_ms = ?, end_reason = ? WHERE id = ?", (last(), DIED, run)
        )


def _last_moment(connection: sqlite3.Connection, run: int, started_ms: int) -> int:
    return subjects.last_moment(connection, run) or started_ms


def _alive(recorder: identity.Recorder, last_ms: Callable[[], int]) -> bool:
    lives = recorder.lives()
    return last_ms() > time.time() * 1000 - _SILENT_MS if lives is None else lives
