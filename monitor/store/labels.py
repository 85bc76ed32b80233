"""Names that a person gives to recordings, even afterwards."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.store import connect
from whyidle.monitor.store.connect import transaction
from whyidle.monitor.store.records import check_label

MOST_LETTERS: Final = 100


def new_label(text: str) -> str | None:
    """Return a label as stored, ``None`` for an empty one; refuse one that is no printable line."""
    label = text.strip()
    if len(label) > MOST_LETTERS:
        what = f"A label of {len(label)} letters is too long."
        raise UsageProblem(what, f"Give one of at most {MOST_LETTERS} letters.")
    if not label.isprintable():
        raise UsageProblem(
            "A label has a letter that cannot be shown.", "Give one line of plain text."
        )
    check_label(label or None)
    return label or None


def label_run(path: Path, run: int, label: str | None) -> None:
    """Label a recording that has ended."""
    connect.check_exists(path)
    connection = connect.for_writing(path).connection
    try:
        with transaction(connection):
            connection.execute("UPDATE run SET label = ? WHERE id = ?", (label, run))
    except sqlite3.Error as error:
        raise connect.cannot_open(path, error) from error
    finally:
        connection.close()
