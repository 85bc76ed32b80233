"""Who records: enough to tell later whether that process is still alive."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

PROC = Path("/proc")
# A zombie keeps its PID until its parent asks for it, and does nothing any more.
_ENDED = {b"Z", b"X", b"x"}


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return field 22 of /proc/PID/stat, ``None`` when no such process runs."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The command name may hold blanks and brackets; the fields resume after the last bracket.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in _ENDED else int(fields[19])


@cache
def boot_id() -> str | None:
    """Return the kernel's id of this boot."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


@cache
def host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def namespace() -> str | None:
    """Return the PID namespace: a PID means nothing outside its own."""
    try:
        return str((PROC / "self/ns/pid").readlink())
    except OSError:
        return None


def own_ticks() -> int | None:
    """Return our own start time."""
    return start_ticks(os.getpid())
