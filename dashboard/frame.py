"""The frame around every page: the run, the time range, live or paused, and error messages."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from whyidle.dashboard import header, run_picker, settings, store_reader, widgets
from whyidle.dashboard.views import time_range
from whyidle.dashboard.views.time_range import TimeRange
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.store import Reader, Run

# If there is nothing to show, try again: a recording may begin at any moment.
AGAIN_SECONDS: Final = 2.0
_DEFECT: Final = "This part of the page could not be drawn"


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The facts about a run around the pages; if they change, everything is redrawn."""

    is_recording: bool
    ended_ms: int | None
    label: str | None
    script: str | None
    framework: str | None

    @classmethod
    def of(cls, run: Run) -> RunHeader:
        """Return the current header; a run is being recorded if its recorder is alive."""
        return cls(run.is_recording, run.ended_ms, run.label, run.script, run.framework)


@dataclass(frozen=True, slots=True)
class PageState:
    """What the user has chosen to see."""

    reader: Reader
    run: Run
    range: str
    everything: bool
    # When the user paused it; ``None``: it is live.
    paused_ms: int | None = None
    # The header when the page was drawn; ``run`` may be newer.
    header: RunHeader | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the user paused the page."""
        return self.paused_ms is not None

    @property
    def every(self) -> float | None:
        """How often the page refreshes; ``None`` if nothing moves."""
        return None if self.is_paused else self.check_every

    @property
    def check_every(self) -> float | None:
        """How often to check for a changed header, also on a paused page."""
        header = self.header or RunHeader.of(self.run)
        return settings.current().refresh_seconds if header.is_recording else None

    def span(self) -> TimeRange:
        """Return the time range to show now."""
        now_ms = self.paused_ms or time.time_ns() // 1_000_000
        return time_range.of(self.reader, self.run, self.range, now_ms)

    def now(self) -> PageState:
        """Return the same with the run as it is now; a changed header redraws everything."""
        reader = store_reader.reader()
        run = reader.run(self.run.id)
        if reader is not self.reader or (run and self.header and RunHeader.of(run) != self.header):
            st.rerun()
        if run is None:
            raise run_picker.gone(str(self.run.id))
        return replace(self, run=run)


def chosen(top: DeltaGenerator) -> PageState | None:
    """Draw the controls, and return the choice, or say why there is nothing to draw.

    ``top``: where to say which run it is.
    """
    shown: PageState | None = _guarded(choose)
    if shown is None:
        widgets.note("The page updates by itself as soon as there is something to show.")
        st.fragment(_try_again, run_every=AGAIN_SECONDS)()
    else:
        with top:
            live(lambda now: header.show(now.reader, now.run), shown, shown.check_every)
    return shown


def page(draw: Callable[[PageState], None], shown: PageState) -> None:
    """Draw a page for the choice; a failure shows as a message in its place."""
    _guarded(lambda: draw(shown))


def alone(draw: Callable[[], None]) -> None:
    """Draw what is of no run; a failure shows as a message in its place."""
    _guarded(draw)


def live(
    draw: Callable[[PageState], None], shown: PageState, every: float | EllipsisType | None = ...
) -> None:
    """Draw a part of a page that refreshes by itself; a failure affects only this part.

    It refreshes as often as the page unless ``every`` says otherwise; never if that is ``None``.
    """

    def part() -> None:
        _guarded(lambda: draw(shown.now()))

    part.__qualname__ = f"live {draw.__module__}.{draw.__qualname__}"
    st.fragment(part, run_every=shown.every if every is ... else every)()


def still(draw: Callable[[PageState], None], shown: PageState) -> None:
    """Draw a part of a page that changes only on user input; a failure affects only this part."""

    def part() -> None:
        _guarded(lambda: draw(shown.now()))

    part.__qualname__ = f"still {draw.__module__}.{draw.__qualname__}"
    st.fragment(part)()


def _guarded(draw: Callable[[], Any]) -> Any:
    """Draw something; a failure shows as a message in its place."""
    try:
        return draw()
    except Problem as problem:
        widgets.unknown("There is nothing to show", problem.what, problem.next_step)
    except sqlite3.Error as error:
        widgets.unknown("There is nothing to show", f"the store could not be read: {error}")
    except Exception as error:
        # A damaged row must not cost the page; the log has the traceback.
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


def choose() -> PageState:
    """Draw the controls, and return the choice. A ``Problem`` says that there is none."""
    reader = store_reader.reader()
    with st.sidebar:
        run = run_picker.picked_run(reader)
        facts = RunHeader.of(run)
        name = st.segmented_control(
            "Time range",
            list(time_range.RANGES),
            default="5m" if facts.is_recording else time_range.ALL,
            key="range",
            bind="query-params",
        )
        everything = st.toggle("All GPUs of the machine", key="all", bind="query-params")
        paused_ms = _paused() if facts.is_recording else None
        header.label(run)
    return PageState(reader, run, name or time_range.ALL, everything, paused_ms, facts)


def _paused() -> int | None:
    """Return when the user paused the page; ``None``: it is live."""
    if not st.toggle("Pause", key="paused"):
        st.session_state.pop("paused_ms", None)
        return None
    now_ms = time.time_ns() // 1_000_000
    return int(st.session_state.setdefault("paused_ms", now_ms))
