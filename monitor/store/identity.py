"""Identify a recorder, to tell later whether that process is still alive."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

from whyidle.monitor.processes.procfs import ProcFs

PROC = Path("/proc")


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, ``None`` when no such process runs."""
    stat = ProcFs(str(proc)).stat(pid)
    return None if stat is None or stat.has_ended else stat.start_ticks


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
    """Return the PID namespace: a PID means nothing outside of it."""
    return ProcFs(str(PROC)).namespace


class Recorder(NamedTuple):
    """The process that records a run, as the run's row names it."""

    host: str | None
    boot_id: str | None
    namespace: str | None
    pid: int | None
    start_ticks: int | None

    def lives(self) -> bool | None:
        """Tell whether it is alive; ``None``: it is not visible from here."""
        if self.host == host() and self.boot_id != boot_id():
            return False
        if self.pid is None or self.boot_id != boot_id() or self.namespace != namespace():
            # On another machine or in another container its PID means nothing to us.
            return None
        return bool(self.start_ticks) and start_ticks(self.pid) == self.start_ticks


def own_ticks() -> int | None:
    """Return our own start time."""
    return start_ticks(os.getpid())
