"""Tries that a reader of the page has started: one a job, each a process of ours.

It is the same command that a person types, so all of its guards hold: it takes the change back when
it ends, is interrupted or killed, and so does the job's agent when this server is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.paths import VARIABLE
from whyidle.monitor.render.escape import printable
from whyidle.monitor.store import Run

_MONITOR: Final = (sys.executable, "-P", "-m", "whyidle.monitor")
_MOST_WORDS: Final = 600


@dataclass
class Started:
    """A try that runs, or has ended."""

    knob: str
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    _words: str | None = field(default=None, init=False)

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.process.poll() is None

    @property
    def failure(self) -> str | None:
        """Why it ended without an answer; ``None``: it goes on, has one, or was stopped."""
        if self.process.poll() in {None, Exit.OK, Exit.INTERRUPTED, -signal.SIGINT}:
            return None
        if self._words is None:
            self.said.seek(0)
            self._words = printable(self.said.read(_MOST_WORDS).decode("utf-8", "replace"))
            self.said.close()
        return self._words or f"it ended with code {self.process.returncode}"


_started: dict[int, Started] = {}
_lock: Final = threading.Lock()


def of(run: int) -> Started | None:
    """Return the try that was started from here in a run's job, the last one."""
    return _started.get(run)


def start(store: Path, run: Run, knob: str) -> None:
    """Start one, unless one goes on."""
    with _lock:
        before = _started.get(run.id)
        if run.target_pid is None or (before is not None and before.is_running):
            return
        if before is not None:
            before.said.close()
        said: Any = tempfile.TemporaryFile()  # noqa: SIM115  for as long as it runs
        process = subprocess.Popen(  # noqa: S603  our own Python, a knob of our own table
            [*_MONITOR, "try", str(run.target_pid), knob],
            env={**os.environ, VARIABLE: str(store.parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        _started[run.id] = Started(knob, process, said)


def stop(run: int) -> None:
    """End it as Ctrl-C does: the job is then as it was."""
    found = _started.get(run)
    if found is not None and found.is_running:
        found.process.send_signal(signal.SIGINT)


def stop_all() -> None:
    """End all of them; each takes its change back by itself."""
    for run in list(_started):
        stop(run)
