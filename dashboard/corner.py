"""The corner of the page that is about us: how the recording is, and what it is called."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import streamlit as st

from whyidle.dashboard import parts, settings
from whyidle.dashboard.parts import safe, write
from whyidle.dashboard.views import health as views
from whyidle.monitor.control import client
from whyidle.monitor.errors import Problem
from whyidle.monitor.render.numbers import duration
from whyidle.monitor.store import Reader, Run


def health(reader: Reader, run: Run) -> None:
    """Show what the recording costs, who tells something, and what went wrong."""
    told = views.health(reader, run)
    if told.silent_s is not None:
        words = f"The recorder has been silent for {duration(told.silent_s)}."
        write(f'<div class="w-alarm">{safe(words)}</div>')
    lines = [_pairs("Own cost", told.cost), _pairs("Newest value", told.ages)]
    lines.append(_line(f"Agent: {told.agent}"))
    if told.agent_why:
        lines.append(_line(told.agent_why))
    if told.agent_step:
        lines.append(f'<div class="w-mono w-sub">{safe(told.agent_step)}</div>')
    for event in told.trouble:
        when = time.strftime("%H:%M:%S", time.localtime(event.ts_ms / 1000))
        lines.append(_line(f"! {when} {event.text}"))
    write(f'<details class="w-health" open><summary>Health</summary>{"".join(lines)}</details>')
    if told.reasons:
        reasons = "".join(_line(reason) for reason in told.reasons)
        write(f'<details class="w-health"><summary>Not known</summary>{reasons}</details>')


def label(run: Run) -> None:
    """Let the run be called something: its recorder writes that down."""
    if settings.current().is_sample:
        return
    with st.expander("Label this run"), st.form("label", border=False):
        wanted = st.text_input("Label", value=run.label or "", label_visibility="collapsed")
        if st.form_submit_button("Save"):
            _save(run, wanted)


def _save(run: Run, wanted: str) -> None:
    try:
        client.set_label(settings.current().store, run.id, wanted.strip())
    except Problem as problem:
        parts.unknown("Not saved", problem.what, problem.next_step)
    else:
        # The picker shows it.
        st.rerun()


def _pairs(name: str, told: Mapping[str, str]) -> str:
    return f'<div class="w-row"><b>{safe(name)}</b></div>{"".join(_rows(told))}'


def _rows(told: Mapping[str, str]) -> Iterable[str]:
    for name, value in told.items():
        yield f'<div class="w-row"><span>{safe(name)}</span><span>{safe(value)}</span></div>'


def _line(text: str) -> str:
    return f'<div class="w-sub">{safe(text)}</div>'
