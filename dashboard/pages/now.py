"""Now: is the GPU doing useful work, where does step time go, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamlit as st

from whyidle.dashboard import frame, markup, settings, theme, widgets
from whyidle.dashboard.blocks import Block, Chart, Columns, Html, series_chart
from whyidle.dashboard.figures import account, stacked
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.figures.lines import Line, lines
from whyidle.dashboard.figures.stacked import Row
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import _gpus, _now_parts, your_code
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import causes, job, marks
from whyidle.dashboard.views.causes import Causes
from whyidle.dashboard.views.csv_export import as_csv
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.series import Series, Subject
from whyidle.dashboard.views.time_range import ALL, FEW_POINTS, POINTS, TimeRange
from whyidle.monitor.app import report
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.core.metrics import Metric, Unit
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.render import numbers

TITLE: Final = "Now"
_ACTIVITY: Final[dict[Metric, str]] = {
    m.GPU_UTILISATION: theme.MIST,
    m.GPU_SM_ACTIVITY: theme.CAUSES[Slice.COMPUTE],
    m.GPU_TENSOR_ACTIVITY: theme.SLATE,
    m.GPU_DRAM_ACTIVITY: theme.GREY,
}
_PEAKS: Final = ("activity", "memory", "power", "step")


def page(shown: PageState) -> None:
    """Draw the page; live parts refresh by themselves."""
    gpus = job.gpus(shown.reader, shown.run, everything=shown.everything)
    choice = _gpus.choice(gpus, each=True)
    if len(gpus.shown) > 1 or gpus.others:
        widgets.note(_gpus.named(gpus))
    live, menu = st.container(), st.container(horizontal=True, key="menu")
    with menu, st.popover("Jump to the peak of"):
        peak = st.segmented_control(
            "Jump to the peak of", _peaks(gpus), key="peak", bind="query-params",
            label_visibility="collapsed",
        )  # fmt: skip
    with live:
        frame.live(lambda now: _live(now, choice, peak), shown)
    with menu:
        _offers(shown, choice, peak)


def _peaks(gpus: Gpus) -> list[str]:
    """Return the charts that may have a peak: power needs a GPU."""
    return [each for each in _PEAKS if gpus.shown or each != "power"]


def _live(shown: PageState, choice: str, peak: str | None) -> None:
    data = _zoomed(shown, choice, peak)
    answer = data.seldom("diagnosis", lambda: _diagnosed(shown))
    news = marks.news(shown.reader, shown.run.id, data.span)
    # Few elements, and all data read before any is drawn: each update costs the browser.
    said = markup.stack(
        _now_parts.verdict(answer, shown.run), _account(data), _now_parts.tiles(data)
    )
    after = markup.stack(
        your_code.hottest(data, answer.verdict.where[:1]),
        _now_parts.ranks(answer),
        _now_parts.events(news),
    )
    widgets.board("now", [Html(said), *_charts(data), Html(after)])


def _charts(data: PageData) -> list[Block]:
    """Return what happened over time; with many GPUs, each has a chart of its own first."""
    each = _each(data) if data.choice == _gpus.EACH and data.chosen else []
    drawn = [_steps(data), _activity(data), _memory(data)]
    rows = [row for row in drawn if isinstance(row, Row)]
    unknown = [Html(markup.unknown(*why)) for why in drawn if not isinstance(why, Row)]
    if not rows:
        return [*each, *unknown]
    figure = stacked.stacked("story", rows, data.span)
    said = Html(markup.note(f"Time by cause is {_causes(data).how}."))
    return [*each, Chart("story", figure, stacked.height(rows)), said, *unknown]


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
# A chart, or what is not known and why.
_Drawn = Row | tuple[str, str]


def _row(
    title: str, figure: Figure, all_series: Sequence[Series], unit: Unit | None = None
) -> _Drawn:
    """Return a chart with its newest value; unknown series are named with their reasons."""
    missing = {series.name: series.unknown for series in all_series if series.unknown is not None}
    if len(missing) == len(all_series):
        return title, next(iter(missing.values()))
    first = next(series for series in all_series if series.unknown is None)
    said = "" if unit is None or first.last is None else numbers.show(first.last, unit)
    return Row(title, figure, "; ".join([*(f"{x}: {why}" for x, why in missing.items()), said]))


def _steps(data: PageData) -> _Drawn:
    run, found = data.shown.run, _causes(data)
    name = "A step by cause" if found.is_of_steps else "Time by cause"
    if not found.parts:
        return name, found.unknown or "no measurement shows it"
    happened = marks.marks(data.shown.reader, run.id, data.span)
    figure = account.over_time("causes", found, data.span, happened)
    return Row(name, figure, "" if found.unknown is None else f"steps: {found.unknown}")


def _causes(data: PageData) -> Causes:
    device = job.device(data.shown.run, has_gpus=bool(data.gpus.mine))
    return causes.causes(data.series, data.gpus.mine, device)


def _activity(data: PageData) -> _Drawn:
    series = _series(data)["activity"]
    if not data.chosen:
        drawn = [Line(c, colour) for c, colour in zip(series, (theme.SLATE, theme.MIST),
                                                      strict=True)]  # fmt: skip
        return _row("CPU cores in use", lines("cpu", drawn, "cores", data.span), series, "cores")
    name = "GPU in use" if len(data.chosen) == 1 else "GPUs in use, on average"
    return _row(name, _activities("activity", series, data.span), series, "ratio")


def _activities(name: str, series: Sequence[Series], span: TimeRange, **more: Any) -> Figure:
    drawn = [
        Line(series, colour, band=series.metric is m.GPU_UTILISATION)
        for series, colour in zip(series, _ACTIVITY.values(), strict=True)
    ]
    return lines(name, drawn, "ratio", span, **more)


def _memory(data: PageData) -> _Drawn:
    name = "GPU memory" if data.chosen else "Memory of the job"
    series = _series(data)["memory"]
    limits = _gpus.limits(data.newest, m.GPU_MEMORY_TOTAL, data.chosen, "limit")
    figure = lines("memory", _gpus.one_by_one(series), "bytes", data.span, limits=limits)
    return _row(name, figure, series, "bytes")


def _each(data: PageData) -> list[Block]:
    """Return the activity of each GPU in its own chart, four in a row."""
    legend = markup.legend({metric.words: colour for metric, colour in _ACTIVITY.items()})
    rows = [data.chosen[i : i + 4] for i in range(0, len(data.chosen), 4)]
    shown = {gpu: _one(data, gpu) for gpu in data.chosen}
    # Side by side they are compared: on one scale.
    axes = [figure["layout"]["yaxis"] for _, figure in shown.values()]
    top = max(axis["range"][1] for axis in axes)
    for axis in axes:
        axis["range"] = [0, top]
    return [
        Html(markup.title("GPU activity") + legend),
        *(
            Columns([*(_titled(gpu, *shown[gpu]) for gpu in row), *[[]] * (4 - len(row))])
            for row in rows
        ),
    ]


def _one(data: PageData, gpu: Subject) -> tuple[list[Series], Figure]:
    series = [
        replace(data.series.of(metric, [gpu], FEW_POINTS)[0], name=metric.words)
        for metric in _ACTIVITY
    ]
    return series, _activities(_key(gpu), series, data.span, showlegend=False)


def _titled(gpu: Subject, series: Sequence[Series], figure: Figure) -> list[Block]:
    return series_chart(gpu.name, figure, series, _key(gpu), theme.SMALL_HEIGHT)


def _key(gpu: Subject) -> str:
    return f"activity-{gpu.id}"


# Not live ----------------------------------------------------------------------------------------
def _offers(shown: PageState, choice: str, peak: str | None) -> None:
    """Draw the buttons: a trace on demand, and the data of the charts."""
    st.download_button(
        "Download CSV",
        data=partial(_csv, shown, choice, peak),
        file_name=f"whyidle-run-{shown.run.id}.csv",
        mime="text/csv",
        on_click="ignore",
        key="csv",
    )
    st.download_button(
        "Download report",
        data=partial(report.page, settings.current().store, str(shown.run.id)),
        file_name=f"whyidle-run-{shown.run.id}.html",
        mime="text/html",
        on_click="ignore",
        key="report",
    )
    _now_parts.trace(shown)


def _csv(shown: PageState, choice: str, peak: str | None) -> str:
    data = _zoomed(shown, choice, peak)
    data = replace(data, series=replace(data.series, grid=POINTS))
    return as_csv([series for some in _series(data).values() for series in some])
