"""Rung 2, the built-in injector: ptrace on x86-64. The tracer is a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import Any

from whyidle.monitor.attach.answers import NotEntered, Refusal
from whyidle.monitor.attach.precheck import as_root, lacks_right, may_trace, run_instead, yama
from whyidle.monitor.attach.ptrace import maps
from whyidle.monitor.attach.ptrace.interpreter import find
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import Refused, again
from whyidle.monitor.attach.ptrace.region import borrowed
from whyidle.monitor.processes.target import Target

MACHINE = "x86_64"
_STRICT_SECCOMP = "1"
# What starting the tracer may take on a busy machine.
_START_SECONDS = 5.0
# -P: the folder that the monitor was started in is no place to import from.
TRACER = (sys.executable, "-P", "-m", "whyidle.monitor.attach.tracer")


def refusal(target: Target) -> Refusal | None:
    """Return why it cannot be used, judged by /proc alone; nothing is touched."""
    try:
        return _unknown_kind(target) or yama(target, as_parent=False) or _program(target)
    except Refused as refused:
        return Refusal(refused.refusal.what, refused.refusal.next_step or _start(target))


def _unknown_kind(target: Target) -> Refusal | None:
    if platform.machine() != MACHINE:
        return Refusal(
            f"The injector knows {MACHINE} only; this machine is {platform.machine()}.",
            _start(target),
        )
    if "shstk" in target.status.get("x86_Thread_features", "").split():
        return Refusal("It keeps a shadow stack, which the injector does not know.", _start(target))
    if target.status.get("Seccomp") == _STRICT_SECCOMP:
        return Refusal("It may make no system calls (strict seccomp).", _start(target))
    return None


def _program(target: Target) -> Refusal | None:
    """Look for the interpreter in its memory.

    Who may open it may also trace the process: the kernel checks the same permission. Opening
    does nothing to the process.
    """
    if target.maps is None or target.exe is None:
        return _forbidden(target)
    memory_map = maps.parse(target.maps)
    try:
        with Memory(target.pid, root=target.fs.root) as memory:
            borrowed(memory_map, find(memory_map, target.exe, memory.read).libc, memory)
    except PermissionError:
        return _forbidden(target)
    except OSError as error:
        return Refusal(f"Its memory cannot be read: {error}.", again(target.pid))
    return None


def _forbidden(target: Target) -> Refusal:
    """Say which protection of the system forbids it."""
    if os.geteuid() != 0:
        return Refusal(
            f"Process {target.pid} is protected from being traced by its own user.", as_root(target)
        )
    if may_trace(target.fs):
        return Refusal(
            f"Process {target.pid} is protected even from root (a security module).", _start(target)
        )
    return lacks_right(target)


def _start(target: Target) -> str:
    return f"Start the job with the agent inside: {run_instead(target)}"


def enter(target: Target, source: str, timeout: float = 5.0) -> tuple[float, ...]:
    """Have the job run a text; return each stop in ms."""
    request = {
        "pid": target.pid,
        "start_ticks": target.key.start_ticks,
        "source": source,
        "timeout": timeout,
    }
    answer = _ask(json.dumps(request), timeout + _START_SECONDS, target.pid)
    if "what" in answer:
        next_step = str(answer["next_step"]) or _start(target)
        raise NotEntered(Refusal(str(answer["what"]), next_step))
    if not answer["done"]:
        raise NotEntered(_queued(str(answer["mode"]), timeout, target.pid))
    return tuple(float(ms) for ms in answer["stops"])


def _queued(mode: str, timeout: float, pid: int) -> Refusal:
    who = "Its main thread" if mode == "pending" else "A thread of it"
    return Refusal(
        f"{who} has kept Python to itself for {timeout:g} s: mostly that is C code. "
        "The agent comes in as soon as that is over.",
        again(pid),
    )


def _ask(request: str, timeout: float, pid: int) -> dict[str, Any]:
    with subprocess.Popen(  # noqa: S603  our own interpreter and module
        TRACER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C and a hang-up of the terminal must not reach it.
        start_new_session=True,
    ) as tracer:
        try:
            said, errors = tracer.communicate(request + "\n", timeout=timeout)
        except subprocess.TimeoutExpired:
            # At whatever step the tracer was, this does not harm the job.
            tracer.kill()
            raise NotEntered(
                Refusal(f"The tracer did not answer in {timeout:g} s and was ended.", again(pid))
            ) from None
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        why = errors.strip().splitlines()[-1:] or [f"exit code {tracer.returncode}"]
        raise NotEntered(
            Refusal(f"The tracer ended without an answer ({why[0]}).", again(pid))
        ) from None
    return answer
