"""Pieces of the page Now: its numbers, its top finding, its news, and a trace on demand."""

from __future__ import annotations

import time
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.frame import Shown
from whyidle.dashboard.markup import Tile, safe
from whyidle.dashboard.pages._page_data import Asked
from whyidle.dashboard.views import findings, job
from whyidle.dashboard.views.computing import known_compute
from whyidle.dashboard.views.job import Gpus
from whyidle.dashboard.views.marks import News
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Course, Courses
from whyidle.dashboard.views.time_range import FEW_POINTS, RANGES
from whyidle.dashboard.widgets import write
from whyidle.monitor.control import client
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import numbers
from whyidle.monitor.store import Event, Run

# While a trace is on its way, it is asked how far it has come.
_TRACE_SECONDS: Final = 1.0


def tiles(asked: Asked) -> str:
    """Return the numbers of this moment; of a run that is over, their means."""
    told, newest = asked.told, asked.newest
    share, who = computing(asked)
    return markup.tiles([
        _busy(told, newest, asked.gpus),
        Tile("Computing", None if share is None else numbers.show(share, "ratio"), who),
        _number("Step", told, newest, m.JOB_STEP_P50),
        _number("Steps", told, newest, m.JOB_STEPS),
        _number("Samples", told, newest, m.JOB_SAMPLES),
    ])  # fmt: skip


def _number(name: str, told: Courses, newest: Newest, metric: Metric) -> Tile:
    if not told.span.is_live:
        return _mean(name, told.one(metric, told.run))
    known = newest.get(metric, told.run)
    return Tile(name, _shown(known.value, metric), known.why)


def _mean(name: str, course: Course) -> Tile:
    value = course.mean
    note = "mean of what is shown" if value is not None else course.unknown or ""
    return Tile(name, _shown(value, course.metric), note)


def _shown(value: float | None, metric: Metric) -> str | None:
    return None if value is None else numbers.show(value, metric.unit)


def _busy(told: Courses, newest: Newest, gpus: Gpus) -> Tile:
    name, metric = "GPU utilisation", m.GPU_UTILISATION
    if not gpus.shown:
        return Tile(name, None, gpus.problem or "")
    if not told.span.is_live:
        return _mean(name, told.mean(metric, gpus.shown, points=FEW_POINTS))
    known = [newest.get(metric, gpu.id) for gpu in gpus.shown]
    values = [each.value for each in known if each.value is not None]
    missing = [f"{gpu.name}: {each.why}" for gpu, each in zip(gpus.shown, known, strict=True)
               if each.value is None]  # fmt: skip
    mean = sum(values) / len(values) if values else None
    several = f"{min(values):.0%} to {max(values):.0%}" if len(values) > 1 else ""
    note = "; ".join(x for x in (several, *missing[:2]) if x)
    return Tile(name, _shown(mean, metric), note or "kernels ran in this share of the time")


def accounted(asked: Asked) -> tuple[BudgetJson | None, str]:
    """Return where the time of the shown range goes and who says so; or why nobody knows."""
    run, seconds = asked.shown.run.id, RANGES.get(asked.shown.range)
    store = settings.current().store
    return asked.seldom(f"account {seconds}", lambda: job.account(store, run, seconds))


def computing(asked: Asked) -> tuple[float | None, str]:
    """Return which share of the shown range computes, and who says so; or why nobody knows."""
    budget, who = accounted(asked)
    if budget is None:
        return None, who
    is_counted = bool(asked.gpus.mine) and not asked.gpus.problem
    return known_compute(budget, who, counted=is_counted)


def finding(answer: DiagnosisJson, run: Run) -> str:
    """Return what costs most and the risks beside it, and where to read how each is fixed."""
    told = findings.lead(answer["findings"])
    if told is None:
        words = "Nothing found that costs time." if answer["is_known"] else (
            "Nothing found yet: it is not known where most of the time goes."
        )  # fmt: skip
        return f'<p class="w-verdict">{safe(words)}</p>'
    more = f" · {told.more} more" if told.more else ""
    beside = (_finding(each, run, "What to do about it") for each in told.beside)
    return "".join([_finding(told.first, run, "How to fix it", more), *beside])


def _finding(told: FindingJson, run: Run, way: str, more: str = "") -> str:
    gain = told["speedup"]
    gives = f" A fix makes steps {gain[0]:.1f} to {gain[1]:.1f}x faster." if gain else ""
    place = told["where"][0] if told["where"] else None
    at = f"{place['file']}:{place['line']} in {place['function']}" if place else ""
    link = markup.link("fix", way, run=run.id, finding=told["rule"])
    return (
        f'<p class="w-verdict">{markup.chip(told["severity"])}<b>{safe(told["title"])}</b>'
        f'{safe(gives)} <span class="w-mono">{safe(at)}</span> {link}{safe(more)}</p>'
    )


def events(told: News) -> str:
    """Return what happened, the newest first."""
    if not told.events:
        return ""
    more = f"{told.more} more before these" if told.more else ""
    rows = "".join(_event(event) for event in told.events)
    return f'{markup.title("What happened", more)}<table class="w-grid">{rows}</table>'


def _event(event: Event) -> str:
    chip = markup.chip(event.severity) if event.severity != "info" else ""
    return f"<tr><td class=w-when>{_clock(event.ts_ms)}</td><td>{chip}{safe(event.text)}</td></tr>"


def _clock(ts_ms: int) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(ts_ms / 1000))


# A trace on demand -------------------------------------------------------------------------------
def trace(shown: Shown) -> None:
    """Let a trace be taken now; the recorder does it, and says how far it has come."""
    if settings.current().is_sample or not shown.run.is_recording:
        return
    waits = st.session_state.get("trace_of") == shown.run.id
    st.fragment(_trace, run_every=_TRACE_SECONDS if waits else None)(shown.run.id)


def _trace(run: int) -> None:
    store = settings.current().store
    waits = st.session_state.get("trace_of") == run
    try:
        if st.button("Take a trace now", key="trace", disabled=waits):
            client.ask_trace(store, run)
            st.session_state["trace_of"] = run
            st.session_state.pop("trace_told", None)
            st.rerun()
        told = st.session_state.get("trace_told")
        if waits:
            told = client.state(store, run)
            st.session_state["trace_told"] = told
            if told.is_over:
                st.session_state.pop("trace_of", None)
                st.rerun()
    except Problem as problem:
        st.session_state.pop("trace_of", None)
        widgets.unknown("No trace", problem.what, problem.next_step)
        return
    if told is not None:
        _trace_told(told, run)


def _trace_told(told: client.Asked, run: int) -> None:
    if told.state == client.State.REFUSED:
        widgets.unknown("No trace", told.what, told.next_step)
        return
    link = ""
    if told.trace is not None:
        link = markup.link("timeline", "See it", run=run, trace=told.trace)
    write(f'<p class="w-note">{safe(told.what)} {link}</p>')
