"""``attach --notify``: tells a program of the user's when a finding of high severity appears.

The program gets one line of JSON on its standard input. It is started without a shell, from a
thread of its own, and ended when it takes too long: a recording waits for nobody.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.diagnosis.debounce import Change
from whyidle.monitor.recording.faults import sentence
from whyidle.monitor.recording.session import Screen
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render.console import say
from whyidle.monitor.render.jsonl import line
from whyidle.monitor.runs.summary import RunSummary

# A notice that takes longer has reached nobody.
LONGEST_SECONDS: Final = 30.0
# A finding that goes and comes again is not said again before this.
AGAIN_SECONDS: Final = 3600.0
# Notices that wait for the program; what comes on top is left out.
MOST_WAITING: Final = 8
# For what is on its way when a recording ends.
END_SECONDS: Final = 3.0


def arguments(command: str) -> list[str]:
    """Return the words of a command; raises a sentence where it cannot be started."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageProblem(f"--notify: {error}: {command}", _EXAMPLE) from None
    if not words or shutil.which(words[0]) is None:
        what = f"--notify: there is no program '{words[0] if words else ''}'."
        raise UsageProblem(what, _EXAMPLE)
    return words


_EXAMPLE: Final = "Name one that reads JSON from its standard input: --notify ~/bin/tell-me"


@dataclass(slots=True)
class _Outcome:
    """How the last notice went that did not go well."""

    failed: str | None = None


def beside(screen: Screen, words: list[str] | None) -> tuple[Screen, Callable[[RunSummary], None]]:
    """Return the screen to record with, and what is to be called with the summary at the end."""
    if words is None:
        return screen, lambda _: None
    telling = Notifying(screen, words)
    return telling, telling.finish


class Notifying:
    """A screen that also tells a program what was found."""

    def __init__(self, screen: Screen, words: list[str]) -> None:
        self._screen = screen
        self._told: dict[str, float] = {}
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._outcome = _Outcome()
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._send_all, args=(words,), name="notifying", daemon=True
        )
        self._thread.start()

    def tick(self, snapshot: Snapshot) -> None:
        """Note what is new, and show the tick."""
        script = snapshot.identity.script if snapshot.identity else None
        self._note(snapshot.findings, snapshot.run, snapshot.ts_ms, script)
        self._screen.tick(snapshot)

    def close(self) -> None:
        """Close the screen."""
        self._screen.close()

    def finish(self, summary: RunSummary | None = None) -> None:
        """Note what only the whole recording shows; give what is on its way a moment."""
        if summary is not None and summary.diagnosis is not None:
            run, found = summary.run, summary.diagnosis.findings
            self._note(found, run.id, run.ended_ms or run.started_ms, run.script)
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(END_SECONDS)
        self._ending.set()
        self._thread.join(1.0)
        if self._outcome.failed:
            say(f"--notify: {self._outcome.failed}")

    def _note(
        self, findings: Iterable[FindingJson], run: int, ts_ms: int, script: str | None
    ) -> None:
        now = time.monotonic()
        for finding in findings:
            rule = finding.rule
            last = self._told.get(rule, float("-inf"))
            if finding.severity == Severity.HIGH and now - last >= AGAIN_SECONDS:
                self._told[rule] = now
                notice: JsonObject = {
                    "event": "finding",
                    "text": sentence(Change("found", finding)),
                    "run": run,
                    "ts_ms": ts_ms,
                    "script": script,
                    "finding": finding,
                }
                with contextlib.suppress(queue.Full):
                    self._waiting.put_nowait(line(notice).encode(errors="replace") + b"\n")

    def _send_all(self, words: list[str]) -> None:
        while not self._ending.is_set() and (notice := self._waiting.get()) is not None:
            try:
                self._send(words, notice)
            except OSError as error:
                self._outcome.failed = f"{words[0]} cannot be started: {error.strerror}."

    def _send(self, words: list[str], notice: bytes) -> None:
        with subprocess.Popen(  # noqa: S603  the user's own program, without a shell
            words,
            stdin=subprocess.PIPE,
            # A terminal that a recording draws on is not the program's.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as program:
            assert program.stdin is not None  # noqa: S101  it is a pipe
            # A finding fits into the pipe: nobody has to read it.
            os.set_blocking(program.stdin.fileno(), False)
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                program.stdin.write(notice)
                program.stdin.flush()
            with contextlib.suppress(OSError):
                program.stdin.close()
            until = time.monotonic() + LONGEST_SECONDS
            while program.poll() is None and time.monotonic() < until:
                if self._ending.wait(0.02):
                    break
            if program.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                self._outcome.failed = f"{words[0]} took too long and was ended."
            elif program.returncode:
                self._outcome.failed = f"{words[0]} ended with {program.returncode}."
