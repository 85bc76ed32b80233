"""What rules out every method for a process, as sentences; nothing here touches the process."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from whyidle.agents import wire
from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.attach.payload import OLDEST_PYTHON
from whyidle.monitor.core import paths
from whyidle.monitor.processes.procfs import PYPY, ProcFs
from whyidle.monitor.processes.target import Target

# Bit of CAP_SYS_PTRACE in a set of capabilities (linux/capability.h).
SYS_PTRACE = 19
YAMA = "sys/kernel/yama/ptrace_scope"
LONGEST_COMMAND = 60

_PYTHON_PROGRAM = re.compile(r"/(?:python[\d.]*t?|libpython[^/]*)$")
_SEE = "See what runs with: monitor ps"


def refusal(target: Target) -> Refusal | None:
    """Return the first reason why no method may enter; ``None`` when one may be tried."""
    return next((r for check in _CHECKS if (r := check(target)) is not None), None)


def temporary(target: Target) -> Refusal | None:
    """Return a reason that may be gone in a moment."""
    return _traced(target) or _waits(target)


def run_instead(target: Target) -> str:
    """Return the command that starts this job with the agent inside.

    A person may paste it, as root: whatever the job calls itself is quoted, and only whole
    arguments are left out.
    """
    who = target.identity
    known = who.arguments if who is not None and target.python else ()
    words = [shlex.quote(" ".join(word.split())) for word in known or ("python", "train.py")]
    kept = list(words)
    while len(" ".join(kept)) > LONGEST_COMMAND and len(kept) > 1:
        kept.pop()
    return " ".join(["monitor run --", *kept, *(["…"] if kept != words else [])])


def without_framework(target: Target) -> Refusal | None:
    """Return why there is nothing to measure inside this process (yet)."""
    who = target.identity
    if who is None or who.frameworks is None or who.has_framework:
        return None
    return Refusal(
        f"Process {target.pid} has neither JAX nor PyTorch nor TensorFlow loaded (yet).",
        "Attached to, it is entered as soon as it loads one.",
    )


def yama(target: Target, *, as_parent: bool) -> Refusal | None:
    """Return why the kernel's Yama keeps us out; ``as_parent``: our own children may be traced."""
    scope = (target.fs.text(YAMA) or "0").strip()
    again = run_instead(target)
    if scope == "3":
        return Refusal(
            "This machine lets no one into a running process (kernel.yama.ptrace_scope is 3, until "
            "the next boot).",
            f"Start the job with the agent inside: {again}",
        )
    allowed = may_trace(target.fs) or (scope == "1" and as_parent and _is_our_child(target))
    if scope in {"1", "2"} and not allowed:
        return Refusal(
            f"This machine lets only root into a running process (kernel.yama.ptrace_scope is "
            f"{scope}).",
            f"{as_root(target)}   or: sudo sysctl kernel.yama.ptrace_scope=0   or: {again}",
        )
    return None


def may_trace(fs: ProcFs) -> bool:
    """Tell whether we hold CAP_SYS_PTRACE."""
    return bool(int(fs.fields("self/status").get("CapEff", "0"), 16) >> SYS_PTRACE & 1)


def lacks_right(target: Target) -> Refusal:
    """Say why even root may not read a process's memory."""
    return Refusal(
        f"The memory of process {target.pid} is closed even to root: this container lacks "
        "SYS_PTRACE.",
        f"Start the container with --cap-add SYS_PTRACE, or: {run_instead(target)}",
    )


def _is_our_child(target: Target) -> bool:
    pid = target.pid
    while pid > 1 and (stat := target.fs.stat(pid)) is not None:
        pid = stat.parent
        if pid == os.getpid():
            return True
    return False


def as_root(target: Target) -> str:
    """Return the command that attaches as root."""
    return paths.as_root(f"attach {target.pid}")


def _gone(target: Target) -> Refusal | None:
    stat = target.fs.stat(target.pid)
    if stat is None:
        return Refusal(f"Process {target.pid} has ended.", _SEE)
    if stat.start_ticks != target.key.start_ticks:
        return Refusal(f"Process {target.pid} has ended; another one has its pid now.", _SEE)
    if stat.has_ended:
        return Refusal(
            f"Process {target.pid} has ended; parent {stat.parent} keeps it as a zombie.", _SEE
        )
    return None


