"""Runs: what runs on this machine now and how to watch it, and all that was recorded."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from whyidle.dashboard import frame, markup, run_picker, settings, store_reader, widgets
from whyidle.dashboard.views import jobs, runs
from whyidle.dashboard.widgets import write
from whyidle.monitor.control import client
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.runs import pruning
from whyidle.monitor.store import Run
from whyidle.monitor.store.labels import label_run, new_label

TITLE: Final = "Runs"
PATH: Final = "runs"
SAMPLE: Final = "monitor dashboard --sample"
# How often to look for jobs that have begun or ended.
EVERY: Final = 5.0
_TABLE: Final = "runs"


def page() -> None:
    """Draw the page; the list of jobs refreshes by itself."""
    if not settings.current().is_sample:
        st.fragment(lambda: frame.alone(_jobs), run_every=EVERY)()
    frame.alone(_recorded)


def _jobs() -> None:
    found, problem = jobs.found()
    widgets.title("Running now", problem or "")
    if not found:
        widgets.note("No job that uses a GPU, PyTorch, JAX or TensorFlow runs on this machine.")
    for each in found:
        left, right = st.columns([3, 2], vertical_alignment="center")
        with left:
            write(markup.facts(each.name, each.facts))
        with right:
            if each.run is not None:
                write(markup.link("", "Watch it", run=each.run))
            else:
                st.code(f"monitor attach {each.pid}", language="bash")


def _recorded() -> None:
    widgets.title("Recorded", "Tick two to compare them; a click on a head sorts.")
    try:
        reader = store_reader.reader()
        count = len(reader.runs())
    except Problem as problem:
        _nothing(problem.what)
        return
    if not count:
        _nothing("Nothing is recorded yet.")
        return
    wanted = st.text_input(
        "Filter", key="filter", placeholder="Filter by label, job, result or host",
        label_visibility="collapsed",
    )  # fmt: skip
    shown = runs.listed(reader, wanted, settings.current().base)
    if len(shown) < count:
        widgets.note(f"{len(shown)} of {count} runs")
    chosen = _table([row for _, row in shown])
    _actions([shown[place][0] for place in chosen if place < len(shown)])


def _nothing(why: str) -> None:
    widgets.unknown("No run", why, f"monitor attach PID\nor look at a sample first: {SAMPLE}")


def _table(rows: list[dict[str, object]]) -> list[int]:
    """Draw the table; return which rows are ticked."""
    if not any(row["faster"] for row in rows):
        rows = [{name: cell for name, cell in row.items() if name != "faster"} for row in rows]
    picked: Any = st.dataframe(
        rows,
        key=_TABLE,
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        column_config={
            "run": st.column_config.LinkColumn("run", display_text=r"run=(\d+)", width="small"),
            "steps/s": st.column_config.NumberColumn(format="%.3g", width="small"),
            "faster": st.column_config.NumberColumn(
                "could be", format="%.1fx faster", width="small"
            ),
            "began": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm"),
        },
    )
    return list(picked.selection.rows)


def _actions(chosen: list[Run]) -> None:
    """Offer what can be done with the runs that are ticked."""
    if not chosen:
        return
    if len(chosen) == 2:
        a, b = sorted(chosen, key=lambda run: run.id)
        link = markup.link("compare", f"Compare {a.id} with {b.id}", run=b.id, a=a.id, b=b.id)
        write(f'<div class="w-button">{link}</div>')
    if settings.current().is_sample:
        return
    if not settings.current().allow_actions:
        # Without that the page only reads.
        numbers = " ".join(str(run.id) for run in chosen)
        first = f"monitor runs {chosen[0].id} --label NAME"
        st.code(f"{first}\nmonitor prune {numbers}", language="bash")
        return
    with st.container(horizontal=True, key="run-actions"):
        if len(chosen) == 1:
            with st.popover("Rename"):
                _rename(chosen[0])
        ended = [run for run in chosen if not run.is_recording]
        if ended:
            with st.popover(f"Delete {len(ended)}"):
                widgets.note("Their measurements and traces are gone afterwards.")
                if st.button("Delete for good", key="delete"):
                    frame.alone(lambda: _delete(ended))


def _rename(run: Run) -> None:
    wanted = st.text_input("Label", value=run.label or "", key=f"label-{run.id}")
    if not st.button("Save", key="rename"):
        return

    def save() -> None:
        store = settings.current().store
        if run.is_recording:
            client.set_label(store, run.id, wanted.strip())
        else:
            label_run(store, run.id, new_label(wanted))
        st.rerun()

    frame.alone(save)


def _delete(ended: list[Run]) -> None:
    pruning.delete(settings.current().store, [run.id for run in ended])
    run_picker.forget()
    st.rerun()
