"""The sidebar: the state of the recording, what it costs, and its label."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.markup import safe
from whyidle.dashboard.views import health as views
from whyidle.dashboard.views import job
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.widgets import write
from whyidle.monitor.control import client
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.render.numbers import duration
from whyidle.monitor.store import Reader, Run

_LABELLED: Final = "labelled"


def run(reader: Reader, run: Run) -> None:
    """Show the current state of the run and its recording."""
    _about(run)
    health(reader, run)


def _about(run: Run) -> None:
    """Describe the run in a few small lines."""
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


def health(reader: Reader, run: Run) -> None:
    """Show what the recording costs, which sources report, and what went wrong."""
    state_of = views.health(reader, run)
    if state_of.silent_s is not None:
        write(markup.alarm(f"The recorder has been silent for {duration(state_of.silent_s)}."))
    elif not run.is_recording and run.ended_ms is None:
        write(markup.alarm(f"{job.state(run).capitalize()}. {_last_contact(reader, run)}"))
    newest = "Newest value" if run.is_recording else "Newest value at the end"
    lines = [_pairs("Monitor overhead", state_of.cost), _pairs(newest, state_of.ages)]
    lines.append(_line(f"Agent: {state_of.agent}"))
    if state_of.agent_why:
        lines.append(_line(state_of.agent_why))
    if state_of.agent_step:
        lines.append(f'<div class="w-mono w-sub">{safe(state_of.agent_step)}</div>')
    for event in state_of.trouble:
        when = time.strftime("%H:%M:%S", time.localtime(event.ts_ms / 1000))
        lines.append(_line(f"! {when} {event.text}"))
    write(f'<details class="w-health" open><summary>Health</summary>{"".join(lines)}</details>')
    if state_of.reasons:
        reasons = "".join(_line(reason) for reason in state_of.reasons)
        write(f'<details class="w-health"><summary>Unknown</summary>{reasons}</details>')


def _last_contact(reader: Reader, run: Run) -> str:
    values = Newest.of(reader, run).values.values()
    last = max((value.ts_ms for value in values), default=None)
    if last is None:
        return "Nothing was received from it."
    return f"It was last heard from at {time.strftime('%H:%M:%S', time.localtime(last / 1000))}."


def label(run: Run) -> None:
    """Let the user label the run; its recorder stores the label."""
    if settings.current().is_sample:
        return
    with st.expander("Label this run"):
        if not run.is_recording:
            widgets.note("It is no longer recorded. Type:")
            st.code(f"monitor runs {run.id} --label NAME", language="bash", wrap_lines=True)
            return
        with st.form("label", border=False):
            wanted = st.text_input("Label", value=run.label or "", label_visibility="collapsed")
            if st.form_submit_button("Save"):
                _save(run, wanted)
    if st.session_state.get(_LABELLED) == (run.id, run.label or ""):
        named = f"is now called {run.label}" if run.label else "has no label now"
        widgets.note(f"Saved: the run {named}.")


def _save(run: Run, wanted: str) -> None:
    try:
        kept = client.set_label(settings.current().store, run.id, wanted.strip())
    except Problem as problem:
        widgets.unknown("Not saved", problem.what, problem.next_step)
    else:
        st.session_state[_LABELLED] = run.id, kept
        # The run picker shows the label.
        st.rerun()


def _pairs(name: str, pairs: Mapping[str, str]) -> str:
    return f'<div class="w-row"><b>{safe(name)}</b></div>{"".join(_rows(pairs))}'


def _rows(pairs: Mapping[str, str]) -> Iterable[str]:
    for name, value in pairs.items():
        yield f'<div class="w-row"><span>{safe(name)}</span><span>{safe(value)}</span></div>'


def _line(text: str) -> str:
    return f'<div class="w-sub">{safe(text)}</div>'
