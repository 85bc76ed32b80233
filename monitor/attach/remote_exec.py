"""Rung 1: Python 3.14's own interface for debuggers (PEP 768): no stop, whatever Python we run on.

A table at the start of ``_PyRuntime`` says where things lie. A script's path and a flag are written
into the main thread's state; the main thread runs the script between two of its own instructions.
While it sleeps outside of Python it does not: then the request is taken back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from whyidle.agents import wire
from whyidle.monitor.attach import precheck
from whyidle.monitor.attach.answers import NotEntered, Refusal
from whyidle.monitor.attach.debug_offsets import Runtime, Unfit, runtime_of
from whyidle.monitor.attach.staged_script import StagedScript
from whyidle.monitor.processes.target import Target

PYTHON = (3, 14)
# Most jobs check their flags by themselves before long; the others are prompted.
UNPROMPTED_SECONDS = 0.02
POLL_SECONDS = 0.005
# The main thread only starts another one: a handler of the job's that raises there would be lost.
_SCRIPT = """\
try:
    __import__("_thread").start_new_thread(__import__("builtins").exec, ({reader!r}, {{}}))
except BaseException:
    pass
"""
# It removes both files: that shows us that it ran, and nothing stays if we end before it does.
_READER = """\
try:
    import os
    with open({text!r}, "rb") as file:
        source = file.read()
    os.unlink({text!r})
    os.unlink({script!r})
    exec(source, {{"__name__": "__main__"}})
except BaseException:
    pass
"""
PROMPT_EVERY_SECONDS = 0.05
# How long a job that has read our request may take to open the script.
TAKEN_SECONDS = 5.0


def refusal(target: Target) -> Refusal | None:
    """Return why this interface is closed; reads the process's table, writes nothing."""
    if target.python is None or target.python < PYTHON:
        version = ".".join(map(str, target.python)) if target.python else "unknown"
        return Refusal(f"It runs Python {version}; this method came with 3.14.")
    if target.python != PYTHON:
        version = ".".join(map(str, target.python))
        return Refusal(f"It runs Python {version}; this method is known for 3.14 alone so far.")
    if (barred := precheck.yama(target, as_parent=True)) is not None:
        return barred
    try:
        with runtime_of(target, write=False) as runtime:
            return _closed(runtime)
    except Unfit as unfit:
        return Refusal(f"Its interpreter cannot be asked: {unfit}.")


def enter(target: Target, source: str, timeout: float = 2.0) -> tuple[float, ...]:
    """Have the main thread run the source; returns when it began, or raises ``NotEntered``."""
    try:
        with runtime_of(target, write=True) as runtime:
            if (closed := _closed(runtime)) is not None:
                raise NotEntered(closed)
            _send(target, runtime, source, timeout)
    except Unfit as unfit:
        raise NotEntered(Refusal(f"Its interpreter cannot be asked: {unfit}.")) from None
    return ()


def _closed(runtime: Runtime) -> Refusal | None:
    if not runtime.enabled():
        return Refusal("The job was started with remote debugging disabled.")
    if runtime.pending():
        return Refusal("Another program has asked the job to run something, and it has not yet.")
    return None


def _send(target: Target, runtime: Runtime, source: str, timeout: float) -> None:
    with contextlib.ExitStack() as cleanup:
        text = _stage(target, f"{target.own_pid}.text", lambda _: source)
        cleanup.callback(text.close)
        # By then the text was read, or never will be.
        cleanup.callback(text.remove)
        staged = _stage(target, f"{target.own_pid}.py", lambda path: script(text.path, path))
        cleanup.callback(staged.close)
        _ask(target, runtime, staged, timeout)


def script(text: str, path: str) -> str:
    """Return what the main thread runs so that a file's text runs; ``path`` is the script's own."""
    return _SCRIPT.format(reader=_READER.format(text=text, script=path))


def _stage(target: Target, name: str, text: Callable[[str], str]) -> StagedScript:
    staged = StagedScript.stage(target, name, text)
    if staged is None:
        folders = ", ".join(wire.FOLDERS)
        raise NotEntered(Refusal(f"The job has no folder that a script can be laid in: {folders}."))
    return staged


def _ask(target: Target, runtime: Runtime, staged: StagedScript, timeout: float) -> None:
    """Ask, prompt, and wait until the script runs; else take the request back for good."""
    try:
        runtime.request(staged.path)
        if _prompted(runtime, staged, timeout):
            return
        if runtime.take_back(staged.path):
            staged.remove()
            raise NotEntered(
                Refusal(
                    f"The main thread of process {target.pid} did not come by within {timeout:g} s:"
                    " it sleeps or works outside of Python."
                )
            )
    except (Unfit, OSError):
        # It has ended, or runs another program: nobody will read the file.
        staged.remove()
        raise
    # Taken, so the file must stay until it was read: a job complains of a missing script.
    if not _gone(staged, TAKEN_SECONDS):
        raise NotEntered(Refusal(f"Process {target.pid} took the script and did not run it."))


def _prompted(runtime: Runtime, staged: StagedScript, timeout: float) -> bool:
    began = prompted = time.monotonic()
    while (now := time.monotonic()) - began < timeout:
        if not staged.is_there():
            return True
        if now - began > UNPROMPTED_SECONDS and now >= prompted and runtime.pending():
            runtime.prompt()
            prompted = now + PROMPT_EVERY_SECONDS
        time.sleep(POLL_SECONDS)
    return False


def _gone(staged: StagedScript, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while staged.is_there() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return not staged.is_there()
