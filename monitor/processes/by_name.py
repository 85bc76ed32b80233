"""A process by the name of its script: the one that a person means by ``train.py``."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import PurePath
from typing import Final

from whyidle.monitor.core.errors import TargetGone, UsageProblem
from whyidle.monitor.processes.notebooks import notebook_of
from whyidle.monitor.processes.process import ProcessKey, script_of
from whyidle.monitor.processes.procfs import ProcFs, above_each
from whyidle.monitor.processes.secrets import mask
from whyidle.monitor.processes.target import Target

MOST_NAMED: Final = 8
LONGEST: Final = 60
# How often a process that is not there yet is looked for.
LOOK_EVERY_S: Final = 0.5


def find(name: str, fs: ProcFs | None = None) -> Target:
    """Return the one process that runs a script of this name; several are for a person to tell."""
    fs = fs or ProcFs()
    found = _running(name, fs)
    if not found:
        raise TargetGone(
            f"No process of yours runs '{name}'.",
            f"List the jobs: monitor ps    or wait: monitor attach {shlex.quote(name)} --wait",
        )
    if len(found) > 1:
        listed = ", ".join(f"{key.pid} ({_command(key.pid, fs)})" for key in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise UsageProblem(
            f"Several processes run '{name}': {listed}{more}.",
            f"Name one: monitor attach {found[0].pid}",
        )
    return Target.named(str(found[0].pid), fs)


def wait_for(name: str, fs: ProcFs | None = None) -> Target:
    """Return it as soon as it is there; Ctrl-C ends the waiting."""
    while True:
        try:
            return find(name, fs)
        except TargetGone:
            time.sleep(LOOK_EVERY_S)


def _running(name: str, fs: ProcFs) -> list[ProcessKey]:
    """Return who runs it, without what these have started themselves: workers, ranks, loaders."""
    stats = fs.stats()
    above = above_each(stats)
    # Whoever called us has our words in its command line.
    callers = {os.getpid(), *above.get(os.getpid(), ())}
    us = os.geteuid()
    mine = {
        pid
        for pid, stat in stats.items()
        if pid not in callers and not stat.has_ended and us in {0, fs.owner(pid)}
    }
    found = {pid for pid in mine if _runs(name, fs.arguments(pid) or []) or _shows(name, pid, fs)}
    first = [pid for pid in found if not above[pid] & found]
    return sorted(ProcessKey(pid, stats[pid].start_ticks) for pid in first)


def _shows(name: str, pid: int, fs: ProcFs) -> bool:
    """Tell whether it is the kernel of a notebook of this name."""
    if not name.endswith(".ipynb"):
        return False
    shown = notebook_of(fs.arguments(pid) or [], fs.environment(pid) or {}, None)
    return shown == f"notebook {PurePath(name).name}"


def _runs(name: str, arguments: list[str]) -> bool:
    """Tell whether what a person would call the job has this name."""
    wanted, words = PurePath(name).name, (script_of(arguments) or "").split()
    # The interpreter is nobody's name for a job.
    if not arguments or wanted == PurePath(arguments[0]).name:
        return False
    if wanted not in (PurePath(word).name for word in words):
        return False
    # With folders before it, the same ones stand on the command line.
    return "/" not in name or any(PurePath(each).match(name.lstrip("./")) for each in arguments)


def _command(pid: int, fs: ProcFs) -> str:
    text = shlex.join(mask(fs.arguments(pid) or []))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
