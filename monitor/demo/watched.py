"""One demo run as a user would run it: under ``monitor run``, in processes of its own.

Whatever becomes of it, nothing is left behind: the recorder ends the job and then the recording,
and what has not ended by then is ended by its group, which is ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.interrupts import handled
from whyidle.monitor.demo.pairs import interpreter
from whyidle.monitor.demo.printed import printed

# A demo is short: its trace comes as soon as it is warm, and may take more of its time.
TRACES: Final = ("--first-trace", "3", "--trace-share", "0.1")
NO_TRACES: Final = ("--no-trace",)
# What ends a demo early.
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Beyond the time that it was given: to start, to compile, to be diagnosed.
PATIENCE: Final = 180.0
BETWEEN: Final = 0.2
# A recorder that was asked to end reads the job's last records and closes its store.
TO_END: Final = 15.0
TOLD_OF_FAILURE: Final = 8


@dataclass(frozen=True, slots=True)
class Watched:
    """What a run came to."""

    run: int
    script: Path
    # As the program says itself.
    step_ms: float | None
    samples_per_s: float | None


class Stopped(BaseException):
    """A run was cut; it holds the number of what was recorded, if anything was."""

    def __init__(self, run: int | None) -> None:
        super().__init__()
        self.run = run


class Failed(Problem):
    """A demo failed or took too long; it holds the number of what was recorded, if anything was."""

    def __init__(self, what: str, next_step: str, run: int | None) -> None:
        super().__init__(what, next_step)
        self.run = run


def watch(
    script: Path,
    seconds: float,
    label: str,
    progress: Callable[[float], None] | None = None,
    *,
    traces: Sequence[str] = TRACES,
) -> Watched:
    """Run one program watched. ``progress`` is called now and then with its seconds so far."""
    # A file of the folder that we are called from must not stand for a module.
    monitor = [sys.executable, "-P", "-m", "whyidle.monitor", "run", "--json", "--label", label]
    program = [interpreter(script), str(script), "--seconds", f"{seconds:g}"]
    with _put_off() as came:
        child = subprocess.Popen(  # noqa: S603  our own program
            [*monitor, *traces, "--", *program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A Ctrl-C of the terminal is for us: we end them, in the right order.
            start_new_session=True,
        )
    with child:
        try:
            _heed(came)
            out, err = _wait(child, seconds + PATIENCE, progress)
        except BaseException as error:
            run = _end(child)
            if isinstance(error, Problem):
                raise Failed(error.what, error.next_step, run) from None
            if isinstance(error, Exception):
                raise
            raise Stopped(run) from error
    return _told(script, child.returncode, out, err)


@contextlib.contextmanager
def _put_off() -> Iterator[list[int]]:
    """Put signals off while a child is started: one that came in between would lose it."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    with handled(ENDING, note):
        yield came


def _heed(came: Sequence[int]) -> None:
    if came:
        raise KeyboardInterrupt


def _wait(
    child: subprocess.Popen[str], longest: float, progress: Callable[[float], None] | None
) -> tuple[str, str]:
    began = time.monotonic()
    while True:
        try:
            return child.communicate(timeout=BETWEEN)
        except subprocess.TimeoutExpired:
            spent = time.monotonic() - began
            if spent > longest:
                what = f"A demo did not end in {longest:.0f} s and was stopped."
                raise Problem(what, "Give the machine less to do, then try again.") from None
            if progress is not None:
                progress(spent)


def _end(child: subprocess.Popen[str]) -> int | None:
    """End the job, its recorder, and whatever they started; returns the run that is cut."""
    with contextlib.suppress(BaseException):
        # The recorder passes it on to the job, whose end is the recording's.
        child.terminate()
        _await(child.pid)
    # Its leader is not reaped yet: nobody else can have this number.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return _run(child.communicate(timeout=BETWEEN)[0])
    return None


def _await(pid: int) -> None:
    """Wait until a child has ended, and leave it to be reaped."""
    deadline = time.monotonic() + TO_END
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while time.monotonic() < deadline and os.waitid(os.P_PID, pid, how) is None:
        time.sleep(BETWEEN / 4)


def _told(script: Path, code: int, out: str, err: str) -> Watched:
    run = _run(out)
    if code or run is None:
        said = [line for line in err.splitlines() if line.strip()][-TOLD_OF_FAILURE:]
        what = f"ended with code {code}" if code else "was not recorded"
        raise Failed(
            f"{script.name} {what}:\n" + "\n".join(f"    {line}" for line in said),
            f"Run it alone: {interpreter(script)} {script} --seconds 5",
            run,
        )
    return Watched(run, script, **printed(err))


def _run(out: str) -> int | None:
    """Return the number of the recording, as its summary says it."""
    try:
        return int(json.loads(out)["run"])
    except ValueError:
        return None
