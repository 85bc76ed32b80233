"""Which run is shown: the one of the address, or of the picker. The address always names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from whyidle.dashboard import settings
from whyidle.dashboard.views.runs import MOST_RUNS, called
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.store import Reader, Run

# In the address a run is its number: what it is called changes while it is looked at.
NAME: Final = "run"
# What the address said when we last looked: if it says something else, the reader went there.
_SAID: Final = "run-of-address"
_SHOWN: Final = "run-shown"


def picked(reader: Reader) -> Run:
    """Draw the picker, and return the run to show. A ``Problem`` says that there is none."""
    by_id = {str(run.id): run for run in reader.runs()[-MOST_RUNS:][::-1]}
    if not by_id:
        raise Problem("Nothing is recorded yet.", "monitor attach PID")
    wanted = _wanted(reader)
    if wanted.isdecimal() and (found := _numbered(reader, wanted)) is not None:
        # It may be older than the picker goes back.
        by_id.setdefault(str(found.id), found)
        run = by_id[_pick(by_id, str(found.id))]
    else:
        run = by_id[_another(by_id, wanted)]
    _keep(str(run.id))
    return run


def is_chosen() -> bool:
    """Tell whether the reader, or the address, has named a run."""
    return bool(st.query_params.get(NAME) or st.session_state.get(_SHOWN))


def gone(wanted: str) -> Problem:
    """Return that a run is not there."""
    what = f"There is no recording {wanted} here: it was deleted, or belongs to another store."
    listed = not settings.current().is_sample
    return Problem(what, "List them: monitor runs" if listed else "Choose another one.")


def _wanted(reader: Reader) -> str:
    """Return the number of the run that is wanted; what names none as it was written."""
    state, said = st.session_state, st.query_params.get(NAME)
    if said and said != state.get(_SAID):
        return _number_of(reader, said)
    # What the picker was set to; after a page that has none, what was shown before.
    chosen = state.get(NAME) or state.get(_SHOWN)
    return str(chosen or reader.find(settings.current().run).id)


def _number_of(reader: Reader, said: str) -> str:
    try:
        return str(reader.find(said).id)
    except Problem:
        return said


def _numbered(reader: Reader, number: str) -> Run | None:
    # SQLite's integers end at 19 digits.
    return reader.run(int(number)) if len(number) < 19 else None


def _pick(by_id: Mapping[str, Run], number: str) -> str:
    # Set anew each time: the browser knows an entry by its words, and these change.
    st.session_state[NAME] = number
    return st.selectbox("Run", list(by_id), key=NAME, format_func=lambda each: _entry(by_id, each))


def _another(by_id: Mapping[str, Run], wanted: str) -> str:
    """Have another run chosen where the wanted one is gone: none is shown in its place unasked."""
    number = st.selectbox(
        "Run",
        list(by_id),
        index=None,
        key="another",
        placeholder="Choose another run",
        format_func=lambda each: _entry(by_id, each),
    )
    if number is None:
        raise gone(wanted)
    _keep(number)
    st.rerun()


def _entry(by_id: Mapping[str, Run], number: str) -> str:
    return called(by_id[number])


def _keep(number: str) -> None:
    """Write it where a link is copied from, and where the next page finds it."""
    if st.query_params.get(NAME) != number:
        st.query_params[NAME] = number
    st.session_state[_SAID] = st.session_state[_SHOWN] = number
