"""Who records: enough to tell later whether that process is still alive."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

PROC = Path("/proc")


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return field 22 of /proc/PID/stat, ``None`` when there is no such process."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The command name may hold blanks and brackets; the fields resume after the last bracket.
    return int(stat.rpartition(b")")[2].split()[19])


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
