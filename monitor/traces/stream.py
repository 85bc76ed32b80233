"""The decompressed bytes of a trace file, forward only and bounded; nothing goes to disk."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

Some = TypeVar("Some")

GZIP: Final = b"\x1f\x8b"
# One piece of work: what is decompressed at once, and what is read of the file for it. (Above
# 2 MB at once the same work takes twice the time: each block is new memory from the system.)
PIECE: Final = 1 << 20
_READ: Final = 256 << 10
# A member of a gzip file may be tiny: what lies behind it is copied each time.
_FIRST_FEED: Final = 4 << 10
# Real traces shrink to 1/10 - 1/40; deflate ends at 1/1032. Judged once enough has come out.
BOMB_RATIO: Final = 200
_JUDGED_AFTER: Final = 64 << 20
CAP: Final = 64 << 30


class NotAFile(Exception):  # noqa: N818  a fact about a path
    """The path leads to a folder, a pipe, a device or a socket; the message says which."""


_KINDS: Final = {
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "pipe",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}


def open_file(path: Path) -> tuple[FileIO, int]:
    """Open a regular file, and nothing that could block us; return it and its size."""
    # Looked at before it is opened, since that alone rewinds a tape; and again once it is ours.
    _require_file(os.stat(path))  # noqa: PTH116  a path may be no text
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        facts = os.fstat(descriptor)
        _require_file(facts)
    except BaseException:
        os.close(descriptor)
        raise
    return FileIO(descriptor), facts.st_size


def _require_file(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise NotAFile(_KINDS.get(stat.S_IFMT(facts.st_mode), "special file"))


class Stream:
    """The bytes of a file that is not compressed."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.position = 0  # bytes handed out or skipped, after decompression
        self.consumed = 0  # bytes of the file on disk used so far
        self.damage: str | None = None  # why the bytes end before the file does

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end."""
        pieces: list[bytes] = []
        while size > 0 and (piece := self._piece(size)):
            self.position += len(piece)
            size -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def fill(self, place: memoryview) -> int:
        """Put the next bytes there, and return how many; fewer than have room only at the end."""
        done = 0
        while done < len(place) and (size := self._fill(place[done:])):
            done += size
        return done

    def _fill(self, place: memoryview) -> int:
        try:
            size = self._file.readinto(place[:PIECE]) or 0
        except OSError as error:
            self._unread(error)
            size = 0
        self.position += size
        self.consumed += size
        return size

    def skip(self, size: int) -> None:
        """Leave out this many bytes."""
        try:
            here = min(max(size, 0), os.fstat(self._file.fileno()).st_size - self.position)
            if here > 0:
                self._file.seek(here, os.SEEK_CUR)
                self.position += here
                self.consumed += here
        except OSError as error:
            self._unread(error)

    def _piece(self, size: int) -> bytes:
        """Return some of the bytes that come next, none at the end."""
        piece = self._load(min(size, PIECE))
        self.consumed += len(piece)
        return piece

    def _load(self, size: int) -> bytes:
        try:
            return self._file.read(size) or b""
        except OSError as error:
            self._unread(error)
            return b""

    def _unread(self, error: OSError) -> None:
        self.damage = f"the file could not be read further: {error.strerror}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class GzipStream(Stream):
    """The bytes inside a gzip file of one or many members."""

    def __init__(self, file: FileIO) -> None:
        super().__init__(file)
        self._buffer = b""
        self._at = 0
        self._gzip: Any = None
        self._feed = _FIRST_FEED
        self._between = True  # two members
        self._ended = False
        self._careful = False

    def fill(self, place: memoryview) -> int:
        """Put the next bytes there, and return how many; fewer than have room only at the end."""
        block = self.read(len(place))
        place[: len(block)] = block
        return len(block)

    def skip(self, size: int) -> None:
        """Leave out this many bytes."""
        while size > 0 and (piece := self._piece(size)):
            self.position += len(piece)
            size -= len(piece)

    def _piece(self, size: int) -> bytes:
        while not self._ended:
            if self._at == len(self._buffer):
                self._buffer, self._at = self._load(_READ), 0
            if self._between:
                self._begin_member()
            elif piece := self._inflate(min(size, PIECE)):
                self._judge(len(piece))
                return piece
        return b""

    def _begin_member(self) -> None:
        if len(self._buffer) - self._at < len(GZIP):
            self._buffer, self._at = self._buffer[self._at :] + self._load(_READ), 0
        begin = self._buffer[self._at : self._at + len(GZIP)]
        if begin == GZIP:
            self._between, self._feed = False, _FIRST_FEED
            self._gzip = zlib.decompressobj(wbits=31)
        elif begin[:1] == b"\0":
            # Zeros may fill up the last block of a tape or a disk.
            rest = self._buffer[self._at :].lstrip(b"\0")
            self.consumed += len(self._buffer) - self._at - len(rest)
            self._buffer, self._at = rest, 0
        elif begin:
            self._end("bytes that are not gzip follow the compressed data")
        else:
            self._ended = True

    def _inflate(self, size: int) -> bytes:
        # What is fed and not used is copied: a small wish gets a small feed.
        feed = 1 if self._careful else min(self._feed, max(size, _FIRST_FEED))
        fed = self._buffer[self._at : self._at + feed]
        undo = None if self._careful else self._gzip.copy()
        try:
            piece: bytes = self._gzip.decompress(fed, size)
        except zlib.error as error:
            self._fail(undo, error)
            return b""
        left = self._gzip.unused_data if self._gzip.eof else self._gzip.unconsumed_tail
        self._at += len(fed) - len(left)
        self.consumed += len(fed) - len(left)
        self._feed = min(self._feed * 2, _READ)
        self._between = self._gzip.eof
        if not fed and not piece and not self._between:
            self._end("the compressed data is cut off")
        return piece

    def _fail(self, undo: Any, error: zlib.error) -> None:
        """Go back before the step that failed, and on byte by byte: all that is sound comes out."""
        if undo is None:
            reason = str(error).rpartition(": ")[2]
            self._end(f"the compressed data is damaged at byte {self.consumed} ({reason})")
        else:
            self._gzip, self._careful = undo, True

    def _judge(self, size: int) -> None:
        total = self.position + size
        if total > CAP:
            self._end(f"more than {CAP >> 30} GiB came out of the compressed file")
        elif total > max(_JUDGED_AFTER, BOMB_RATIO * self.consumed):
            self._end(f"the data grows more than {BOMB_RATIO}-fold, as no trace does")

    def _end(self, damage: str) -> None:
        self._ended = True
        # A file that could not be read looks cut off, too: the first reason is the true one.
        self.damage = self.damage or damage


def ahead(stream: Stream, size: int) -> Iterator[bytes]:
    """Yield blocks of this size; the next one is decompressed while one is worked on."""
    return made_ahead(iter(partial(stream.read, size), b""))


def made_ahead(items: Iterator[Some]) -> Iterator[Some]:
    """Yield the same; the next one is made by another thread while one is worked on."""
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = other.submit(next, items, None)
            yield item
