"""The ranks of a job on the page Timeline: which are shown, and who came last to what."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, widgets
from whyidle.dashboard.views import timeline, timeline_ranks
from whyidle.dashboard.views.timeline import TickRange
from whyidle.dashboard.views.timeline_ranks import Comers
from whyidle.monitor.core.contracts.trace import RanksJson
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.ranks import verdict
from whyidle.monitor.store.stored_traces import KeptTrace

RANKS: Final = "ranks"
_Key = tuple[str, int, int]
_PICK: Final = "pick-ranks"


def pick(trace: KeptTrace) -> tuple[int, ...]:
    """Draw the picker of ranks; a link names them by their places."""
    found = _ranks(trace)
    names = timeline.device_names(trace.answer)
    usual = timeline_ranks.usual(found)
    linked = [int(i) for i in st.query_params.get(RANKS, "").split(".") if i.isdecimal()]
    begin = [i for i in dict.fromkeys(linked) if i < len(names)][: timeline_ranks.MOST]

    def chosen() -> None:
        some = st.session_state[_PICK]
        if some and some != usual:
            st.query_params[RANKS] = ".".join(map(str, some))
        else:
            st.query_params.pop(RANKS, None)

    some = st.multiselect(
        "Ranks", range(len(names)), default=begin or usual, key=_PICK,
        format_func=lambda i: timeline.for_picker(names[i]),
        max_selections=timeline_ranks.MOST, on_change=chosen,
    )  # fmt: skip
    return tuple(some or usual)


def forget() -> None:
    """Forget the chosen ranks: another job has others."""
    st.session_state.pop(_PICK, None)
    st.query_params.pop(RANKS, None)


def said(trace: KeptTrace, shown: Sequence[int]) -> None:
    """Say who is late in the whole trace, what is not shown, and what could not be compared."""
    found = _ranks(trace)
    widgets.title(verdict(found))
    lines = [timeline_ranks.hidden(found, shown), *timeline_ranks.apart(found, shown)]
    lines += [f"⚠ {text}" for text in found["warnings"]]
    widgets.write("".join(markup.note(line) for line in lines if line))


@st.cache_data(show_spinner=False, max_entries=24)
def comers(key: _Key, part: TickRange) -> Comers:
    """Return who came last in a window."""
    return timeline_ranks.comers(Path(key[0]), key[1], part)


def last(found: Comers) -> None:
    """List who came last to which collective, and what it did before."""
    if not found.rows:
        widgets.note("No collective of several ranks ends in this window.")
        return
    body = "".join(
        f"<tr><td class=n>{clock(row.ended_ns)}</td><td>{markup.safe(row.what)}</td>"
        f"<td>{markup.safe(row.last)}</td><td class=n>{row.waited}</td>"
        f"<td>{markup.safe(row.before)}</td></tr>"
        for row in found.rows
    )
    head = (
        "<tr><th class=n>ends at</th><th>collective</th><th>last to come</th>"
        "<th class=n>the others wait</th><th>what it did since its collective before</th></tr>"
    )
    widgets.write(f'<table class="w-grid">{head}{body}</table>')
    note = "A dotted line shows when the last rank came."
    if found.count > len(found.rows):
        note += (
            f" Of {found.count} collectives these are the {len(found.rows)} in which the others"
            " wait the longest: zoom in to see the rest."
        )
    widgets.note(note)


def _ranks(trace: KeptTrace) -> RanksJson:
    found = timeline.ranks_of(trace)
    assert found is not None  # noqa: S101  asked by whoever calls
    return found


def alone(trace: KeptTrace, shown: Sequence[int]) -> None:
    """Say how to look at one rank with its host's threads."""
    file = trace.path / _ranks(trace)["each"][shown[0]]["file"]
    if file.is_file():
        widgets.note("One rank alone, with what its host did:")
        st.code(f"monitor trace {shlex.quote(str(file))}", language=None)
