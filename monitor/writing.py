"""Files that a command writes for its user: whole or not at all, and never over another."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO

from whyidle.monitor.errors import StorageProblem, UsageProblem
from whyidle.monitor.render.plain import printable

# Little is gained beyond, at twice the time.
LEVEL = 4


@contextlib.contextmanager
def writing(out: Path, *, force: bool) -> Iterator[TextIO]:
    """Open a new file for text, compressed if its name ends in .gz; it appears when it is whole."""
    name = printable(str(out))
    if os.path.lexists(out) and not force:
        raise UsageProblem(f"{name} already exists: it is not overwritten.", "To do so: --force")
    if os.path.lexists(out) and not out.is_file():
        raise UsageProblem(f"{name} is no file: it is not overwritten.", "Choose another name.")
    try:
        descriptor, part = tempfile.mkstemp(dir=out.parent, prefix=".whyidle-")
    except OSError as error:
        raise _unwritten(name, error) from None
    try:
        with os.fdopen(descriptor, "wb") as raw, _text(raw, compressed=out.suffix == ".gz") as text:
            yield text
        Path(part).replace(out)
    except OSError as error:
        raise _unwritten(name, error) from None
    finally:
        Path(part).unlink(missing_ok=True)


@contextlib.contextmanager
def _text(raw: IO[bytes], *, compressed: bool) -> Iterator[TextIO]:
    if not compressed:
        with io.TextIOWrapper(raw, "utf-8") as text:
            yield text
        return
    # Without name and time: the same trace gives the same bytes.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, "utf-8") as text,
    ):
        yield text


def _unwritten(name: str, error: OSError) -> StorageProblem:
    return StorageProblem(f"{name} cannot be written: {error.strerror}.", "Choose another place.")
