"""Magics for notebooks: ``%load_ext whyidle``, then ``%%whyidle`` and ``%whyidle live``.

The kernel is watched as any job is, by a recorder that is a process of its own; all of it goes
through the command. The kernel's own part is to show what comes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
from typing import Any, Final

from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import Markdown, display

# A recording looks anew every few seconds; a look costs a third of a second beside the kernel.
EVERY_SECONDS: Final = 10.0
_SET_PTRACER: Final = 0x59616D61
_ANYBODY: Final = ctypes.c_ulong(-1)
_HELP: Final = (
    "A cell: %%whyidle    The kernel from now on: %whyidle live    Its end: %whyidle stop"
)


# They have no types.
_page: Any = Markdown
_show: Any = display


class _FailedError(Exception):
    """What the command said instead of an answer."""


def _monitor(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "whyidle.monitor", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise _FailedError(done.stderr.strip())
    return done.stdout


def _let_in(who: object) -> None:
    """Let a process that we start look into this one, where yama allows only parents to."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PTRACER, who, 0, 0, 0)


class _Recording:
    """A recording of this kernel."""

    def __init__(self) -> None:
        _let_in(_ANYBODY)
        said = json.loads(_monitor("attach", str(os.getpid()), "--background", "--json"))
        _let_in(ctypes.c_ulong(said["recorder_pid"]))
        self.run = str(said["run"])

    def findings(self) -> Any:
        """Return what is known by now."""
        return _page(_monitor("diagnose", self.run, "--format", "markdown"))

    def end(self) -> None:
        """End it; it may have ended by itself."""
        with contextlib.suppress(_FailedError):
            _monitor("stop", self.run)
        _let_in(ctypes.c_ulong(0))


class _Live:
    """Findings under a cell, kept up to date from a thread."""

    def __init__(self) -> None:
        self._recording = _Recording()
        self._shown = _show(_page(f"*Run {self._recording.run} has begun.*"), display_id=True)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="whyidle live", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, and show the last word."""
        self._ending.set()
        self._thread.join()
        self._recording.end()
        self._update()

    def _loop(self) -> None:
        while not self._ending.wait(EVERY_SECONDS):
            self._update()

    def _update(self) -> None:
        try:
            shown = self._recording.findings()
        except _FailedError as failed:
            shown = _page(f"    {failed}")
        if self._shown is not None:
            self._shown.update(shown)


@magics_class
class WhyidleMagics(Magics):
    """``%%whyidle`` and ``%whyidle``."""

    live: _Live | None = None

    @line_cell_magic
    def whyidle(self, line: str, cell: str | None = None) -> None:
        """Say what leaves the GPU idle: in a cell, or from now on (`live`, `stop`)."""
        try:
            if cell is not None:
                self._cell(cell)
            elif line.strip() == "live":
                self._end()
                self.live = _Live()
            elif line.strip() == "stop":
                self._end()
            else:
                print(_HELP)
        except _FailedError as failed:
            print(failed, file=sys.stderr)

    def _cell(self, cell: str) -> None:
        recording = _Recording()
        try:
            shell: Any = self.shell
            shell.run_cell(cell)
        finally:
            recording.end()
        _show(recording.findings())

    def _end(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            live.end()


def load_ipython_extension(shell: Any) -> None:
    """Add the magics."""
    shell.register_magics(WhyidleMagics)
