"""Remove the files of killed agents: where no agent runs any more, nobody else does."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import time
from itertools import islice

# An agent that is just starting has a file before it answers; one that runs writes every second.
STALE_SECONDS = 60.0
MOST_NAMES = 1000
_OURS = re.compile(r"([1-9]\d{0,9})\.(?:spool|sock|py|trace-\d{1,9}(?:\.tmp)?)")


def sweep(folder: int, uid: int, proc: str) -> None:
    """Remove what dead processes of this user left in a folder, which may be open as O_PATH.

    Only for a folder of processes in our pid namespace. Others that share the folder may have pids
    that we do not see: their sockets answer.
    """
    with contextlib.suppress(OSError):
        for names in _by_pid(folder, proc).values():
            if all(_is_stale(name, folder, uid) for name in names):
                for name in names:
                    os.unlink(name, dir_fd=folder)


def _by_pid(folder: int, proc: str) -> dict[str, list[str]]:
    """Return the names of files by the pid that they are named by, of pids that are gone."""
    found: dict[str, list[str]] = {}
    with os.scandir(f"/proc/self/fd/{folder}") as entries:
        for entry in islice(entries, MOST_NAMES):
            name = _OURS.fullmatch(entry.name)
            if name is not None and not os.path.lexists(f"{proc}/{name[1]}"):
                found.setdefault(name[1], []).append(entry.name)
    return found


def _is_stale(name: str, folder: int, uid: int) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if found.st_uid != uid or time.time() - found.st_mtime < STALE_SECONDS:
        return False
    if stat.S_ISSOCK(found.st_mode):
        return _refuses(f"/proc/self/fd/{folder}/{name}")
    return stat.S_ISREG(found.st_mode)


def _refuses(path: str) -> bool:
    """Tell whether nobody listens on a socket; on any other error somebody may."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        try:
            peer.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
