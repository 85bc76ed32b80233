"""Progress while a long file is read, shown to people who have waited."""

from __future__ import annotations

import io
import time

import pytest

from whyidle.monitor.render import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_people_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    terminal, pipe = Terminal(), io.StringIO()
    with progress.Progress("x.json", terminal) as soon, progress.Progress("x.json", pipe) as piped:
        for used in (10, 20, 30):
            now[0] += 0.9
            soon(used, 40)
            piped(used, 40)
    shown = [text for text in terminal.getvalue().split("\r\033[K") if text]
    assert shown == ["reading x.json  50%", "reading x.json  75%"]
    assert terminal.getvalue().endswith("\r\033[K")
    assert pipe.getvalue() == ""


def test_a_quick_file_shows_no_progress() -> None:
    terminal = Terminal()
    with progress.Progress("x.json", terminal) as quick:
        quick(1, 2)
    assert terminal.getvalue() == ""


def test_the_line_is_short_and_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0)
    terminal = Terminal()
    with progress.Progress("\x1b]0;" + "x" * 500, terminal) as long:
        long(1, 2)
    assert len(terminal.getvalue().strip()) < 80
    assert "\x1b]" not in terminal.getvalue()
