"""Parts of the page Now: its tiles, its top finding, its events, and a trace on demand."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import streamlit as st
from msgspec import structs

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.markup import Tile, safe
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import findings, job
from whyidle.dashboard.views.job import Gpus, known_compute
from whyidle.dashboard.views.marks import News
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Series, SeriesSource
from whyidle.dashboard.views.time_range import FEW_POINTS, RANGES
from whyidle.dashboard.widgets import write
from whyidle.monitor.control import client
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import finding_text, numbers
from whyidle.monitor.store import Event, Run

# The latest ones of many.
_MOST_RANKS: Final = 8
# How often to ask for the state of a trace that is being taken.
_TRACE_SECONDS: Final = 1.0


def tiles(data: PageData) -> str:
    """Return the current numbers; for a run that is over, their means."""
    series, newest = data.series, data.newest
    share, who = computing(data)
    return markup.tiles([
        _busy(series, newest, data.gpus),
        Tile("Computing", None if share is None else numbers.show(share, "ratio"), who),
        _number("Step", series, newest, m.JOB_STEP_P50),
        _number("Steps", series, newest, m.JOB_STEPS),
        _number("Samples", series, newest, m.JOB_SAMPLES),
    ])  # fmt: skip


def _number(name: str, series: SeriesSource, newest: Newest, metric: Metric) -> Tile:
    if not series.span.is_live:
        return _mean(name, series.one(metric, series.run))
    known = newest.get(metric, series.run)
    return Tile(name, _shown(known.value, metric), known.why)


def _mean(name: str, series: Series) -> Tile:
    value = series.mean
    note = "mean of the shown range" if value is not None else series.unknown or ""
    return Tile(name, _shown(value, series.metric), note)


def _shown(value: float | None, metric: Metric) -> str | None:
    return None if value is None else numbers.show(value, metric.unit)


def _busy(series: SeriesSource, newest: Newest, gpus: Gpus) -> Tile:
    name, metric = "GPU utilisation", m.GPU_UTILISATION
    if not gpus.shown:
        return Tile(name, None, gpus.problem or "")
    if not series.span.is_live:
        return _mean(name, series.mean(metric, gpus.shown, points=FEW_POINTS))
    known = [newest.get(metric, gpu.id) for gpu in gpus.shown]
    values = [each.value for each in known if each.value is not None]
    missing = [f"{gpu.name}: {each.why}" for gpu, each in zip(gpus.shown, known, strict=True)
               if each.value is None]  # fmt: skip
    mean = sum(values) / len(values) if values else None
    several = f"{min(values):.0%} to {max(values):.0%}" if len(values) > 1 else ""
    note = "; ".join(x for x in (several, *missing[:2]) if x)
    return Tile(name, _shown(mean, metric), note or "kernels ran in this share of the time")


def accounted(data: PageData) -> tuple[BudgetJson | None, str]:
    """Return where the time of the shown range goes and its source; or why it is unknown."""
    run, seconds = data.shown.run.id, RANGES.get(data.shown.range)
    store = settings.current().store
    return data.seldom(f"account {seconds}", lambda: job.account(store, run, seconds))


def computing(data: PageData) -> tuple[float | None, str]:
    """Return the share of compute in the shown range and its source; or why it is unknown."""
    budget, who = accounted(data)
    if budget is None:
        return None, who
    is_counted = bool(data.gpus.mine) and not data.gpus.problem
    return known_compute(budget, who, counted=is_counted)


def finding(answer: DiagnosisJson, run: Run) -> str:
    """Return the costliest finding and the risks beside it, with links to their fixes."""
    said, lead = answer.verdict, findings.lead(answer)
    verdict = f'<p class="w-verdict"><b>{safe(said.text)}</b></p>'
    if lead is None:
        return verdict
    if lead.first.rule == said.rule:
        verdict, lead = "", replace(lead, first=structs.replace(lead.first, title=said.text))
    more = f" · {lead.more} more" if lead.more else ""
    beside = (_finding(each, run, "What to do about it") for each in lead.beside)
    first = _finding(lead.first, run, "How to fix it", more)
    return "".join([verdict, first, *beside])


def _finding(found: FindingJson, run: Run, way: str, more: str = "") -> str:
    said = finding_text.of(found)
    gives = f" A fix makes steps {said.factor}." if said.factor else ""
    at = "".join(f"{place.at} in {place.function}" for place in said.places[:1])
    link = markup.link("fix", way, run=run.id, finding=found.rule)
    return (
        f'<p class="w-verdict">{markup.chip(found.severity)}<b>{safe(said.title)}</b>'
        f'{safe(gives)} <span class="w-mono">{safe(at)}</span> {link}{safe(more)}</p>'
    )


def ranks(answer: DiagnosisJson) -> str:
    """Return how much each rank waits, and who comes last; nothing for a job of one."""
    known = answer.ranks
    if not known:
        return ""
    straggler = None if known.straggler is None else known.straggler.rank
    late = {straggler, *known.alike} - {None}
    shown = sorted(known.each, key=lambda rank: -rank.late[0])[:_MOST_RANKS]
    rows = [
        (
            f"rank {rank.rank}",
            numbers.show(rank.host_shares.get("waits", 0.0), "ratio"),
            numbers.show(rank.late[0], "ratio") if rank.rank in late else "",
            "comes last" if rank.rank in late else "",
        )
        for rank in sorted(shown, key=lambda rank: rank.rank or 0)
    ]
    more = len(known.each) - len(rows)
    head = markup.title("Ranks", f"{more} more wait alike" if more else "by their main threads")
    columns = ("", "waits", "the others wait for it, at least", "")
    return head + markup.table(columns, rows, right={1, 2})


def events(news: News) -> str:
    """Return the events, the newest first."""
    if not news.events:
        return ""
    more = f"{news.more} earlier ones not shown" if news.more else ""
    rows = "".join(_event(event) for event in news.events)
    return f'{markup.title("What happened", more)}<table class="w-grid">{rows}</table>'


def _event(event: Event) -> str:
    chip = markup.chip(event.severity) if event.severity != "info" else ""
    return f"<tr><td class=w-when>{_clock(event.ts_ms)}</td><td>{chip}{safe(event.text)}</td></tr>"


def _clock(ts_ms: int) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(ts_ms / 1000))


# A trace on demand -------------------------------------------------------------------------------
def trace(shown: PageState) -> None:
    """Let the user take a trace; the recorder takes it, and reports its progress."""
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
        status = st.session_state.get("trace_told")
        if waits:
            status = client.state(store, run)
            st.session_state["trace_told"] = status
            if status.is_over:
                st.session_state.pop("trace_of", None)
                st.rerun()
    except Problem as problem:
        st.session_state.pop("trace_of", None)
        widgets.unknown("No trace", problem.what, problem.next_step)
        return
    if status is not None:
        _trace_status(status, run)


def _trace_status(status: client.Asked, run: int) -> None:
    if status.state == client.State.REFUSED:
        widgets.unknown("No trace", status.what, status.next_step)
        return
    link = ""
    if status.trace is not None:
        link = markup.link("timeline", "See it", run=run, trace=status.trace)
    write(f'<p class="w-note">{safe(status.what)} {link}</p>')
