"""What differs between two runs, piece by piece, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import streamlit as st

from whyidle.dashboard import markup, theme, widgets
from whyidle.dashboard.figures import difference, distribution, ranges
from whyidle.dashboard.markup import safe
from whyidle.dashboard.pages import _tables
from whyidle.dashboard.views.comparison import Compared
from whyidle.dashboard.widgets import write
from whyidle.monitor.core.contracts.comparison import ComparisonJson

_HEADS: Final = {
    "better": ("faster", theme.BETTER), "worse": ("slower", theme.WORSE),
    "same": ("no difference", theme.GREY), "unknown": ("not certain", theme.GREY),
}  # fmt: skip
_FAULTS: Final = {
    "gone": ("gone", theme.BETTER), "new": ("new", theme.WORSE), "kept": ("still", theme.GREY),
}  # fmt: skip


def page(found: Compared, a: int, b: int) -> None:
    """Draw everything about two runs, A and B."""
    # Containers keep each part in its place when one above it appears.
    with st.container():
        _verdict(found)
    with st.container():
        _promise(found)
    left, right = st.columns(2, gap="medium")
    with left:
        for part in (_budgets, _steps, _kernels):
            with st.container():
                part(found)
    with right:
        with st.container():
            _changes(found)
        with st.container():
            _findings(found.answer, a, b)
        with st.container():
            _figures(found)


def _verdict(found: Compared) -> None:
    word, colour = _HEADS[found.is_]
    chip = f'<span class="w-chip" style="background:{colour}">{word}</span>'
    write(f'<div class="w-verdict">{chip}<b>{safe(found.verdict)}</b></div>')
    write("".join(markup.note(each) for each in found.about))
    for text in found.answer.warnings:
        widgets.unknown("Caution", text)


def _promise(found: Compared) -> None:
    widgets.title("Predicted and measured", found.promise.words)
    if found.promise.ranges:
        shown = found.promise.ranges
        widgets.chart(ranges.ranges("promise", shown), "promise", ranges.height(shown))


def _budgets(found: Compared) -> None:
    widgets.title(f"Time of a {found.answer.per}")
    known = {name: each for name, each in found.budgets.items() if not isinstance(each, str)}
    if known:
        widgets.chart(difference.budgets("budgets", known), "budgets", 150)
    for name, why in found.budgets.items():
        if isinstance(why, str):
            widgets.unknown(f"Where the time of {name} goes", why)


def _changes(found: Compared) -> None:
    widgets.title(f"What changed in a {found.answer.per}", "left of zero is less time: better")
    if any(each.seconds is not None for each in found.slices):
        figure = difference.changes("changes", found.slices, found.whole)
        widgets.chart(figure, "changes", difference.height(found.slices))
        _tables.changes(found.slices, f"time of a {found.answer.per}")
    else:
        widgets.unknown("What changed", "where the time goes is not known on both sides")


def _steps(found: Compared) -> None:
    widgets.title(f"How long a {'sample' if found.answer.per == 'sample' else 'step'} takes",
                "; ".join(each.of for each in found.steps))  # fmt: skip
    if found.steps:
        widgets.chart(distribution.steps("steps", found.steps), "steps")
    if found.why_no_steps:
        widgets.unknown("Steps", found.why_no_steps)


def _findings(comparison: ComparisonJson, a: int, b: int) -> None:
    widgets.title("Findings")
    rows = "".join([*_faults(comparison, a, b), *_not_judged(comparison)])
    if rows:
        _tables.framed(rows)
    else:
        write('<p class="w-note">Nothing is found on either side.</p>')


def _faults(comparison: ComparisonJson, a: int, b: int) -> Iterator[str]:
    found = {
        "gone": comparison.findings_gone,
        "new": comparison.findings_new,
        "kept": comparison.findings_kept,
    }
    for kind, (word, colour) in _FAULTS.items():
        run = a if kind == "gone" else b
        for each in found[kind]:
            moved = each.a and each.b and each.a != each.b
            weight = f"{each.a} → {each.b}" if moved else each.severity
            rule = safe(each.rule)
            link = f'<a class="w-sub w-mono" href="fix?run={run}&amp;finding={rule}">{rule}</a>'
            chip = f'<span class="w-chip" style="background:{colour}">{word}</span>'
            yield (
                f"<tr><td class=k>{chip}</td><td>{safe(each.title)}<br>{link}</td>"
                f"<td class=n>{safe(weight)}</td></tr>"
            )


def _not_judged(comparison: ComparisonJson) -> Iterator[str]:
    for each in comparison.findings_unknown:
        where = "A" if each.a is None else "B"
        yield (
            f"<tr><td class=k>?</td><td>{safe(each.title)}<div class=w-sub>{where}"
            f" {safe(each.why_unknown)}</div></td><td class=n>{safe(each.severity)}</td></tr>"
        )


def _kernels(found: Compared) -> None:
    widgets.title(f"What ran in a {found.answer.per}")
    if found.why_no_kernels:
        widgets.unknown("What ran", found.why_no_kernels)
    elif found.kernels:
        _tables.changes(found.kernels, found.answer.kernels_are)
    else:
        write('<p class="w-note">No kernel changed notably.</p>')


def _figures(found: Compared) -> None:
    widgets.title("Resources")
    if found.figures:
        _tables.changes(found.figures, "")
    if found.why_no_energy:
        write(markup.note(found.why_no_energy))
    if found.answer.setup:
        widgets.title("Different set-up")
        _tables.table([(each.name, each.a, each.b) for each in found.answer.setup])
