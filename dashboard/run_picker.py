"""Which run is shown: from the address or the picker. The address always names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from whyidle.dashboard import settings
from whyidle.dashboard.views.runs import MOST_RUNS, called
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.store import Reader, Run

# The address has the number of a run: its label may change while it is shown.
NAME: Final = "run"
# The address at the last check: if it differs, the user has followed a link.
_SAID: Final = "run-of-address"
_SHOWN: Final = "run-shown"


def picked_run(reader: Reader) -> Run:
    """Draw the picker, and return the run to show; a ``Problem`` if there is none."""
    by_id = {str(run.id): run for run in reader.runs()[-MOST_RUNS:][::-1]}
    if not by_id:
        raise Problem("Nothing is recorded yet.", "monitor attach PID")
    wanted = _wanted(reader)
    if wanted.isdecimal() and (found := _numbered(reader, wanted)) is not None:
        # It may be older than the picker goes back.
        by_id.setdefault(str(found.id), found)
        run = by_id[_pick(by_id, str(found.id))]
    else:
        run = by_id[_pick_another(by_id, wanted)]
    _store_choice(str(run.id))
    return run


def is_chosen() -> bool:
    """Return whether the user or the address has named a run."""
    return bool(st.query_params.get(NAME) or st.session_state.get(_SHOWN))


def forget() -> None:
    """Forget which run was shown: it may have been deleted."""
    for name in (NAME, _SAID, _SHOWN):
        st.session_state.pop(name, None)


def gone(wanted: str) -> Problem:
    """Return the problem of a run that does not exist."""
    what = f"There is no recording {wanted} here: it was deleted, or belongs to another store."
    listed = not settings.current().is_sample
    return Problem(what, "List them: monitor runs" if listed else "Choose another one.")


def _wanted(reader: Reader) -> str:
    """Return the number of the wanted run; a name that matches none stays as written."""
    state, said = st.session_state, st.query_params.get(NAME)
    if said and said != state.get(_SAID):
        return _number_of(reader, said)
    # The picker's choice; after a page without one, the run shown before.
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
    # Set each time: the browser identifies an entry by its text, which may change.
    st.session_state[NAME] = number
    return st.selectbox("Run", list(by_id), key=NAME, format_func=lambda each: _entry(by_id, each))


def _pick_another(by_id: Mapping[str, Run], wanted: str) -> str:
    """Ask for another run if the wanted one is gone; never replace it silently."""
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
    _store_choice(number)
    st.rerun()


def _entry(by_id: Mapping[str, Run], number: str) -> str:
    return called(by_id[number])


def _store_choice(number: str) -> None:
    """Store the choice in the address, and where the next page finds it."""
    if st.query_params.get(NAME) != number:
        st.query_params[NAME] = number
    st.session_state[_SAID] = st.session_state[_SHOWN] = number
