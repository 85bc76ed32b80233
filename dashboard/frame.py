"""What stands around every page: which run, which stretch of it, live or not, and help."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from whyidle.dashboard import corner, parts, reading, settings
from whyidle.dashboard.parts import safe, write
from whyidle.dashboard.views import job
from whyidle.dashboard.views import span as spans
from whyidle.dashboard.views.runs import called
from whyidle.dashboard.views.span import Span
from whyidle.monitor.errors import Problem
from whyidle.monitor.render.numbers import duration
from whyidle.monitor.store import Reader, Run

MOST_RUNS: Final = 200
# Where nothing can be shown it is tried again: a recording may begin at any moment.
AGAIN_SECONDS: Final = 2.0
_DEFECT: Final = "This part of the page could not be drawn"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the reader has chosen to see."""

    reader: Reader
    run: Run
    range: str
    everything: bool
    is_paused: bool
    # When the reader stopped it.
    paused_ms: int | None = None

    @property
    def every(self) -> float | None:
        """How often the page is read anew; never, where nothing moves."""
        moves = self.run.is_recording and not self.is_paused
        return settings.current().refresh_seconds if moves else None

    def span(self) -> Span:
        """Return the stretch of time that is shown, as of now."""
        now_ms = self.paused_ms or time.time_ns() // 1_000_000
        return spans.of(self.reader, self.run, self.range, now_ms)

    def now(self) -> Shown:
        """Return the same with the run as it stands now; what has changed all of it starts anew."""
        reader = reading.reader()
        run = reader.run(self.run.id)
        if reader is not self.reader or (run and _face(run) != _face(self.run)):
            st.rerun()
        if run is None:
            raise _gone(str(self.run.id))
        return replace(self, run=run)


def _face(run: Run) -> tuple[object, ...]:
    """Return what of a run stands around the pages."""
    return run.is_recording, run.label, run.script, run.framework


def show(draw: Callable[[Shown], None]) -> None:
    """Draw a page of what is chosen, or say why there is nothing to draw."""
    shown = _guarded(choose)
    if shown is None:
        parts.note("The page is drawn by itself as soon as there is something to show.")
        st.fragment(_try_again, run_every=AGAIN_SECONDS)()
    else:
        _guarded(lambda: draw(shown))


def live(draw: Callable[[Shown], None], shown: Shown, every: float | None = None) -> None:
    """Draw a part of a page that is drawn anew by itself; its failures stay its own."""

    def part() -> None:
        _guarded(lambda: draw(shown.now()))

    part.__qualname__ = f"live {draw.__module__}.{draw.__qualname__}"
    st.fragment(part, run_every=shown.every if every is None else every)()


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
        parts.unknown("There is nothing to show", problem.what, problem.next_step)
    except sqlite3.Error as error:
        parts.unknown("There is nothing to show", f"the store could not be read: {error}")
    except Exception as error:
        # A damaged row must not cost the page; who started us reads the rest in the log.
        logging.getLogger(__name__).exception(_DEFECT)
        parts.unknown(_DEFECT, f"{type(error).__name__}: {error}", "monitor doctor")
    return None


def _try_again() -> None:
    try:
        has_runs = bool(reading.reader().runs())
    except (Problem, sqlite3.Error):
        return
    if has_runs and _wanted() is None:
        st.rerun()


def choose() -> Shown:
    """Draw the choices, and return what was chosen. A ``Problem`` says that nothing is there."""
    reader = reading.reader()
    by_id = {str(run.id): run for run in reader.runs()[-MOST_RUNS:][::-1]}
    if not by_id:
        raise Problem("Nothing is recorded yet.", "monitor attach PID")
    with st.sidebar:
        run = _chosen_run(reader, by_id)
        _about(run)
        name = st.segmented_control(
            "Time range",
            list(spans.RANGES),
            default="5m" if run.is_recording else spans.ALL,
            key="range",
            bind="query-params",
        )
        everything = st.toggle("All GPUs of the machine", key="all", bind="query-params")
        paused_ms = _paused() if run.is_recording else None
    shown = Shown(reader, run, name or spans.ALL, everything, paused_ms is not None, paused_ms)
    with st.sidebar:
        corner.label(run)
        live(lambda now: corner.health(now.reader, now.run), shown)
    return shown


def _chosen_run(reader: Reader, by_id: dict[str, Run]) -> Run:
    """Return the run of the link, of the picker, or the one that was named at the start."""
    wanted = _wanted()
    if wanted is not None and wanted not in by_id:
        # Older than the picker goes back, or gone.
        found = reader.run(int(wanted)) if wanted.isdecimal() and len(wanted) < 19 else None
        if found is None:
            return _another(wanted, by_id)
        by_id[wanted] = found
    first = wanted or _first(reader, by_id)
    number = st.selectbox(
        "Run",
        list(by_id),
        index=list(by_id).index(first),
        key="run",
        bind="query-params",
        format_func=lambda number: called(by_id[number]),
    )
    return by_id[number]


def _wanted() -> str | None:
    """Return the number of the run that was chosen before, or that the address names."""
    wanted = st.session_state.get("run") or st.query_params.get("run")
    return None if wanted is None else str(wanted)


def _another(wanted: str, by_id: dict[str, Run]) -> Run:
    """Have another run chosen where the wanted one is gone: none is shown in its place unasked."""
    number = st.selectbox(
        "Run",
        list(by_id),
        index=None,
        key="another",
        placeholder="Choose another run",
        format_func=lambda number: called(by_id[number]),
    )
    if number is None:
        raise _gone(wanted)
    st.query_params.pop("run", None)
    st.session_state["run"] = number
    st.rerun()


def _gone(wanted: str) -> Problem:
    what = f"There is no recording {wanted} here: it was deleted, or belongs to another store."
    return Problem(what, "List them: monitor runs")


def _first(reader: Reader, by_id: dict[str, Run]) -> str:
    wanted = str(reader.find(settings.current().run).id)
    return wanted if wanted in by_id else next(iter(by_id))


def _paused() -> int | None:
    """Return when the reader stopped the page; ``None``: it moves."""
    if not st.toggle("Pause", key="paused"):
        st.session_state.pop("paused_ms", None)
        return None
    now_ms = time.time_ns() // 1_000_000
    return int(st.session_state.setdefault("paused_ms", now_ms))


def _about(run: Run) -> None:
    """Say what the run is in a few quiet words."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_ms / 1000))
    said = [job.state(run), f"since {when}"]
    if run.is_recording or run.ended_ms is not None:
        end = run.ended_ms or time.time() * 1000
        said.insert(1, duration(max(0.0, (end - run.started_ms) / 1000)))
    rows = [
        " · ".join(said),
        " · ".join(x for x in (run.framework, run.script, f"pid {run.target_pid}") if x),
        f"{run.user or ''}@{run.host or ''}",
    ]
    write("".join(f'<div class="w-sub">{safe(row)}</div>' for row in rows))
