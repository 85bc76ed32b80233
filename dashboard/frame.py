"""What stands around every page: which run, which stretch of it, live or not, and help."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, Final

import streamlit as st

from whyidle.dashboard import run_picker, settings, sidebar, store_reader, widgets
from whyidle.dashboard.views import time_range as spans
from whyidle.dashboard.views.time_range import Span
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.store import Reader, Run

# Where nothing can be shown it is tried again: a recording may begin at any moment.
AGAIN_SECONDS: Final = 2.0
_DEFECT: Final = "This part of the page could not be drawn"


@dataclass(frozen=True, slots=True)
class Face:
    """What of a run stands around the pages: what is drawn of it is compared with what is."""

    is_recording: bool
    ended_ms: int | None
    label: str | None
    script: str | None
    framework: str | None

    @classmethod
    def of(cls, run: Run) -> Face:
        """Return that of a run as of now: whether it is recorded its recorder's life says."""
        return cls(run.is_recording, run.ended_ms, run.label, run.script, run.framework)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the reader has chosen to see."""

    reader: Reader
    run: Run
    range: str
    everything: bool
    # When the reader stopped it; ``None``: it moves.
    paused_ms: int | None = None
    # The run as it stood when the page was drawn: a run that is asked again tells how it is now.
    face: Face | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the reader stopped it."""
        return self.paused_ms is not None

    @property
    def every(self) -> float | None:
        """How often the page is read anew; never, where nothing moves."""
        return None if self.is_paused else self.beat

    @property
    def beat(self) -> float | None:
        """How often it is looked whether the run still is what was drawn, also where that rests."""
        face = self.face or Face.of(self.run)
        return settings.current().refresh_seconds if face.is_recording else None

    def span(self) -> Span:
        """Return the stretch of time that is shown, as of now."""
        now_ms = self.paused_ms or time.time_ns() // 1_000_000
        return spans.of(self.reader, self.run, self.range, now_ms)

    def now(self) -> Shown:
        """Return the same with the run as it stands now; what has changed all of it starts anew."""
        reader = store_reader.reader()
        run = reader.run(self.run.id)
        if reader is not self.reader or (run and self.face and Face.of(run) != self.face):
            st.rerun()
        if run is None:
            raise run_picker.gone(str(self.run.id))
        return replace(self, run=run)


def chosen() -> Shown | None:
    """Draw the choices, and return what was chosen, or say why there is nothing to draw."""
    shown: Shown | None = _guarded(choose)
    if shown is None:
        widgets.note("The page is drawn by itself as soon as there is something to show.")
        st.fragment(_try_again, run_every=AGAIN_SECONDS)()
    return shown


def page(draw: Callable[[Shown], None], shown: Shown) -> None:
    """Draw a page of what is chosen; where that fails, a sentence stands in its place."""
    _guarded(lambda: draw(shown))


def live(
    draw: Callable[[Shown], None], shown: Shown, every: float | EllipsisType | None = ...
) -> None:
    """Draw a part of a page that is drawn anew by itself; its failures stay its own.

    As often as the page, if not said; never, where it is ``None``.
    """

    def part() -> None:
        _guarded(lambda: draw(shown.now()))

    part.__qualname__ = f"live {draw.__module__}.{draw.__qualname__}"
    st.fragment(part, run_every=shown.every if every is ... else every)()


def still(draw: Callable[[Shown], None], shown: Shown) -> None:
    """Draw a part of a page that moves only when the reader moves it; its failures stay its own."""

    def part() -> None:
        _guarded(lambda: draw(shown.now()))

    part.__qualname__ = f"still {draw.__module__}.{draw.__qualname__}"
    st.fragment(part)()


def _guarded(draw: Callable[[], Any]) -> Any:
    """Draw something; where it fails, a sentence stands in its place."""
    try:
        return draw()
    except Problem as problem:
        widgets.unknown("There is nothing to show", problem.what, problem.next_step)
    except sqlite3.Error as error:
        widgets.unknown("There is nothing to show", f"the store could not be read: {error}")
    except Exception as error:
        # A damaged row must not cost the page; who started us reads the rest in the log.
        logging.getLogger(__name__).exception(_DEFECT)
        widgets.unknown(_DEFECT, f"{type(error).__name__}: {error}", "monitor doctor")
    return None


def _try_again() -> None:
    try:
        has_runs = bool(store_reader.reader().runs())
    except (Problem, sqlite3.Error):
        return
    if has_runs and not run_picker.is_chosen():
        st.rerun()


def choose() -> Shown:
    """Draw the choices, and return what was chosen. A ``Problem`` says that nothing is there."""
    reader = store_reader.reader()
    with st.sidebar:
        run = run_picker.picked(reader)
        face = Face.of(run)
        name = st.segmented_control(
            "Time range",
            list(spans.RANGES),
            default="5m" if face.is_recording else spans.ALL,
            key="range",
            bind="query-params",
        )
        everything = st.toggle("All GPUs of the machine", key="all", bind="query-params")
        paused_ms = _paused() if face.is_recording else None
    shown = Shown(reader, run, name or spans.ALL, everything, paused_ms, face)
    with st.sidebar:
        live(lambda now: sidebar.run(now.reader, now.run), shown, shown.beat)
        sidebar.label(run)
    return shown


def _paused() -> int | None:
    """Return when the reader stopped the page; ``None``: it moves."""
    if not st.toggle("Pause", key="paused"):
        st.session_state.pop("paused_ms", None)
        return None
    now_ms = time.time_ns() // 1_000_000
    return int(st.session_state.setdefault("paused_ms", now_ms))
