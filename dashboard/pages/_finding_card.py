"""One finding as a card: its cost, its evidence, its place in the code, and the fix."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from whyidle.dashboard import markup, theme, widgets
from whyidle.dashboard.markup import safe
from whyidle.dashboard.pages import _tables
from whyidle.dashboard.views import findings
from whyidle.dashboard.views.findings import CodeLocation
from whyidle.dashboard.views.patches import Diff
from whyidle.dashboard.widgets import write
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.render import finding_text
from whyidle.monitor.render.finding_text import FindingText
from whyidle.monitor.store import Run


def head(finding: FindingJson, places: Sequence[CodeLocation], run: int) -> None:
    """Write the title and the cost, which are always visible."""
    link = f"?run={run}&amp;finding={safe(finding.rule)}"
    write(
        f'<div class="w-verdict">{markup.chip(finding.severity)}<b>{safe(finding.title)}</b>'
        f' <a class="w-sub w-mono" href="{link}">{safe(finding.rule)}</a></div>'
    )
    if places:
        write(f'<div class="w-mono w-sub">at {safe(places[0].words)}</div>')
    if (gain := finding_text.gain(finding)) is None:
        write('<p class="w-note">It costs no measurable time, so no gain is predicted.</p>')
        return
    write(f'<p class="w-note">{safe(gain)}</p>{_cost(finding)}')


def _cost(finding: FindingJson) -> str:
    """Return the time as a bar: what the fix surely saves, what it may save, and the rest."""
    low, high = finding.lost_share or (0.0, 0.0)
    colour = theme.SEVERITIES.get(finding.severity, theme.GREY)
    most = f", at most {high:.0%}" if f"{high:.0%}" != f"{low:.0%}" else ""
    maybe = f"repeating-linear-gradient(135deg,{colour} 0 3px,transparent 3px 6px)"
    return (
        f'<div class="w-cost" role="img" aria-label="{low:.0%} to {high:.0%} of the time">'
        f'<i style="width:{low:.1%};background:{colour}"></i>'
        f'<i style="width:{high - low:.1%};background:{maybe}"></i></div>'
        f'<div class="w-sub">at least {low:.0%} of the time is saved{most}</div>'
    )


def body(
    finding: FindingJson, places: Sequence[CodeLocation], run: Run, diff: Diff | None = None
) -> None:
    """Write the evidence, the code, and the fix."""
    said = finding_text.of(finding)
    left, right = st.columns([6, 5], gap="medium")
    with left:
        _evidence(said, is_live=run.is_recording)
        _places(places)
    with right:
        if diff is not None:
            _patch(finding, diff, run.id)
        _remedies(said)
        _besides(finding, said)


def _evidence(said: FindingText, *, is_live: bool) -> None:
    widgets.title("Evidence")
    # How old a number is means nothing once the run is over.
    _tables.table(
        [(e.name, e.value, e.aged if is_live else e.origin) for e in said.evidence], numbers=(1,)
    )


def _places(places: Sequence[CodeLocation]) -> None:
    widgets.title("Where in your code")
    if not places:
        widgets.unknown("The line", "no measurement names one")
    for place in places:
        write(f'<div class="w-mono">{safe(place.words)}</div>')
        if place.code is not None:
            write(_tables.code(place.code))
        elif place.why_not:
            write(f'<p class="w-note">Its code is not shown: {safe(place.why_not)}.</p>')


def _remedies(said: FindingText) -> None:
    widgets.title("What to change")
    if not said.remedies:
        widgets.unknown("The fix", "none is known for the frameworks of this job")
    for remedy in said.remedies:
        whose = f"<b>{safe(remedy.framework)}</b>: " if remedy.framework else ""
        write(f"<div>{whose}{safe(remedy.text)}</div>")
        if remedy.code:
            st.code(remedy.code, language="python")


def _patch(finding: FindingJson, diff: Diff, run: int) -> None:
    widgets.title("As a patch", "of your source as it is now")
    write(f"<div>{safe(diff.title)}</div>")
    st.code(diff.text, language="diff")
    write("".join(markup.note(each) for each in diff.notes))
    rule = finding.rule
    st.code(
        f"monitor fix {run} {rule} --verify 'CMD'  # is it faster, and the same?", language="bash"
    )


def _besides(finding: FindingJson, said: FindingText) -> None:
    rows = [
        ("references", ", ".join(said.references)),
        ("also seen", ", ".join(finding.also_seen)),
        ("behind", finding.behind or ""),
        ("energy", _energy(finding)),
    ]
    _tables.table([row for row in rows if row[1]], labels=(0,))
    page = findings.why(finding.rule)
    if page:
        with st.popover("Why this costs, and when it is wrong", key=f"why-{finding.rule}"):
            st.markdown(page)


def _energy(finding: FindingJson) -> str:
    if finding.lost_share is None:
        return ""
    why = finding.energy.unknown.get("watts_lost", "no power is read")
    return finding_text.cost(finding) or f"not known: {why}"
