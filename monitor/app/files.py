"""Files that a command writes for its user: whole or not at all, and never over another."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.render.escape import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Little is gained beyond, at twice the time.
LEVEL = 4


@contextlib.contextmanager
def writing(out: Path, *, force: bool) -> Iterator[TextIO]:
    """Open a new file for text, compressed if its name ends in .gz; it appears when it is whole."""
    check(out, force=force)
    name = printable(str(out))
    try:
        descriptor, part = tempfile.mkstemp(dir=out.parent, prefix=".whyidle-")
    except OSError as error:
        raise _unwritten(name, error) from None
    try:
        with (
            io.BufferedWriter(_File(descriptor, name)) as raw,
            _text(raw, compressed=out.suffix == ".gz") as text,
        ):
            yield text
        try:
            Path(part).replace(out)
        except OSError as error:
            raise _unwritten(name, error) from None
    finally:
        Path(part).unlink(missing_ok=True)


def check(out: Path, *, force: bool) -> None:
    """Refuse a place that must not be written to; to be said before long work, too."""
    name = printable(str(out))
    if os.path.lexists(out) and not force:
        raise UsageProblem(f"{name} already exists: it is not overwritten.", "To do so: --force")
    if os.path.lexists(out) and not out.is_file():
        raise UsageProblem(f"{name} is no file: it is not overwritten.", "Choose another name.")
    try:
        out.parent.stat()
    except OSError as error:
        raise _unwritten(name, error) from None


class _File(io.FileIO):
    """Tells by itself that it cannot be written: other errors of those who write are not its."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb")
        self._name = name

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _unwritten(self._name, error) from None

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:
            raise _unwritten(self._name, error) from None


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
