"""Fix: what is wrong, where in the code, what to write instead, and what that gains."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

from whyidle.dashboard import frame, markup, settings, widgets
from whyidle.dashboard.figures import ranges
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.markup import safe
from whyidle.dashboard.pages import _finding_card, _tables, _try_it
from whyidle.dashboard.views import findings, job, patches, runs
from whyidle.dashboard.views.findings import Page
from whyidle.dashboard.widgets import write
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson
from whyidle.monitor.store import Run

TITLE: Final = "Fix"
# A diagnosis reads the whole run, and seldom changes.
EVERY: Final = 10.0


def page(shown: PageState) -> None:
    """Draw the page; for a running job it refreshes now and then."""
    write(_tables.STYLE)
    frame.live(_try_it.panel, shown)
    frame.live(_findings, shown, None if shown.every is None else max(EVERY, shown.every))


def _findings(shown: PageState) -> None:
    run = shown.run
    tick = int(shown.span().end_ms / 1000 / EVERY)
    answer = _diagnosed(
        str(settings.current().store), run.id, tick, job.standing(shown.reader, run)
    )
    # The code is read each time: the user may be editing it right now.
    found = findings.of(answer, run)
    write(f'<div class="w-verdict"><b>{safe(found.verdict)}</b></div>')
    with st.container():
        _account(found)
    with st.container():
        _overview(found)
    with st.container():
        opened = _opened(found, run)
    diffs = patches.diffs(found.answer)
    for finding in found.answer.findings:
        rule = finding.rule
        with st.container(border=True, key=f"finding-{rule}"):
            _finding_card.head(finding, found.places[rule], run.id)
            with st.expander("Evidence, code and fix", expanded=rule == opened, key=f"more-{rule}"):
                _finding_card.body(finding, found.places[rule], run, diffs.get(rule))
                _try_it.offer(finding, run)
    if found.answer.findings:
        _measuring(shown)
    _comparing(shown)
    _besides(found, run)


@st.cache_data(show_spinner=False, max_entries=8)
def _diagnosed(store: str, number: int, tick: int, standing: object) -> DiagnosisJson:
    # The tick limits how old an answer may be.
    del tick, standing
    return job.diagnosis(Path(store), number)


def _opened(found: Page, run: Run) -> str | None:
    """Return the finding to open first: the one in the link, else the most important one.

    It stays the same while others come and go, so that nothing closes while it is read.
    """
    linked = st.query_params.get("finding")
    if linked is not None and found.finding(linked) is None:
        widgets.unknown(linked[:60], "not found in this run, or no longer")
        linked = None
    first = next((each.rule for each in found.answer.findings), None)
    key = f"first-of-{run.id}"
    if first is not None:
        st.session_state.setdefault(key, first)
    return linked or st.session_state.get(key)


def _account(found: Page) -> None:
    budget = found.answer.budget
    if budget is None:
        widgets.unknown("Where the time goes", str(found.answer.unknown["budget"]))
        return
    widgets.budget("Where the time goes", f"by {found.answer.budget_source}", budget)


def _overview(found: Page) -> None:
    shown = findings.ranges(found.answer.findings)
    if len(shown) > 1:
        widgets.title("How much faster each fix makes it", "predicted, each alone")
        widgets.chart(ranges.ranges("gains", shown), "gains", ranges.height(shown))


def _measuring(shown: PageState) -> None:
    widgets.title("Measure it", "Change the code, run it again, and see what it gained.")
    st.code(findings.measuring(shown.run), language="bash", wrap_lines=True)


def _comparing(shown: PageState) -> None:
    """Link to the comparison that shows whether a change has helped."""
    a, b = runs.beside(shown.reader.runs(), shown.run)
    later = runs.after(shown.reader.runs(), shown.run)
    if later is not None:
        a, b = shown.run, later
    if a is not None and b is not None:
        other, when = (b, "after") if later is not None else (a, "before")
        link = f"compare?run={b.id}&amp;a={a.id}&amp;b={b.id}"
        write(f'<p><a href="{link}">Compare with run {other.id}</a>, which came {when} it.</p>')


def _besides(found: Page, run: Run) -> None:
    """Show the rest: unexplained idle time, notes on compute, warnings, and unchecked rules."""
    unexplained = findings.unexplained(found.answer)
    if unexplained:
        words = ", ".join(f"{name} {share:.0%}" for name, share in unexplained)
        widgets.unknown("Idle time without a known fix", f"{words} of the time")
    works = findings.while_it_computes(found.answer)
    if works:
        widgets.title("While it computes")
        write("".join(markup.note(each) for each in works))
    caveats = findings.caveats(found.answer)
    if caveats:
        widgets.title("Caution")
        write("".join(markup.note(each) for each in caveats))
    not_checked = findings.not_checked(found.answer, run)
    if not_checked:
        widgets.title("Not checked", "what these faults need to be checked")
        _tables.table([(", ".join(names), f"needs {need}") for need, names in not_checked.items()])
