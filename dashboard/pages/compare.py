"""Compare: did a change help, by how much beyond chance, and where did the time go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import frame, settings, widgets
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import _comparison, _tables
from whyidle.dashboard.pages.fix import EVERY
from whyidle.dashboard.views import comparison, job, runs
from whyidle.dashboard.views.comparison import Compared
from whyidle.dashboard.widgets import write
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.store import Reader, Run

TITLE: Final = "Compare"
_CHOSEN_FOR: Final = "compared-for"


def page(shown: PageState) -> None:
    """Draw the choice of two runs, and what differs between them."""
    write(_tables.STYLE)
    chosen = _choose(shown)
    if chosen is None:
        return

    def draw(now: PageState) -> None:
        # A run that is still being recorded has moved on.
        found = [now.reader.run(run.id) for run in chosen]
        _beside(now.reader, found[0] or chosen[0], found[1] or chosen[1])

    moves = any(run.is_recording for run in chosen) and not shown.is_paused
    frame.live(draw, shown, EVERY if moves else None)


def _choose(shown: PageState) -> tuple[Run, Run] | None:
    """Return the two runs; ``None`` if the user has to choose first."""
    known = {str(run.id): run for run in shown.reader.runs()[-runs.MOST_RUNS :][::-1]}
    if len(known) < 2:
        widgets.unknown("Nothing to compare with", "this is the only recording",
                      "monitor run --label after -- CMD")  # fmt: skip
        return None
    _begin(shown, known)
    left, right, swap = st.columns([5, 5, 1], vertical_alignment="bottom")
    with left:
        a = _picked("a", "A, before", known)
    with right:
        b = _picked("b", "B, after", known)
    swap.button("Swap", on_click=_swap, width="stretch")
    chosen = {which: run for which, run in (("a", a), ("b", b)) if run is not None}
    if any(st.query_params.get(which) != run for which, run in chosen.items()):
        # Both at once: each update is an entry in the browser's history.
        st.query_params.update(chosen)
    if a is None or b is None:
        widgets.unknown("Two runs", "no other run of this program is recorded: choose both")
        return None
    if a == b:
        widgets.unknown("Two runs", "A and B are the same recording: choose another one")
        return None
    return known[a], known[b]


def _begin(shown: PageState, known: Mapping[str, Run]) -> None:
    """Preselect the runs that the link names, else a sensible pair."""
    state, chosen = st.session_state, shown.run.id
    is_another = state.get(_CHOSEN_FOR, chosen) != chosen
    first = dict(zip("ab", _pair(shown, known), strict=True))
    for which, run in first.items():
        linked = st.query_params.get(which)
        if is_another or which not in state:
            # Another run in the sidebar brings its own pair.
            is_named = linked in known and not is_another
            state[which] = linked if is_named else None if run is None else str(run.id)
    state[_CHOSEN_FOR] = chosen


def _pair(shown: PageState, known: Mapping[str, Run]) -> tuple[Run | None, Run | None]:
    """Return the runs to compare, the improved one second."""
    a, b = runs.beside(list(known.values()), shown.run)
    if settings.current().is_sample and a is not None and b is not None:
        # In the sample show the improvement, whichever run was recorded first.
        store = settings.current().store
        first, second = (_lost(job.diagnosis(store, run.id)) for run in (a, b))
        if second > first:
            return b, a
    return a, b


def _lost(answer: DiagnosisJson) -> float:
    """Return the share of the time that its worst fault costs at least."""
    return max((each.lost_share[0] for each in answer.findings if each.lost_share), default=0.0)


def _picked(which: str, words: str, known: Mapping[str, Run]) -> str | None:
    """Draw a picker, and return the chosen run's number."""
    # Set each time: the browser identifies an entry by its text, which may change.
    st.session_state[which] = st.session_state[which]
    return st.selectbox(
        words, list(known), index=None, key=which, placeholder="Choose a run",
        format_func=lambda name: runs.called(known[name]),
    )  # fmt: skip


def _swap() -> None:
    state = st.session_state
    state["a"], state["b"] = state["b"], state["a"]


def _beside(reader: Reader, a: Run, b: Run) -> None:
    until = _until(reader, a), _until(reader, b)
    found = _compared(str(settings.current().store), a.id, b.id, until)
    _comparison.page(found, a.id, b.id)
    widgets.title("In a terminal")
    st.code(f"monitor compare {a.id} {b.id}", language="bash")


def _until(reader: Reader, run: Run) -> tuple[object, ...]:
    """Return a key that changes when the answer may: for an ended run, when it gets a trace."""
    tick = int(time.time() / EVERY) if run.ended_ms is None else None
    return *job.standing(reader, run), tick


@st.cache_data(show_spinner=False, max_entries=16)
def _compared(store: str, a: int, b: int, until: object) -> Compared:
    del until
    return comparison.compared(Path(store), a, b)
