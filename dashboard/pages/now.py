"""Now: is the GPU doing useful work, where does the step's time go, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamlit as st

from whyidle.dashboard import frame, markup, settings, theme, widgets
from whyidle.dashboard.blocks import Block, Chart, Columns, Html, courses
from whyidle.dashboard.figures import account
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.figures.lines import Line, lines
from whyidle.dashboard.frame import Shown
from whyidle.dashboard.pages import _gpus, _now_parts
from whyidle.dashboard.pages._page_data import Asked
from whyidle.dashboard.views import causes, job, marks
from whyidle.dashboard.views.csv_export import as_csv
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.series import Course, Subject
from whyidle.dashboard.views.time_range import ALL, FEW_POINTS, POINTS, Span
from whyidle.dashboard.widgets import write
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.metrics import Metric

TITLE: Final = "Now"
_ACTIVITY: Final[dict[Metric, str]] = {
    m.GPU_UTILISATION: theme.GREY,
    m.GPU_SM_ACTIVITY: theme.BLUE,
    m.GPU_TENSOR_ACTIVITY: theme.GREEN,
    m.GPU_DRAM_ACTIVITY: theme.ORANGE,
}
_PEAKS: Final = ("activity", "memory", "power", "step")


def page(shown: Shown) -> None:
    """Draw the page; what moves is drawn anew by itself."""
    gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        choice = _gpus.choice(gpus, each=True)
        if words := _gpus.named(gpus):
            widgets.note(words)
        # One legend stands for all charts of many GPUs, and is drawn once.
        if not _gpus.is_few(chosen := gpus.one(choice)):
            widgets.legend(_gpus.colours(chosen))
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
    # Few elements, and all asked before any is drawn: the browser pays for each piece that comes.
    charts = _charts(asked)
    found = _now_parts.finding(answer, shown.run)
    write(markup.stack(_now_parts.tiles(asked), _account(asked), found))
    widgets.board("charts", charts)
    write(_now_parts.events(news))


def _charts(asked: Asked) -> list[Block]:
    """Return the charts as they stand beside each other."""
    if asked.choice == _gpus.EACH and asked.chosen:
        return [*_each(asked), Columns([_steps(asked), _memory(asked), _power(asked)])]
    left, right = [_steps, _memory], [_activity, _power]
    return [
        Columns([[block for draw in column for block in draw(asked)] for column in (left, right)])
    ]


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


def _diagnosed(shown: Shown) -> DiagnosisJson:
    return job.diagnosis(settings.current().store, shown.run.id)


def _account(asked: Asked) -> str:
    budget, who = _now_parts.accounted(asked)
    if budget is None:
        return markup.unknown("Where the time goes", who)
    past = "the whole run" if asked.shown.range == ALL else f"the last {asked.shown.range}"
    return markup.budget("Where the time goes", f"{past}, by {who}", budget)


# Charts ------------------------------------------------------------------------------------------
def _activity(asked: Asked) -> list[Block]:
    told = _courses(asked)["activity"]
    if not asked.chosen:
        colours = (theme.BLUE, theme.ORANGE)
        drawn = [Line(c, colour) for c, colour in zip(told, colours, strict=True)]
        figure = lines("cpu", drawn, "cores", asked.span)
        return courses("Cores at work (no GPU is read)", figure, told, "cpu")
    name = "GPU activity" if len(asked.chosen) == 1 else "GPU activity, mean of the GPUs"
    return courses(name, _activities("activity", told, asked.span), told, "activity")


def _activities(name: str, told: Sequence[Course], span: Span, **more: Any) -> Figure:
    drawn = [
        Line(course, colour, band=course.metric is m.GPU_UTILISATION)
        for course, colour in zip(told, _ACTIVITY.values(), strict=True)
    ]
    return lines(name, drawn, "ratio", span, **more)


def _each(asked: Asked) -> list[Block]:
    """Return the activity of each GPU by itself, four beside each other."""
    legend = markup.legend({metric.words: colour for metric, colour in _ACTIVITY.items()})
    rows = [asked.chosen[i : i + 4] for i in range(0, len(asked.chosen), 4)]
    return [
        Html(markup.title("GPU activity") + legend),
        *(Columns([*(_one(asked, gpu) for gpu in row), *[[]] * (4 - len(row))]) for row in rows),
    ]


def _one(asked: Asked, gpu: Subject) -> list[Block]:
    told = [
        replace(asked.told.of(metric, [gpu], FEW_POINTS)[0], name=metric.words)
        for metric in _ACTIVITY
    ]
    key = f"activity-{gpu.id}"
    figure = _activities(key, told, asked.span, showlegend=False)
    return courses(gpu.name, figure, told, key, theme.SMALL_HEIGHT)


def _steps(asked: Asked) -> list[Block]:
    run = asked.shown.run
    device = job.device(run, has_gpus=bool(asked.gpus.mine))
    found = causes.causes(asked.told, asked.gpus.mine, device)
    name = "Time of a step, by cause" if found.is_of_steps else "Time, by cause"
    if not found.parts:
        why = found.unknown or "nothing measured says so"
        return [Html(markup.unknown("The time by cause", why))]
    happened = marks.marks(asked.shown.reader, run.id, asked.span)
    figure = account.over_time("causes", found, asked.span, happened)
    below = [Html(markup.note(f"steps: {found.unknown}"))] if found.unknown else []
    return [Html(markup.title(name, found.how)), Chart("causes", figure), *below]


def _memory(asked: Asked) -> list[Block]:
    name = "GPU memory" if asked.chosen else "Memory of the job"
    return _one_by_one(asked, name, "memory", m.GPU_MEMORY_TOTAL)


def _power(asked: Asked) -> list[Block]:
    return _one_by_one(asked, "Power", "power", m.GPU_POWER_LIMIT) if asked.chosen else []


def _one_by_one(asked: Asked, name: str, key: str, limit: Metric) -> list[Block]:
    told = _courses(asked)[key]
    limits = _gpus.limits(asked.newest, limit, asked.chosen, "limit")
    figure = lines(
        key, _gpus.one_by_one(told), limit.unit, asked.span,
        limits=limits, showlegend=_gpus.is_few(asked.chosen),
    )  # fmt: skip
    return courses(name, figure, told, key)


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
        _now_parts.trace(shown)


def _csv(shown: Shown, choice: str, peak: str | None) -> str:
    asked = _zoomed(shown, choice, peak)
    asked = replace(asked, told=replace(asked.told, grid=POINTS))
    return as_csv([course for some in _courses(asked).values() for course in some])
