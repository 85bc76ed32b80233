"""Parts of the page Now: its tiles, its top finding, its events, and a trace on demand."""

from __future__ import annotations

import time
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.markup import Tile, safe
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import findings, job, source
from whyidle.dashboard.views.job import Gpus, known_compute
from whyidle.dashboard.views.marks import News
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Series, SeriesSource
from whyidle.dashboard.views.time_range import FEW_POINTS, RANGES
from whyidle.dashboard.widgets import write
from whyidle.monitor.control import client
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson, PlaceJson
from whyidle.monitor.core.contracts.trace import BudgetJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.prices import Prices
from whyidle.monitor.render import finding_text, numbers
from whyidle.monitor.store import Event, Run

# The latest ones of many.
_MOST_RANKS: Final = 8
# How often to ask for the state of a trace that is being taken.
_TRACE_SECONDS: Final = 1.0


def tiles(data: PageData) -> str:
    """Return the current numbers; for a run that is over, their means."""
    series, newest = data.series, data.newest
    of_steps = _number("Steps", series, newest, m.JOB_STEPS)
    step = _number("Step", series, newest, m.JOB_STEP_P50)
    note = f"{step.value} a step" if step.value is not None else step.note
    return markup.tiles([
        _busy(series, newest, data.gpus),
        of_steps if of_steps.value is None else of_steps._replace(note=note),
        _lost(data),
        _held(data),
    ])  # fmt: skip


def _lost(data: PageData) -> Tile:
    """Return the hours of its GPUs in which nothing was computed, and what they cost."""
    name = "GPU time lost"
    share, why = computing(data)
    if share is None or not data.gpus.mine:
        return Tile(name, None, why if share is None else data.gpus.problem or job.NONE_READ)
    whole = len(data.gpus.mine) * data.span.seconds
    lost = whole * (1 - share)
    money, _ = Prices.here().of(None, lost / 3600)
    paid = "" if money is None else f"{numbers.money(money, Prices.here().currency)}; "
    return Tile(name, _hours(lost), f"{paid}of {_hours(whole)}")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else numbers.duration(seconds)


def _held(data: PageData) -> Tile:
    """Return the memory in use on all GPUs shown, or of the job's processes where there is none."""
    if not data.chosen:
        return _number("Memory", data.series, data.newest, m.JOB_RSS)
    name, words = "GPU memory", []
    if data.span.is_live:
        newest = (data.newest.get(m.GPU_MEMORY_USED, gpu.id) for gpu in data.chosen)
        used = [(each.value, each.why) for each in newest]
    else:
        words = ["at most"]
        series = data.series.of(m.GPU_MEMORY_USED, data.chosen)
        used = [(each.peak and each.peak[1], each.unknown or "") for each in series]
    # A sum is known where each part of it is.
    unknown = next((why for value, why in used if value is None), None)
    if unknown is not None:
        return Tile(name, None, unknown)
    whole = [data.newest.get(m.GPU_MEMORY_TOTAL, gpu.id).value for gpu in data.chosen]
    if None not in whole:
        words.append(f"of {numbers.size(sum(each or 0.0 for each in whole))}")
    return Tile(name, numbers.size(sum(value or 0.0 for value, _ in used)), ", ".join(words))


def _number(name: str, series: SeriesSource, newest: Newest, metric: Metric) -> Tile:
    if not series.span.is_live:
        return _mean(name, series.one(metric, series.run))
    known = newest.get(metric, series.run)
    return Tile(name, _shown(known.value, metric), known.why)


def _mean(name: str, series: Series) -> Tile:
    value = series.mean
    note = "on average" if value is not None else series.unknown or ""
    return Tile(name, _shown(value, series.metric), note)


def _shown(value: float | None, metric: Metric) -> str | None:
    return None if value is None else numbers.show(value, metric.unit)


def _busy(series: SeriesSource, newest: Newest, gpus: Gpus) -> Tile:
    name, metric = "GPU in use", m.GPU_UTILISATION
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
    return Tile(name, _shown(mean, metric), note or "of the time a kernel ran")


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


def verdict(answer: DiagnosisJson, run: Run) -> str:
    """Return what is wrong, where, what to do and what that gives; then the risks beside it."""
    said, lead = answer.verdict, findings.lead(answer)
    # The place stands below it, with its line of source.
    cause = f'<p class="w-cause">{safe(said.what or said.text)}</p>'
    if lead is None:
        return f'<div class="w-answer"><div>{cause}</div></div>'
    first = lead.first
    where = said.where or first.where
    left = f"{markup.chip(first.severity)}{cause}{_line(where[0], run) if where else ''}"
    others = [_beside(each, run) for each in lead.beside]
    card = f'<div>{left}</div><div class="w-gain">{_gain(first, said.rule, run, lead.more)}</div>'
    return f'<div class="w-answer">{card}</div>{"".join(others)}'


def _line(place: PlaceJson, run: Run) -> str:
    """Return a place, and its own line of source."""
    code, said, text = source.around(place, run), finding_text.place(place), ""
    if not isinstance(code, str):
        line = code.lines[code.line - code.first].strip()
        text = f'<code class="w-source">{safe(line)}</code>'
    return f'<div class="w-mono">{safe(f"{said.at} in {said.function}")}</div>{text}'


def _gain(first: FindingJson, rule: str | None, run: Run, more: int) -> str:
    said = finding_text.of(first)
    title = "" if first.rule == rule else f'<p class="w-title">{safe(said.title)}</p>'
    expected, _, between = said.factor.partition(" (")
    gain = f'<div class="w-big">{safe(expected)}</div>' if expected else ""
    around = f'<div class="w-sub">{safe(between.rstrip(")"))}</div>' if between else ""
    remedy = next(iter(first.fixes.values()), None)
    fix = f"<p>{safe(finding_text.to_do(remedy, first.where))}.</p>" if remedy else ""
    button = markup.link("fix", "Show the fix", run=run.id, finding=first.rule)
    rest = f' <span class="w-sub">{more} more found</span>' if more else ""
    return f'{title}{gain}{around}{fix}<div class="w-button">{button}</div>{rest}'


def _beside(found: FindingJson, run: Run) -> str:
    link = markup.link("fix", "What to do about it", run=run.id, finding=found.rule)
    return f'<p class="w-risk">{markup.chip(found.severity)}<b>{safe(found.title)}</b> {link}</p>'


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
