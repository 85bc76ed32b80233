"""The sample that comes with the program: real runs to look at where nothing is recorded yet."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.paths import DATABASE

STORE: Final = Path(__file__).with_name("recorded") / DATABASE


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """Return a copy of it for as long as it is needed: to be read, SQLite writes beside it."""
    if not STORE.exists():
        raise UsageProblem(
            "No sample came with this installation.", "Record a job: monitor demo input_starved"
        )
    try:
        folder = tempfile.TemporaryDirectory(prefix="whyidle-sample-", ignore_cleanup_errors=True)
        with folder as path:
            yield Path(shutil.copy(STORE, path))
    except OSError as error:
        raise StorageProblem(
            f"The sample cannot be laid out: {error.strerror}.",
            "Choose another folder: TMPDIR=/path monitor dashboard --sample",
        ) from None
