"""A change tried in the running job: the buttons beside a finding, and the try as it goes."""

from __future__ import annotations

import streamlit as st

from whyidle.dashboard import settings, trying, widgets
from whyidle.dashboard.figures import turns
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.markup import safe
from whyidle.dashboard.views import tries
from whyidle.dashboard.views.tries import Tried
from whyidle.dashboard.widgets import write
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.store import Run


def offer(finding: FindingJson, run: Run) -> None:
    """Offer what can be tried for a finding: as buttons where that is allowed, else in words."""
    found = tries.knobs(finding.rule) if run.is_recording and run.target_pid else []
    if not found:
        return
    widgets.title("Try it in the running job", "in turns with what was before, then taken back")
    if not settings.current().allow_actions:
        lines = [f"monitor try {run.target_pid} {knob.name}" for knob in found]
        st.code("\n".join(lines), language="bash")
        return
    going = trying.of(run.id)
    with st.container(horizontal=True, key=f"tries-{finding.rule}"):
        for knob in found:
            st.button(
                f"Try {knob.name}",
                key=f"try-{finding.rule}-{knob.name}",
                help=f"{knob.does} Risk: {knob.risk}",
                disabled=going is not None and going.is_running,
                on_click=trying.start,
                args=(settings.current().store, run, knob.name),
            )
    widgets.note("What comes of it is drawn at the head of this page, block by block.")


def panel(shown: PageState) -> None:
    """Draw the last try of the run, while it goes on and after."""
    started = trying.of(shown.run.id)
    found = tries.last(shown.reader, shown.run.id)
    goes_on = started is not None and started.is_running
    if started is not None and started.failure:
        widgets.unknown(f"{started.knob} was not tried", started.failure)
    if found is None or (found.ended is not None and goes_on):
        if goes_on and started is not None:
            widgets.title(f"Trying {started.knob}", "the job is watched first")
            _stop(shown.run)
        return
    widgets.title(f"{'Tried' if found.ended else 'Trying'} {found.knob}", _note(found))
    if found.pairs:
        widgets.chart(turns.turns("turns", found.pairs, found.most), "turns")
    if found.ended:
        write(f'<p class="w-note">{safe(found.ended)}</p>')
    elif goes_on:
        _stop(shown.run)


def _note(found: Tried) -> str:
    words = f"{len(found.pairs)} of at most {found.most} pairs" if found.most else "it has begun"
    if found.ratio is not None:
        low, middle, high = found.ratio
        words += f" · {middle:.2f}x ({low:.2f} to {high:.2f}) of the speed without it"
    return words


def _stop(run: Run) -> None:
    st.button("Stop, and take it back", key="try-stop", on_click=trying.stop, args=(run.id,))
