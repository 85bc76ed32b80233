"""``attach --dashboard``: the web page beside a recording, which goes on whatever becomes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import click

from whyidle.monitor.app.dashboard_process import Beside, check_installed
from whyidle.monitor.app.xprof import has_screen
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.recording.session import Screen
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render.console import say


@runtime_checkable
class Noting(Protocol):
    """A screen that fills the terminal, and has a place for a word of ours."""

    note: str | None


class _Telling:
    """A screen that also shows how the page is doing."""

    def __init__(self, screen: Screen, page: Beside) -> None:
        self._screen, self._page = screen, page

    def tick(self, snapshot: Snapshot) -> None:
        """Show one tick."""
        if news := self._page.news():
            if isinstance(self._screen, Noting):
                self._screen.note = news
            else:
                click.echo(news, err=True)
        self._screen.tick(snapshot)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._screen.close()


class Opened:
    """The screen of a recording, and the page beside it where there is one."""

    def __init__(self, screen: Screen, page: Beside | None = None) -> None:
        self.screen = screen
        self._page = page

    def stay(self, run: int, *, may_wait: bool) -> None:
        """After the recording: leave the page for as long as somebody is there to look at it."""
        link = None if self._page is None else self._page.stay()
        if self._page is None or link is None:
            return
        if not may_wait:
            click.echo(f"The dashboard has ended. Open it again: monitor dashboard {run}", err=True)
            return
        # Ctrl-C ends the page alone: how the recording went, its exit code says as ever.
        with contextlib.suppress(KeyboardInterrupt):
            click.echo(f"The dashboard stays until Ctrl-C: {link}", err=True)
            self._page.wait()


@contextlib.contextmanager
def beside(screen: Screen, *, wanted: bool) -> Iterator[Opened]:
    """Start the page, and end it; return a screen that shows its link. Without it there is none."""
    if not wanted:
        yield Opened(screen)
        return
    try:
        check_installed()
        page = Beside(["--browser"] if has_screen() else [])
    except Problem as problem:
        say(f"{problem.what} The recording goes on without it.", problem.next_step)
        yield Opened(screen)
        return
    except OSError as error:
        say(f"The dashboard cannot be started: {error}. The recording goes on without it.")
        yield Opened(screen)
        return
    with page:
        yield Opened(_Telling(screen, page), page)


def nowhere_to_say() -> UsageProblem:
    """Return why a recording in the background has no page of its own."""
    return UsageProblem(
        "In the background the link of the dashboard would not be shown.",
        "Open it when you want to look: monitor dashboard",
    )