def _foreign(target: Target) -> Refusal | None:
    uid = target.uid
    if os.geteuid() in {0, uid} or uid is None:
        return None
    who = target.identity
    owner = who.user if who is not None else str(uid)
    return Refusal(
        f"Process {target.pid} belongs to {owner}, not to you.",
        f"Attach as that user or as root: {as_root(target)}",
    )


def _traced(target: Target) -> Refusal | None:
    tracer = target.fs.tracer(target.pid)
    if not tracer:
        return None
    stat = target.fs.stat(tracer)
    return Refusal(
        f"Process {target.pid} is already traced by {tracer} ({stat.name if stat else '?'}).",
        f"End that first, then: monitor attach {target.pid}",
    )


def _stopped(target: Target) -> Refusal | None:
    stat = target.fs.stat(target.pid)
    if stat is None or not stat.is_stopped:
        return None
    return Refusal(
        f"Process {target.pid} is stopped (Ctrl-Z or kill -STOP).",
        f"Let it go on: kill -CONT {target.pid}   then: monitor attach {target.pid}",
    )


def _waits(target: Target) -> Refusal | None:
    stat = target.fs.stat(target.pid)
    if stat is None or stat.state != "D":
        return None
    return Refusal(
        f"Process {target.pid} waits for a disk, a network drive or a driver and cannot be "
        "interrupted.",
        f"Try again when it goes on: monitor attach {target.pid}",
    )


def _closed(target: Target) -> Refusal | None:
    if target.maps and target.exe is not None:
        return None
    if os.geteuid() == 0 and not may_trace(target.fs):
        return lacks_right(target)
    return Refusal(
        f"The memory of process {target.pid} is protected: it may not be looked into.",
        f"{as_root(target)}   or: {run_instead(target)}",
    )


def _not_python(target: Target) -> Refusal | None:
    files = {target.exe or "", *(target.files or ())}
    if any(PYPY.search(f) for f in files):
        return Refusal(
            f"Process {target.pid} runs PyPy; the agent needs CPython.",
            f"Watch it from outside: monitor attach {target.pid} --observe",
        )
    if target.python is None and not any(_PYTHON_PROGRAM.search(f) for f in files):
        name = (target.exe or "?").rpartition("/")[2]
        return Refusal(
            f"Process {target.pid} ({name}) is no Python process.",
            f"Watch it from outside: monitor attach {target.pid} --observe",
        )
    return None


def _too_old(target: Target) -> Refusal | None:
    if target.python is None or target.python >= OLDEST_PYTHON:
        return None
    needed, found = (".".join(map(str, v)) for v in (OLDEST_PYTHON, target.python))
    return Refusal(
        f"Process {target.pid} runs Python {found}; the agent needs {needed} or newer.",
        f"Watch it from outside: monitor attach {target.pid} --observe",
    )


def _no_folder(target: Target) -> Refusal | None:
    root = f"{target.fs.root}/{target.pid}/root"
    if any(_takes_files(f"{root}{folder}", target.uid) for folder in wire.FOLDERS):
        return None
    return Refusal(
        f"Process {target.pid} has no folder for the agent's files: none of "
        f"{', '.join(wire.FOLDERS)} is there and writable for its user.",
        "Give it one, such as: mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
    )


def _takes_files(folder: str, uid: int | None) -> bool:
    """Tell whether a user may write there; assumes so where that cannot be checked."""
    try:
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return False
        found = Path(folder).stat()
    except PermissionError:
        return True
    except OSError:
        return False
    mode = found.st_mode
    return uid == 0 or bool(mode & 0o022) or (found.st_uid == uid and bool(mode & 0o200))


_CHECKS: tuple[Callable[[Target], Refusal | None], ...] = (
    _gone,
    _foreign,
    _traced,
    _stopped,
    _waits,
    _closed,
    _not_python,
    _too_old,
    _no_folder,
)
