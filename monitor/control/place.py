"""The place of a recording's socket: beside the store, for its user alone.

Folders and sockets are held by descriptors: what was checked is what is used, and no path is too
long for a socket's name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = "control"
# The longest question or answer, one line each.
MOST_BYTES: Final = 4096
# A recorder that is just beginning does not listen yet.
STALE_SECONDS: Final = 60.0
MOST_NAMES: Final = 1000
_OURS: Final = re.compile(r"\d{1,19}\.sock|\d{1,19}\.\d{1,10}\.new")
_CREDENTIALS: Final = struct.Struct("3i")


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int


def peer_of(line: socket.socket) -> Peer:
    """Return who is at the other end; for a listener, who began to listen."""
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def open_folder(store: Path, *, make: bool = False) -> int:
    """Return the folder's descriptor; anything wrong with it raises an ``OSError``."""
    folder = store.parent / FOLDER
    if make:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o700)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(handle, make=make)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check(folder: int, *, make: bool) -> None:
    found = os.fstat(folder)
    if os.geteuid() not in {0, found.st_uid}:
        raise PermissionError(errno.EPERM, "its folder belongs to another user")
    if found.st_mode & 0o077 and make:
        os.fchmod(folder, 0o700)
    elif found.st_mode & 0o077:
        raise OSError(errno.EBADF, "others may come into its folder")


def name_of(run: int) -> str:
    """Name the socket of a recording."""
    return f"{run}.sock"


def bind(folder: int, run: int) -> tuple[socket.socket, os.stat_result]:
    """Listen under a recording's name; return the socket, and the stat of its file.

    An existing file of this name is a leftover: every recording has a number of its own.
    """
    new = f"{run}.{os.getpid()}.new"
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        line.bind(f"/proc/self/fd/{folder}/{new}")
        os.chmod(new, 0o600, dir_fd=folder)
        line.listen(16)
        # It listens before it gets its name: so nobody takes it for a leftover.
        found = os.stat(new, dir_fd=folder, follow_symlinks=False)
        os.rename(new, name_of(run), src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        line.close()
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
    return line, found


def look(folder: int, run: int) -> tuple[int, int]:
    """Return a path-only descriptor of the socket, and its owner; follow no links."""
    handle = os.open(name_of(run), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    found = os.fstat(handle)
    if not stat.S_ISSOCK(found.st_mode):
        os.close(handle)
        raise FileNotFoundError(f"{name_of(run)} is no socket")
    return handle, found.st_uid


def remove(folder: int, run: int, ours: os.stat_result) -> None:
    """Remove the socket of a recording, unless another one has replaced it."""
    name = name_of(run)
    with contextlib.suppress(OSError):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if os.path.samestat(found, ours):
            os.unlink(name, dir_fd=folder)


def sweep(folder: int, is_ours: Callable[[int], bool]) -> None:
    """Remove the sockets of killed recorders; ``is_ours``: whether a run is of this machine.

    Whether a recorder on another machine that shares the folder still listens is not visible here.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MOST_NAMES)]
        for name in names:
            found = _OURS.fullmatch(name) and _is_left_over(folder, name)
            if found and is_ours(int(name.partition(".")[0])):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)


def _is_left_over(folder: int, name: str) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or time.time() - found.st_mtime < STALE_SECONDS:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as line:
        try:
            line.connect(f"/proc/self/fd/{folder}/{name}")
        except ConnectionRefusedError:
            return True
        except OSError:
            # On any other error somebody may still be listening.
            return False
    return False
