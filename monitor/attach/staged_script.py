"""A script put where a job can read it: in its own view of the files, for its user alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Iterator

from whyidle.agents import wire
from whyidle.monitor.link.channel import Address
from whyidle.monitor.processes.target import Target

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class StagedScript:
    """One file in the folder of the job's user; ``path`` as the job sees it."""

    def __init__(self, folder: int, name: str, path: str) -> None:
        self.path = path
        self._folder = folder
        self._name = name

    @classmethod
    def stage(cls, target: Target, name: str, text: Callable[[str], str]) -> StagedScript | None:
        """Write the file into the first folder that takes it; ``None`` when none does.

        ``text`` returns the content for a path.
        """
        address = Address.of(target.key, target.fs)
        for parent in wire.FOLDERS if address is not None else ():
            with contextlib.suppress(OSError), _acting_as(target):
                assert address is not None  # noqa: S101
                folder = _open_ours(address, parent)
                staged = cls(folder, name, f"{parent}/{address.folder}/{name}")
                try:
                    staged._write(text(staged.path))
                except OSError:
                    staged.remove()
                    staged.close()
                    raise
                return staged
        return None

    def _write(self, text: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._folder)
        handle = os.open(self._name, _NEW, 0o600, dir_fd=self._folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)

    def is_there(self) -> bool:
        """Tell whether nobody has taken it away."""
        with contextlib.suppress(OSError):
            os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            return True
        return False

    def remove(self) -> None:
        """Take the file away."""
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder)

    def close(self) -> None:
        """Let go of the folder; a file that is still there stays."""
        os.close(self._folder)


@contextlib.contextmanager
def _acting_as(target: Target) -> Iterator[None]:
    """Make files as the job's user, on this thread alone, so that none has to change hands."""
    libc = ctypes.CDLL(None)
    uid, gids = target.uid, target.status.get("Gid", "").split()
    foreign = uid is not None and uid != os.geteuid() and len(gids) > 1
    if foreign:
        libc.setfsgid(int(gids[1]))
        libc.setfsuid(uid)
    try:
        # Neither call says whether it worked, but setfsuid(-1) returns who we are.
        if foreign and libc.setfsuid(-1) != uid:
            raise PermissionError(f"cannot act as user {uid}")
        yield
    finally:
        if foreign:
            libc.setfsuid(os.geteuid())
            libc.setfsgid(os.getegid())


def _open_ours(address: Address, parent: str) -> int:
    """Open our folder, made where missing; raises OSError unless it is the job's user's own.

    One step at a time: a link in the job's view of the files would be followed in ours.
    """
    handle = os.open(address.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    names = [*parent.strip("/").split("/"), address.folder]
    for name in names:
        above = handle
        try:
            if name == address.folder:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
            handle = os.open(name, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    found = os.fstat(handle)
    if found.st_uid != address.uid or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(handle)
        raise PermissionError(parent)
    return handle
