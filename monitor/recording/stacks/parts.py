"""Which part of a job a process is, by the loop of a library that it runs."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.libraries.frames import first
from whyidle.monitor.libraries.table import Role as Does
from whyidle.monitor.processes.roles import Role
from whyidle.monitor.runs.stacks import CodeLine

_PARTS: Final = {
    Does.COMPUTES: Role.WORKER,
    Does.SCHEDULES: Role.ENGINE,
    Does.DETOKENIZES: Role.DETOKENIZER,
}


def part_of(file: str, function: str) -> str | None:
    """Return which part of a job runs a function; ``None``: any process may."""
    does = first(_PARTS, CodeLine(file, 1, function))
    return None if does is None else _PARTS[does]
