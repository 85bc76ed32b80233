"""Open a file as another user could: each folder on its path is checked, link by link."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

_WAY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READS: Final = 4
_PASSES: Final = 1
# Folders and links on a path: there may be loops, and each costs a handle.
_MOST_NAMES: Final = 100


class NotAllowed(ValueError):  # noqa: N818  an answer
    """The user may not read the file."""


@dataclass(frozen=True, slots=True)
class User:
    """A user as the kernel sees one; a user unknown here has only the rights of others."""

    uid: int | None
    groups: frozenset[int] = frozenset()

    @classmethod
    def ourselves(cls) -> User:
        """Return our own user."""
        return cls(os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))

    @classmethod
    def named(cls, user: str) -> User:
        """Return the user of a name, or of a number that has no name."""
        try:
            found = pwd.getpwnam(user)
        except KeyError:
            return cls(int(user) if user.isdecimal() else None)
        return cls(found.pw_uid, frozenset(os.getgrouplist(user, found.pw_gid)))

    def may(self, what: int, info: os.stat_result) -> bool:
        """Return whether a file's mode grants a right: only one of its three classes counts."""
        if self.uid == 0:
            return True
        if info.st_uid == self.uid:
            what <<= 6
        elif info.st_gid in self.groups:
            what <<= 3
        return bool(info.st_mode & what)

    def trusts(self, link: os.stat_result) -> bool:
        """Return whether this user can trust where a link leads."""
        return link.st_uid in {0, self.uid}


def open_as(path: Path, user: User) -> int:
    """Open a file for reading; ``OSError`` if we may not, ``NotAllowed`` if the user may not.

    A link as the last part is not followed: source files are not named by links.
    """
    with contextlib.ExitStack() as handles:
        handle = os.open(path.name, _READ, dir_fd=_folder(path.parent, user, handles))
    if not user.may(_READS, os.fstat(handle)):
        os.close(handle)
        raise NotAllowed
    return handle


def _folder(path: PurePath, user: User, handles: contextlib.ExitStack) -> int:
    """Descend to a folder, name by name, so that what is checked is what is used."""
    here = root = _held("/", None, handles)
    left = _parts(path)
    for _ in range(_MOST_NAMES):
        if not user.may(_PASSES, os.fstat(here)):
            raise NotAllowed
        if not left:
            return here
        there = _held(left.pop(), here, handles)
        info = os.fstat(there)
        if not stat.S_ISLNK(info.st_mode):
            here = there
        elif user.trusts(info):
            target = os.readlink("", dir_fd=there)
            here = root if target.startswith("/") else here
            left += _parts(PurePath(target))
        else:
            raise NotAllowed
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _held(name: str, folder: int | None, handles: contextlib.ExitStack) -> int:
    handle = os.open(name, _WAY, dir_fd=folder)
    handles.callback(os.close, handle)
    return handle


def _parts(path: PurePath) -> list[str]:
    """Return the names on the path, the first one last."""
    return [part for part in reversed(path.parts) if part.strip("/")]
