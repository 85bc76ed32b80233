"""The files of traces, beside the spool, until somebody has fetched them."""

from __future__ import annotations

import os
from contextlib import suppress

from .fds import Descriptor
from .wire import TRACE_FILE_CAP, TRACE_FILE_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .folder import Folder

# So much of the disk is left free.
LEFT_FREE = 64 << 20
# The most that an agent keeps whose client drops none.
MOST_FILES = 2
_MARK = ".trace-"
_PIECE = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TraceFile:
    """One file; it may not exist yet."""

    __slots__ = ("_folder", "made_ns", "name", "size")

    def __init__(self, folder: Folder, trace: int) -> None:
        self._folder = folder
        self.name = f"{os.getpid()}{_MARK}{trace}"
        self.size = 0
        self.made_ns = 0

    @property
    def path(self) -> str:
        """A path that stays valid wherever the folder is moved, and whatever the job's root is."""
        return f"/proc/self/fd/{self._folder.number}/{self.name}"

    def write(self, content: bytes) -> None:
        """Make it with this content; raises OSError."""
        if len(content) > TRACE_FILE_CAP:
            raise OSError(f"it would have {len(content):,} bytes")
        self.remove()
        if free_bytes(self._folder) < len(content):
            raise OSError("no room on the disk")
        handle = Descriptor(os.open(self.name, _NEW, 0o600, dir_fd=self._folder.number))
        try:
            os.fchmod(handle.number, 0o600)
            view = memoryview(content)
            while view:
                if not handle.is_ours():
                    raise OSError("the job closed it")
                view = view[os.write(handle.number, view[:_PIECE]) :]
        finally:
            handle.close()

    def check(self, now: int) -> None:
        """Check that it is there and not too large, and make it private; raises OSError."""
        number = self._folder.number
        os.chmod(self.name, 0o600, dir_fd=number)
        self.size = os.stat(self.name, dir_fd=number, follow_symlinks=False).st_size
        if not 0 < self.size <= TRACE_FILE_CAP:
            raise OSError(f"it has {self.size:,} bytes")
        self.made_ns = now

    def remove(self) -> None:
        """Remove it, and what an interrupted writer may have left."""
        for name in (self.name, f"{self.name}.tmp"):
            with suppress(OSError):
                self._folder.clear(name)


class TraceFiles:
    """The trace files of one agent."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._kept: dict[int, TraceFile] = {}

    def new(self, trace: int) -> TraceFile:
        """Return the file of a trace; raises OSError where the disk is full."""
        if free_bytes(self._folder) <= 0:
            raise OSError("no room on the disk")
        return TraceFile(self._folder, trace)

    def keep(self, trace: int, file: TraceFile) -> None:
        """Keep it until it is fetched."""
        while len(self._kept) >= MOST_FILES:
            self.drop(next(iter(self._kept)))
        self._kept[trace] = file

    def drop(self, trace: int) -> bool:
        """Remove one; returns whether there was one."""
        file = self._kept.pop(trace, None)
        if file is not None:
            file.remove()
        return file is not None

    def second(self, now: int) -> None:
        """Remove what nobody has fetched in time."""
        for trace, file in list(self._kept.items()):
            if now - file.made_ns > TRACE_FILE_SECONDS * 1e9:
                self.drop(trace)

    def close(self) -> None:
        """Remove all of them."""
        for trace in list(self._kept):
            self.drop(trace)


def free_bytes(folder: Folder) -> int:
    """Return the bytes that a trace may take of the disk; raises OSError."""
    found = os.fstatvfs(folder.number)
    return found.f_bavail * found.f_frsize - LEFT_FREE


def is_trace(name: str) -> bool:
    """Tell whether a file in the folder is a trace, or part of one."""
    return _MARK in name
