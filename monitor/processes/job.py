"""From a part of a job to the process that began all of it.

Whoever names the worker of an engine means the job: what the worker waits for is done in others.
Up to there every process has a title of a part, runs Python, and belongs to the same user.
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.processes.process import ProcessKey, python_of
from whyidle.monitor.processes.procfs import ProcFs, Stat
from whyidle.monitor.processes.roles import role_of, title_of
from whyidle.monitor.processes.target import Target

# What starts processes for Python, and is of no job by itself.
_STARTS: Final = "multiprocessing.forkserver"
# More than any engine has, one below the other.
_DEEPEST: Final = 8


def whole(named: Target) -> Target:
    """Return the process that began the job of which one is a part; itself where it is none."""
    fs, found = named.fs, named
    for _ in range(_DEEPEST):
        stat = fs.stat(found.pid)
        above = None if stat is None or not _is_part(fs, found.pid) else _above(fs, stat)
        if above is None or fs.owner(above.pid) != named.owner:
            break
        found = Target(ProcessKey(above.pid, above.start_ticks), fs)
    return found if not _starts(fs, found.pid) else named


def _above(fs: ProcFs, stat: Stat) -> Stat | None:
    above = fs.stat(stat.parent)
    if above is None or above.has_ended:
        return None
    is_python = python_of(fs.link(f"{above.pid}/exe"), None) is not None
    return above if is_python or _is_part(fs, above.pid) else None


def _is_part(fs: ProcFs, pid: int) -> bool:
    return role_of(title_of(fs.arguments(pid) or [])) is not None or _starts(fs, pid)


def _starts(fs: ProcFs, pid: int) -> bool:
    return any(_STARTS in each for each in fs.arguments(pid) or [])
