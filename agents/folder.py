"""The folder of a user's agents: private to the user, or not used.

It is kept open, so that its files can be reached whatever happens to paths: a job may change its
root, and anyone may move a folder in a parent that all may write to.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from .fds import Descriptor
from .wire import FOLDERS, folder_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_NAMES = 256
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """One folder, open."""

    __slots__ = ("_handle", "path")

    def __init__(self, path: str, handle: Descriptor) -> None:
        self.path = path
        self._handle = handle

    @property
    def number(self) -> int:
        """The descriptor, for ``dir_fd``; raises OSError when the job has closed it."""
        if not self._handle.is_ours():
            raise OSError(self.path)
        return self._handle.number

    def identity(self, name: str) -> tuple[int, int] | None:
        """Return which file has this name; ``None`` when there is none."""
        with suppress(OSError):
            found = os.stat(name, dir_fd=self.number, follow_symlinks=False)
            return found.st_dev, found.st_ino
        return None

    def remove(self, name: str, identity: tuple[int, int] | None) -> None:
        """Remove a file, if it is still the same one."""
        if identity is not None and self.identity(name) == identity:
            with suppress(OSError):
                os.unlink(name, dir_fd=self.number)

    def clear(self, name: str) -> None:
        """Remove a file of that name, whichever it is."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.number)

    def names(self) -> list[str]:
        """Return the names in it, up to a bound."""
        try:
            return os.listdir(self.number)[:MOST_NAMES]
        except OSError:
            return []

    def age(self, name: str) -> float:
        """Return the seconds since a file was written; infinite when there is none."""
        try:
            found = os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except OSError:
            return float("inf")
        return time.time() - found.st_mtime

    def close(self) -> None:
        """Let go of it."""
        self._handle.close()


def folders() -> Iterator[Folder]:
    """Yield the folders that can be trusted, each made when missing."""
    for parent in FOLDERS:
        path = f"{parent}/{folder_name(os.geteuid())}"
        with suppress(OSError):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
            handle = Descriptor(os.open(path, _OPEN))
            if _is_private(handle.number):
                yield Folder(path, handle)
            else:
                handle.close()


def _is_private(number: int) -> bool:
    found = os.fstat(number)
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
