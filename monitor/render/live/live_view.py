"""The live view on a terminal: drawn at each tick, and when a key is pressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.live import keyboard, screen, title, view
from whyidle.monitor.render.live.history import History
from whyidle.monitor.render.live.keyboard import Keyboard
from whyidle.monitor.render.live.pages import Page
from whyidle.monitor.render.live.view import View

ASKED: Final = "A trace is asked for: it comes as soon as the job allows."
# So long an answer stays on the screen.
ANSWERED: Final = 10.0


class LiveView:
    """A screen that is redrawn at each tick, and answers keys."""

    def __init__(self, *, everything: bool, console: Console | None = None) -> None:
        self._everything = everything
        # A line that the caller wants to keep on the screen.
        self.note: str | None = None
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._started = False
        self._history = History()
        self._keyboard = Keyboard()
        self._has_keys = False
        self._stop: Callable[[], None] = lambda: None
        self._trace: Callable[[], object] = lambda: None
        self._snapshot: Snapshot | None = None
        self._view: View | None = None
        self._paused = False
        self._page: Page | None = None
        self._scrolled = 0
        # What the last key came to, and until when that is news.
        self._answer = ("", 0.0)

    def tick(self, snapshot: Snapshot) -> None:
        """Draw one tick."""
        self._history.remember(snapshot)
        self._snapshot = snapshot
        if not self._paused or self._view is None:
            self._view = view.of(snapshot, self._history, everything=self._everything)
        if not self._started:
            self._live.start()
            self._started = True
        self._draw()

    def listen(self, stop: Callable[[], None], trace: Callable[[], object]) -> int | None:
        """Return the descriptor on which keys come, and what they ask for; ``None``: no keys."""
        self._stop, self._trace = stop, trace
        handle = self._keyboard.open()
        self._has_keys = handle is not None
        return handle

    def pressed(self) -> bool:
        """Answer what was pressed; ``False``: nobody presses any more."""
        keys = self._keyboard.read()
        for key in keys or ():
            self._press(key)
        if keys and self._started:
            self._draw()
        return keys is not None

    def close(self) -> None:
        """Restore the terminal."""
        self._keyboard.close()
        if self._started:
            self._live.stop()

    def page(self) -> Group:
        """Return the whole screen."""
        if self._view is None:
            return Group()
        width, height = self._console.size
        keys = (title.ON_A_PAGE if self._page else title.KEYS) if self._has_keys else ()
        answer, until = self._answer
        answer = answer if self._snapshot and self._snapshot.elapsed < until else ""
        foot = title.foot(self.note, answer, width, keys=keys)
        if self._page is None:
            return Group(*screen.main(self._view, (width, height), foot, paused=self._paused))
        lines, most = screen.page(self._page, self._view, (width, height), foot, self._scrolled)
        self._scrolled = min(self._scrolled, most)
        return Group(*lines)

    def _draw(self) -> None:
        self._live.update(self.page(), refresh=True)

    def _press(self, key: str) -> None:
        if key in {"q", keyboard.ESCAPE} and self._page is not None:
            self._page = None
        elif key in {keyboard.UP, keyboard.DOWN}:
            self._scrolled = max(0, self._scrolled + (1 if key == keyboard.DOWN else -1))
        elif key in set(Page):
            self._page = None if self._page == key else Page(key)
            self._scrolled = 0
        elif key == "p":
            self._paused = not self._paused
        elif key == "t":
            self._ask_trace()
        elif key == "q":
            self._stop()

    def _ask_trace(self) -> None:
        if self._snapshot is None:
            return
        try:
            self._trace()
            said = ASKED
        except Problem as problem:
            said = printable(f"{problem.what} {problem.next_step}".rstrip())
        self._answer = (said, self._snapshot.elapsed + ANSWERED)
