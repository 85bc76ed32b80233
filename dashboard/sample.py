"""The bundled sample: real runs to look at before anything is recorded."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.paths import DATABASE

# Its pair tells the whole story: a forecast, a fix, and a gain inside the forecast.
FIRST: Final = "JAX, not compiled"
STORE: Final = Path(__file__).with_name("recorded") / DATABASE


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """Yield a temporary copy: even to read, SQLite writes files beside the store."""
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
            f"The sample cannot be unpacked: {error.strerror}.",
            "Choose another folder: TMPDIR=/path monitor dashboard --sample",
        ) from None
