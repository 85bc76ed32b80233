"""The line above every page: which job, since when, live or ended; and how the recording is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, settings, widgets
from whyidle.dashboard.blocks import Html
from whyidle.dashboard.markup import safe
from whyidle.dashboard.views import health as views
from whyidle.dashboard.views import job
from whyidle.dashboard.views.health import Health
from whyidle.dashboard.views.newest import Newest
from whyidle.monitor.control import client
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.render.numbers import duration
from whyidle.monitor.store import Reader, Run

_LABELLED: Final = "labelled"


def show(reader: Reader, run: Run) -> None:
    """Show which job this is, and whether its recording is well; details open on a click."""
    found = views.health(reader, run)
    trouble = "".join(_alarms(reader, run, found))
    widgets.board("header", [Html(
        f'<div class="w-top">{markup.brand()}{_about(reader, run)}{_health(run, found)}</div>'
        f"{trouble}"
    )])  # fmt: skip


def _about(reader: Reader, run: Run) -> str:
    """Name the run: what runs, since when, and where."""
    began = time.localtime(run.started_ms / 1000)
    end = time.time() * 1000 if run.is_recording else run.ended_ms
    lasted = [] if end is None else [duration(max(0.0, (end - run.started_ms) / 1000))]
    gpus = job.gpus(reader, run, everything=False)
    facts = [*lasted, f"since {time.strftime('%Y-%m-%d %H:%M', began)}", run.framework, gpus.names]
    live = " w-live" if run.is_recording else ""
    name = " · ".join(x for x in (run.label, run.script or run.command) if x) or "job"
    return (
        f'<b class="w-job">{safe(name)}</b><span class="w-state{live}">{safe(job.state(run))}'
        f'</span><span class="w-sub">{safe(" · ".join(x for x in facts if x))}</span>'
    )


def _alarms(reader: Reader, run: Run, found: Health) -> Iterable[str]:
    if found.silent_s is not None:
        yield markup.alarm(f"The recorder has been silent for {duration(found.silent_s)}.")
    elif not run.is_recording and run.ended_ms is None:
        yield markup.alarm(f"{job.state(run).capitalize()}. {_last_contact(reader, run)}")


def _health(run: Run, found: Health) -> str:
    """Return a dot that opens what the recording costs, who reports, and what went wrong."""
    lines = [_line(f"pid {run.target_pid} of {run.user or ''}@{run.host or ''}"),
             _pairs("Monitor overhead", found.cost)]  # fmt: skip
    if run.is_recording:
        lines.append(_pairs("Newest value", found.ages))
    lines.append(_line(f"Agent: {found.agent}"))
    if found.agent_why:
        lines.append(_line(found.agent_why))
    if found.agent_step:
        lines.append(f'<div class="w-mono w-sub">{safe(found.agent_step)}</div>')
    for event in found.trouble:
        when = time.strftime("%H:%M:%S", time.localtime(event.ts_ms / 1000))
        lines.append(_line(f"! {when} {event.text}"))
    if found.reasons:
        lines += ['<div class="w-row"><b>Unknown</b></div>', *map(_line, found.reasons)]
    ill = found.trouble or found.silent_s is not None
    dot = "w-amber" if ill else "w-well"
    said = "recorder: trouble" if ill else "recorder"
    return (
        f'<details class="w-health" data-key="health"><summary><i class="w-lamp {dot}"></i>{said}'
        f'</summary><div class="w-panel">{"".join(lines)}</div></details>'
    )


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
