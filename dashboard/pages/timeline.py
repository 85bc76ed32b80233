"""Timeline: what each device and thread did during a trace, and why devices were idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from whyidle.dashboard import markup, settings, theme, widgets
from whyidle.dashboard.figures import account, lanes, overview
from whyidle.dashboard.figures.base import Figure
from whyidle.dashboard.frame import PageState, still
from whyidle.dashboard.live_plotly import ChartEvents, zoomable
from whyidle.dashboard.pages import _now_parts
from whyidle.dashboard.pages import _timeline_details as about
from whyidle.dashboard.pages import _timeline_ranks as comers
from whyidle.dashboard.pages import _timeline_tools as tools
from whyidle.dashboard.views import timeline, timeline_overview
from whyidle.dashboard.views.timeline import TickRange, TraceSteps
from whyidle.dashboard.views.timeline_lanes import Picture, picture
from whyidle.dashboard.views.timeline_overview import Overview
from whyidle.dashboard.views.timeline_ranks import Comers
from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.store.stored_traces import Kept, KeptTrace

TITLE: Final = "Timeline"
WINDOW: Final = "window"
_ALL: Final = "all"
_OVERVIEW_HEIGHT: Final = 74
_BAR_HEIGHT: Final = 44
# Of the events around everything that a thread does, this many innermost ones are named.
_AROUND_MOST: Final = 4
_Key = tuple[str, int, int]


def page(shown: PageState) -> None:
    """Draw the page."""
    widgets.write(tools.STYLE)
    _now_parts.trace(shown)
    still(_view, shown)


def _view(shown: PageState) -> None:
    found = timeline.traces(settings.current().store, shown.run.id)
    if not found:
        keep = f"monitor trace FILE --run {shown.run.id}"
        widgets.unknown("The timeline", "no trace is stored with this run", keep)
        return
    if st.query_params.get("trace", str(found[0].id)) not in {str(trace.id) for trace in found}:
        # The link, and so its times, belong to another trace.
        _forget()
    trace, devices, by, all_threads = _choices(found)
    _warnings(trace)
    try:
        view = _read(trace, devices, all_threads)
    except Problem as problem:
        widgets.unknown("The lanes", problem.what, problem.next_step)
        _answer(trace)
        tools.elsewhere(trace)
        return
    if not view.drawn.trace.answer["devices"]:
        widgets.unknown("The timeline", "this trace holds no device work", _another(shown))
        tools.elsewhere(trace)
        return
    if view.came is not None:
        comers.said(trace, devices)
    _controls(trace, view.part, view.steps)
    _overview(trace, view.part, devices)
    if view.came is None:
        _account(trace, view.part, devices)
    _lanes(trace, view.drawn, by, view.steps)
    if view.came is not None:
        comers.last(view.came)
    _below(trace, devices, shown)


def _below(trace: KeptTrace, devices: tuple[int, ...], shown: PageState) -> None:
    left, right = st.columns(2, gap="large")
    is_job = timeline.ranks_of(trace) is not None
    with left:
        if is_job:
            comers.alone(trace, devices)
        else:
            about.about(trace, shown.reader)
    with right:
        tools.kernels(trace)
        if not is_job:
            tools.elsewhere(trace)


class _Read(NamedTuple):
    """A window, and all that is drawn of it."""

    part: TickRange
    steps: TraceSteps
    drawn: Picture
    # Of a job: who came last to its collectives.
    came: Comers | None


def _read(trace: KeptTrace, devices: tuple[int, ...], all_threads: bool) -> _Read:
    linked = st.query_params.get(WINDOW)
    part = timeline.part_of(trace, linked)
    steps = timeline.steps_of(settings.current().store, trace.id, part)
    if linked is None:
        part = timeline.begin(trace, steps.parts)
        steps = replace(steps, shown=part)
    drawn = _picture(_key(trace), part, devices, all_threads)
    if timeline.ranks_of(trace) is None:
        return _Read(part, steps, drawn, None)
    came = comers.comers(_key(trace), part)
    return _Read(part, steps, replace(drawn, came=came.came), came)


def _another(shown: PageState) -> str:
    """Return how to get a trace that shows more."""
    if shown.run.is_recording:
        return "Take another one: Take a trace now"
    return "Choose another one above, or take one of a running job: monitor attach PID"


def _choices(found: Sequence[KeptTrace]) -> tuple[KeptTrace, tuple[int, ...], str, bool]:
    cells = st.columns([3, 2, 2, 1.3], vertical_alignment="bottom")
    by_id = {str(trace.id): trace for trace in found}
    traces = {number: timeline.name(trace) for number, trace in by_id.items()}
    with cells[0]:
        trace = by_id[_picker("Trace", "trace", traces, _forget)]
    if timeline.ranks_of(trace) is not None:
        by = _colour_by(cells[2])
        return trace, comers.pick(trace), by, False
    devices = timeline.device_names(trace.answer)
    names = {str(i): timeline.for_picker(name) for i, name in enumerate(devices)}
    with cells[1]:
        every = f"all {len(names)} devices" if names else "no device"
        several = {_ALL: every} if len(names) != 1 else {}
        one = _picker("Device", "device", {**several, **names})
    by = _colour_by(cells[2])
    threads = cells[3].toggle("All threads", key="threads", bind="query-params")
    shown = tuple(range(len(devices))) if one == _ALL else (int(one),)
    return trace, shown, by, threads


def _colour_by(cell: DeltaGenerator) -> str:
    by = cell.segmented_control(
        "Colour by", ["cause", "kind"], default="cause", key="by", bind="query-params"
    )
    return by or "cause"


def _picker(
    label: str, name: str, choices: Mapping[str, str], changed: Callable[[], None] | None = None
) -> str:
    """Draw a picker whose choice a link names by key, not by the shown text."""
    keys = list(choices)
    linked = st.query_params.get(name, "")

    def chosen() -> None:
        st.query_params[name] = st.session_state[f"pick-{name}"]
        if changed is not None:
            changed()

    return st.selectbox(
        label, keys, index=keys.index(linked) if linked in keys else 0, key=f"pick-{name}",
        format_func=lambda key: choices[key], on_change=chosen,
    )  # fmt: skip


def _forget() -> None:
    """Forget the window and device: another trace has others."""
    comers.forget()
    st.session_state.pop("pick-device", None)
    for name in (WINDOW, about.AT, "device"):
        st.query_params.pop(name, None)


@st.cache_data(show_spinner=False, max_entries=24)
def _picture(key: _Key, part: TickRange, devices: tuple[int, ...], all_threads: bool) -> Picture:
    return picture(Path(key[0]), key[1], part, devices, all_threads=all_threads)


@st.cache_data(show_spinner=False, max_entries=8)
def _all(key: _Key, devices: tuple[int, ...]) -> Overview:
    return timeline_overview.overview(Path(key[0]), key[1], devices)


def _key(trace: KeptTrace) -> _Key:
    """Return a key for a trace that differs from an earlier one with the same number."""
    return str(settings.current().store), trace.id, trace.ts_ms


def _go(trace: KeptTrace, part: TickRange) -> None:
    """Show this window."""
    link = timeline.link(trace, part)
    if link is not None:
        st.query_params[WINDOW] = link
    elif timeline.ranks_of(trace) is not None:
        # These begin with a step.
        st.query_params[WINDOW] = _ALL
    else:
        st.query_params.pop(WINDOW, None)


def _controls(trace: KeptTrace, part: TickRange, steps: TraceSteps) -> None:
    whole = timeline.whole(trace)
    begins, long = (timeline.ns(trace, t) for t in (part.start - trace.start, part.ticks))
    words = f"{clock(begins)} into the trace" if part != whole else "all of the trace"
    step = "" if steps.at is None else f"step {steps.at + 1} of {len(steps.parts)}, "
    go = partial(_go, trace)
    buttons: list[tuple[str, str, TickRange | None]] = [
        ("whole", "Whole trace", whole if part != whole else None),
        ("out", "Zoom out", timeline.zoomed(trace, part, 4) if part != whole else None),
        ("left", "◀", timeline.shifted(trace, part, -0.5) if part.start > whole.start else None),
        ("right", "▶", timeline.shifted(trace, part, 0.5) if part.end < whole.end else None),
    ]
    for key, label, number in (
        ("previous", "Previous step", steps.previous), ("next", "Next step", steps.following),
        ("median", "Median step", steps.median), ("slowest", "Slowest step", steps.slowest),
    ):  # fmt: skip
        to = None if number is None or number == steps.at else steps.parts[number]
        buttons.append((key, label, to))
    row = st.container(horizontal=True, gap="small")
    for key, label, to in buttons:
        row.button(label, key=f"go-{key}", disabled=to is None, on_click=go, args=(to or part,))
    widgets.title(f"{step}{clock(long)}, {words}")


def _overview(trace: KeptTrace, part: TickRange, devices: tuple[int, ...]) -> None:
    """Draw the whole trace with the part that is shown; the lanes alone show all of it."""
    data = _all(_key(trace), devices)
    if part == timeline.whole(trace):
        if data.known is not None:
            widgets.note(_unknown_around(trace, *data.known))
        return
    figure = overview.overview("overview", data, trace, part)
    events = _zoomable(figure, "overview", _OVERVIEW_HEIGHT)
    size, _ = overview.unit_of(trace, timeline.whole(trace))
    if events.zoomed:
        _to(trace, trace.start, size, events.zoomed)


def _unknown_around(trace: KeptTrace, start: int, end: int) -> str:
    """Return which parts of the trace have no account."""
    begins, ends = (clock(timeline.ns(trace, at - trace.start)) for at in (start, end))
    near = timeline.whole(trace).ticks // 100
    said = [f"before {begins}"] if start - trace.start > near else []
    said += [f"after {ends}"] if trace.end - end > near else []
    return f"No device work is recorded {' and '.join(said)}."


def _lanes(trace: KeptTrace, drawn: Picture, by: str, steps: TraceSteps) -> None:
    selected = about.selected(trace)
    figure, height = lanes.lanes(f"{trace.id}", drawn, cast("lanes.By", by), selected)
    events = _zoomable(figure, "lanes", height)
    _notes(drawn)
    if events.zoomed is not None:
        if events.zoomed:
            size, _ = overview.unit_of(trace, drawn.part)
            _to(trace, drawn.part.start, size, events.zoomed)
        _go(trace, timeline.whole(trace))
        st.rerun(scope="fragment")
    if events.clicked is not None:
        _click(trace, events.clicked.get("data"), steps)


def _click(trace: KeptTrace, data: object, steps: TraceSteps) -> None:
    """Zoom to a clicked step; show the details of anything else."""
    step = timeline.step_of(data, steps)
    if step is not None and step != steps.shown:
        _go(trace, step)
        st.rerun(scope="fragment")
    if step is None and timeline.ranks_of(trace) is None and about.choose(data):
        st.rerun(scope="fragment")


def _notes(drawn: Picture) -> None:
    """Show what is not drawn."""
    lines = [f"{note[0].upper()}{note[1:]}." for note in drawn.notes]
    for name, around in drawn.around.items():
        left = f"({len(around) - _AROUND_MOST} more) > " if len(around) > _AROUND_MOST else ""
        shown = " > ".join(around[-_AROUND_MOST:])
        lines.append(f"Throughout, {name} was in {left}{shown}.")
    if lines:
        widgets.write("".join(markup.note(line) for line in lines))


def _to(trace: KeptTrace, origin: int, size: float, zoomed: tuple[float, ...]) -> None:
    """Show the range that the user zoomed to, in units of the chart."""
    start, end = (origin + at * size * trace.ticks_per_ns for at in zoomed)
    _go(trace, timeline.within(trace, start, end))
    st.rerun(scope="fragment")


def _zoomable(figure: Figure, key: str, height: int) -> ChartEvents:
    return zoomable(figure, key, height=height, base=settings.current().base)


def _account(trace: KeptTrace, part: TickRange, devices: tuple[int, ...]) -> None:
    budgets = _budgets(_key(trace), part)
    names = timeline.device_names(trace.answer)
    shown = timeline.rows(trace, part, {names[i]: budgets[i] for i in devices})
    if any(sum(budget["slices"].values()) for budget in shown.values()):
        figure = account.bar("window", shown)
        # The lanes below have the same colours and margins, and a legend.
        margin = {"l": overview.LEFT, "r": overview.RIGHT, "t": 0, "b": 0}
        figure["layout"] |= {"showlegend": False, "margin": margin}
        widgets.chart(figure, "window-account", _BAR_HEIGHT * (1 + len(shown)) // 2)


@st.cache_data(show_spinner=False, max_entries=24)
def _budgets(key: _Key, part: TickRange) -> list[BudgetJson]:
    with Kept.open(Path(key[0])) as kept:
        trace = kept.open_trace(key[1])
        return timeline.account(trace, kept.account(trace.id, part.start, part.end), part)


def _answer(trace: KeptTrace) -> None:
    """Show what is known if there is no timeline."""
    headline = timeline.headline(trace.answer)
    if headline.total_ns:
        widgets.title("Where the time of this trace goes", f"of {headline.of}")
        widgets.chart(
            account.bar("trace", {"trace": headline.budget}), "trace-account", theme.BAR_HEIGHT
        )
    tools.kernels(trace)


def _warnings(trace: KeptTrace) -> None:
    window = trace.answer.get("window")
    covers = "" if not window else f"covers {clock(window['ns'])}"
    account_ = timeline.headline(trace.answer)
    compute = account_.budget["slices"].get("compute", 0)
    computes = f"{share(compute, account_.total_ns)} compute of {account_.of}"
    if not account_.total_ns:
        computes = ""
    words = " · ".join(x for x in (timeline.format_name(trace), covers, computes) if x)
    lines = [markup.note(words)]
    warnings = [*trace.answer.get("warnings", ()), *trace.notes]
    lines += [f'<p class="w-note">⚠ {markup.safe(text)}</p>' for text in warnings]
    widgets.write("".join(lines))
