"""Now: is the GPU doing useful work, where does the step's time go, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamlit as st

from whyidle.dashboard import frame, look, parts, settings
from whyidle.dashboard.figures import account
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.figures.lines import Line, lines
from whyidle.dashboard.frame import Shown
from whyidle.dashboard.pages import _gpus, _moment
from whyidle.dashboard.pages._asked import Asked
from whyidle.dashboard.views import causes, job, marks
from whyidle.dashboard.views.causes import Causes
from whyidle.dashboard.views.courses import Course, Subject
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.span import ALL, FEW_POINTS, POINTS, Span
from whyidle.dashboard.views.table import as_csv
from whyidle.monitor import metrics as m
from whyidle.monitor.metrics import Metric

TITLE: Final = "Now"
_ACTIVITY: Final[dict[Metric, str]] = {
    m.GPU_UTILISATION: look.GREY,
    m.GPU_SM_ACTIVITY: look.BLUE,
    m.GPU_TENSOR_ACTIVITY: look.GREEN,
    m.GPU_DRAM_ACTIVITY: look.ORANGE,
}
_PEAKS: Final = ("activity", "memory", "power", "step")


def page(shown: Shown) -> None:
    """Draw the page; what moves is drawn anew by itself."""
    gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        choice = _gpus.choice(gpus, each=True)
        if words := _gpus.named(gpus):
            parts.note(words)
        # One legend stands for all charts of many GPUs, and is drawn once.
        if not _gpus.is_few(chosen := gpus.one(choice)):
            parts.legend(_gpus.colours(chosen))
    with right:
        peak = st.segmented_control(
            "Zoom to the peak of", _peaks(gpus), key="peak", bind="query-params", width="stretch"
        )
    frame.live(lambda now: _live(now, choice, peak), shown)
    _below(shown, choice, peak)


def _peaks(gpus: Gpus) -> list[str]:
    """Return the charts that may have a peak: without a GPU there is none of its power."""
    return [each for each in _PEAKS if gpus.shown or each != "power"]


def _live(shown: Shown, choice: str, peak: str | None) -> None:
    asked = _zoomed(shown, choice, peak)
    answer = asked.seldom("diagnosis", lambda: _diagnosed(shown))
    news = marks.news(shown.reader, shown.run.id, asked.span)
    # Asked before anything is drawn, and remembered: what is drawn piece by piece, while the next
    # is computed, costs the browser twice as much.
    _courses(asked)
    _caused(asked)
    _moment.tiles(asked)
    _account(asked)
    _moment.finding(answer, shown.run)
    for cell, draws in _places(asked):
        with cell:
            for draw in draws:
                draw(asked)
    _moment.events(news)


def _places(asked: Asked) -> list[tuple[Any, Sequence[Callable[[Asked], None]]]]:
    """Return the columns of the page, and what is drawn in each."""
    if asked.choice == _gpus.EACH and asked.chosen:
        _each(asked)
        one, two, three = parts.columns(3)
        return [(one, [_steps]), (two, [_memory]), (three, [_power])]
    left, right = parts.halves()
    return [(left, [_steps, _memory]), (right, [_activity, _power])]


def _zoomed(shown: Shown, choice: str, peak: str | None) -> Asked:
    """Ask for what is shown: the whole stretch, or what lies around a peak of it."""
    asked = Asked.of(shown, choice)
    at = None if peak is None else _peak_at(asked, peak)
    if at is None:
        return asked
    return replace(asked, told=replace(asked.told, span=asked.span.around(at)))


def _peak_at(asked: Asked, peak: str) -> int | None:
    """Return when a chart was highest; that stays, although time goes on."""
    chosen = (asked.span.name, asked.choice, peak)
    kept: tuple[Any, int] | None = st.session_state.get("peak_at")
    if kept is not None and kept[0] == chosen:
        return kept[1]
    tops = [course.peak for course in _courses(asked).get(peak, []) if course.unknown is None]
    highest = max((top for top in tops if top is not None), key=lambda top: top[1], default=None)
    if highest is not None:
        st.session_state["peak_at"] = chosen, highest[0]
    return None if highest is None else highest[0]


def _courses(asked: Asked) -> dict[str, list[Course]]:
    """Return what the charts show, by what it is."""
    run = [Subject(asked.told.run, "")]
    if not asked.chosen:
        return {
            "activity": [c for x in (m.JOB_CPU, m.JOB_MAIN_THREAD) for c in _job(asked, x)],
            "memory": asked.told.of(m.JOB_RSS, [replace(run[0], name="resident")]),
            "power": [],
            "step": _job(asked, m.JOB_STEP_P50),
        }
    return {
        "activity": [
            asked.told.mean(metric, asked.chosen, points=FEW_POINTS) for metric in _ACTIVITY
        ],
        "memory": asked.told.of(m.GPU_MEMORY_USED, asked.chosen),
        "power": asked.told.of(m.GPU_POWER, asked.chosen),
        "step": _job(asked, m.JOB_STEP_P50),
    }


def _job(asked: Asked, metric: Metric) -> list[Course]:
    return [asked.told.one(metric, asked.told.run)]


def _diagnosed(shown: Shown) -> Mapping[str, Any]:
    return job.diagnosis(settings.current().store, shown.run.id)


def _account(asked: Asked) -> None:
    budget, who = _moment.accounted(asked)
    if budget is None:
        parts.unknown("Where the time goes", who)
        return
    past = "the whole run" if asked.shown.range == ALL else f"the last {asked.shown.range}"
    parts.budget("Where the time goes", f"{past}, by {who}", budget)


# Charts ------------------------------------------------------------------------------------------
def _activity(asked: Asked) -> None:
    courses = _courses(asked)["activity"]
    if not asked.chosen:
        colours = (look.BLUE, look.ORANGE)
        drawn = [Line(c, colour) for c, colour in zip(courses, colours, strict=True)]
        figure = lines("cpu", drawn, "cores", asked.span)
        parts.courses("Cores at work (no GPU is read)", figure, courses, "cpu")
        return
    parts.courses(
        "GPU activity" if len(asked.chosen) == 1 else "GPU activity, mean of the GPUs",
        _activities("activity", courses, asked.span), courses, "activity",
    )  # fmt: skip


def _activities(name: str, courses: Sequence[Course], span: Span, **more: Any) -> Figure:
    drawn = [
        Line(course, colour, band=course.metric is m.GPU_UTILISATION)
        for course, colour in zip(courses, _ACTIVITY.values(), strict=True)
    ]
    return lines(name, drawn, "ratio", span, **more)


def _each(asked: Asked) -> None:
    """Draw the activity of each GPU by itself, four beside each other."""
    parts.title("GPU activity")
    parts.legend({metric.words: colour for metric, colour in _ACTIVITY.items()})
    for first in range(0, len(asked.chosen), 4):
        for cell, gpu in zip(parts.columns(4), asked.chosen[first : first + 4], strict=False):
            with cell:
                courses = [
                    replace(asked.told.of(metric, [gpu], FEW_POINTS)[0], name=metric.words)
                    for metric in _ACTIVITY
                ]
                key = f"activity-{gpu.id}"
                figure = _activities(key, courses, asked.span, showlegend=False)
                parts.courses(gpu.name, figure, courses, key, look.SMALL_HEIGHT)


def _caused(asked: Asked) -> Causes:
    device = job.device(asked.shown.run, has_gpus=bool(asked.gpus.mine))
    return causes.causes(asked.told, asked.gpus.mine, device)


def _steps(asked: Asked) -> None:
    run, found = asked.shown.run, _caused(asked)
    name = "Time of a step, by cause" if found.is_of_steps else "Time, by cause"
    if not found.parts:
        parts.unknown("The time by cause", found.unknown or "nothing measured says so")
        return
    happened = marks.marks(asked.shown.reader, run.id, asked.span)
    below = f"steps: {found.unknown}" if found.unknown else ""
    figure = account.over_time("causes", found, asked.span, happened)
    parts.chart(figure, "causes", words=(name, found.how, below))


def _memory(asked: Asked) -> None:
    name = "GPU memory" if asked.chosen else "Memory of the job"
    _one_by_one(asked, name, "memory", m.GPU_MEMORY_TOTAL)


def _power(asked: Asked) -> None:
    if asked.chosen:
        _one_by_one(asked, "Power", "power", m.GPU_POWER_LIMIT)


def _one_by_one(asked: Asked, name: str, key: str, limit: Metric) -> None:
    used = _courses(asked)[key]
    limits = _gpus.limits(asked.newest, limit, asked.chosen, "limit")
    figure = lines(
        key, _gpus.one_by_one(used), limit.unit, asked.span,
        limits=limits, showlegend=_gpus.is_few(asked.chosen),
    )  # fmt: skip
    parts.courses(name, figure, used, key)


# What stands still -------------------------------------------------------------------------------
def _below(shown: Shown, choice: str, peak: str | None) -> None:
    """Draw what is asked for by a click: a trace, and the figures of the charts."""
    left, right = st.columns([1, 4])
    with left:
        st.download_button(
            "Download CSV",
            data=partial(_csv, shown, choice, peak),
            file_name=f"whyidle-run-{shown.run.id}.csv",
            mime="text/csv",
            on_click="ignore",
            key="csv",
        )
    with right:
        _moment.trace(shown)


def _csv(shown: Shown, choice: str, peak: str | None) -> str:
    asked = _zoomed(shown, choice, peak)
    asked = replace(asked, told=replace(asked.told, grid=POINTS))
    return as_csv([course for some in _courses(asked).values() for course in some])
