"""Now: is the GPU doing useful work, where does step time go, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamlit as st

from whyidle.dashboard import frame, markup, settings, theme, widgets
from whyidle.dashboard.blocks import Block, Chart, Columns, Html, series_chart
from whyidle.dashboard.figures import account
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.figures.lines import Line, lines
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import _gpus, _now_parts, your_code
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import causes, job, marks
from whyidle.dashboard.views.csv_export import as_csv
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.series import Series, Subject
from whyidle.dashboard.views.time_range import ALL, FEW_POINTS, POINTS, TimeRange
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


def page(shown: PageState) -> None:
    """Draw the page; live parts refresh by themselves."""
    gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        choice = _gpus.choice(gpus, each=True)
        if words := _gpus.named(gpus):
            widgets.note(words)
        # With many GPUs, one legend serves all charts.
        if not _gpus.is_few(chosen := gpus.one(choice)):
            widgets.legend(_gpus.colours(chosen))
    with right:
        peak = st.segmented_control(
            "Zoom to the peak of", _peaks(gpus), key="peak", bind="query-params", width="stretch"
        )
    frame.live(lambda now: _live(now, choice, peak), shown)
    _below(shown, choice, peak)


def _peaks(gpus: Gpus) -> list[str]:
    """Return the charts that may have a peak: power needs a GPU."""
    return [each for each in _PEAKS if gpus.shown or each != "power"]


def _live(shown: PageState, choice: str, peak: str | None) -> None:
    data = _zoomed(shown, choice, peak)
    answer = data.seldom("diagnosis", lambda: _diagnosed(shown))
    news = marks.news(shown.reader, shown.run.id, data.span)
    # Few elements, and all data read before any is drawn: each update costs the browser.
    charts = _charts(data)
    found = _now_parts.finding(answer, shown.run)
    hottest = your_code.hottest(data)
    ranks = _now_parts.ranks(answer)
    write(markup.stack(_now_parts.tiles(data), _account(data), hottest, found, ranks))
    widgets.board("charts", charts)
    write(_now_parts.events(news))


def _charts(data: PageData) -> list[Block]:
    """Return the charts in their layout."""
    if data.choice == _gpus.EACH and data.chosen:
        return [*_each(data), Columns([_steps(data), _memory(data), _power(data)])]
    left, right = [_steps, _memory], [_activity, _power]
    return [
        Columns([[block for draw in column for block in draw(data)] for column in (left, right)])
    ]


def _zoomed(shown: PageState, choice: str, peak: str | None) -> PageData:
    """Read the data to show: the whole time range, or the surroundings of a peak."""
    data = PageData.of(shown, choice)
    at = None if peak is None else _peak_at(data, peak)
    if at is None:
        return data
    return replace(data, series=replace(data.series, span=data.span.around(at)))


def _peak_at(data: PageData, peak: str) -> int | None:
    """Return when a chart peaked; the choice stays although time goes on."""
    chosen = (data.span.name, data.choice, peak)
    kept: tuple[Any, int] | None = st.session_state.get("peak_at")
    if kept is not None and kept[0] == chosen:
        return kept[1]
    tops = [series.peak for series in _series(data).get(peak, []) if series.unknown is None]
    highest = max((top for top in tops if top is not None), key=lambda top: top[1], default=None)
    if highest is not None:
        st.session_state["peak_at"] = chosen, highest[0]
    return None if highest is None else highest[0]


def _series(data: PageData) -> dict[str, list[Series]]:
    """Return the series of the charts, by chart."""
    run = [Subject(data.series.run, "")]
    if not data.chosen:
        return {
            "activity": [c for x in (m.JOB_CPU, m.JOB_MAIN_THREAD) for c in _job(data, x)],
            "memory": data.series.of(m.JOB_RSS, [replace(run[0], name="resident")]),
            "power": [],
            "step": _job(data, m.JOB_STEP_P50),
        }
    return {
        "activity": [
            data.series.mean(metric, data.chosen, points=FEW_POINTS) for metric in _ACTIVITY
        ],
        "memory": data.series.of(m.GPU_MEMORY_USED, data.chosen),
        "power": data.series.of(m.GPU_POWER, data.chosen),
        "step": _job(data, m.JOB_STEP_P50),
    }


def _job(data: PageData, metric: Metric) -> list[Series]:
    return [data.series.one(metric, data.series.run)]


def _diagnosed(shown: PageState) -> DiagnosisJson:
    return job.diagnosis(settings.current().store, shown.run.id)


def _account(data: PageData) -> str:
    budget, who = _now_parts.accounted(data)
    if budget is None:
        return markup.unknown("Where the time goes", who)
    past = "the whole run" if data.shown.range == ALL else f"the last {data.shown.range}"
    return markup.budget("Where the time goes", f"{past}, by {who}", budget)


# Charts ------------------------------------------------------------------------------------------
def _activity(data: PageData) -> list[Block]:
    series = _series(data)["activity"]
    if not data.chosen:
        colours = (theme.BLUE, theme.ORANGE)
        drawn = [Line(c, colour) for c, colour in zip(series, colours, strict=True)]
        figure = lines("cpu", drawn, "cores", data.span)
        return series_chart("CPU cores in use (no GPU is read)", figure, series, "cpu")
    name = "GPU activity" if len(data.chosen) == 1 else "GPU activity, mean of the GPUs"
    return series_chart(name, _activities("activity", series, data.span), series, "activity")


def _activities(name: str, series: Sequence[Series], span: TimeRange, **more: Any) -> Figure:
    drawn = [
        Line(series, colour, band=series.metric is m.GPU_UTILISATION)
        for series, colour in zip(series, _ACTIVITY.values(), strict=True)
    ]
    return lines(name, drawn, "ratio", span, **more)


def _each(data: PageData) -> list[Block]:
    """Return the activity of each GPU in its own chart, four in a row."""
    legend = markup.legend({metric.words: colour for metric, colour in _ACTIVITY.items()})
    rows = [data.chosen[i : i + 4] for i in range(0, len(data.chosen), 4)]
    return [
        Html(markup.title("GPU activity") + legend),
        *(Columns([*(_one(data, gpu) for gpu in row), *[[]] * (4 - len(row))]) for row in rows),
    ]


def _one(data: PageData, gpu: Subject) -> list[Block]:
    series = [
        replace(data.series.of(metric, [gpu], FEW_POINTS)[0], name=metric.words)
        for metric in _ACTIVITY
    ]
    key = f"activity-{gpu.id}"
    figure = _activities(key, series, data.span, showlegend=False)
    return series_chart(gpu.name, figure, series, key, theme.SMALL_HEIGHT)


def _steps(data: PageData) -> list[Block]:
    run = data.shown.run
    device = job.device(run, has_gpus=bool(data.gpus.mine))
    found = causes.causes(data.series, data.gpus.mine, device)
    name = "Step time by cause" if found.is_of_steps else "Time by cause"
    if not found.parts:
        why = found.unknown or "no measurement shows it"
        return [Html(markup.unknown("The time by cause", why))]
    happened = marks.marks(data.shown.reader, run.id, data.span)
    figure = account.over_time("causes", found, data.span, happened)
    below = [Html(markup.note(f"steps: {found.unknown}"))] if found.unknown else []
    return [Html(markup.title(name, found.how)), Chart("causes", figure), *below]


def _memory(data: PageData) -> list[Block]:
    name = "GPU memory" if data.chosen else "Memory of the job"
    return _one_by_one(data, name, "memory", m.GPU_MEMORY_TOTAL)


def _power(data: PageData) -> list[Block]:
    return _one_by_one(data, "Power", "power", m.GPU_POWER_LIMIT) if data.chosen else []


def _one_by_one(data: PageData, name: str, key: str, limit: Metric) -> list[Block]:
    series = _series(data)[key]
    limits = _gpus.limits(data.newest, limit, data.chosen, "limit")
    figure = lines(
        key, _gpus.one_by_one(series), limit.unit, data.span,
        limits=limits, showlegend=_gpus.is_few(data.chosen),
    )  # fmt: skip
    return series_chart(name, figure, series, key)


# Not live ----------------------------------------------------------------------------------------
def _below(shown: PageState, choice: str, peak: str | None) -> None:
    """Draw the buttons: a trace on demand, and the data of the charts."""
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


def _csv(shown: PageState, choice: str, peak: str | None) -> str:
    data = _zoomed(shown, choice, peak)
    data = replace(data, series=replace(data.series, grid=POINTS))
    return as_csv([series for some in _series(data).values() for series in some])
