"""A report as one page: nothing is fetched, and nothing that a job wrote is markup or code."""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.host_class import HOST_LOOKS, HostClass
from whyidle.monitor.core.slices import LOOKS, is_light
from whyidle.monitor.render import finding_text, numbers
from whyidle.monitor.render.budget import clock, in_order, share
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.findings import (
    by_need,
    code_lines,
    overhead,
    phases,
    who_worked,
    without_work,
)
from whyidle.monitor.render.report import Excerpt, Report
from whyidle.monitor.render.report_style import ROW, SCRIPT, STYLE
from whyidle.monitor.signals.code_boxes import Box, boxes

# Longer text of a job's is cut.
LONGEST: Final = 400
_MIXED: Final = "#5B6675"
_SIDES: Final = {"high": "#A3180F", "medium": "#8A5300", "low": "#4A5560", "info": "#6B7280"}
# A part of the bar that is narrower has no words.
_LEAST_WORDS: Final = 0.09


def page(report: Report) -> str:
    """Return the whole document."""
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
        f" script-src 'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"
    )
    title = text(report.answer.target)
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>whyidle: {title}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n<script>{SCRIPT}</script>\n</body></html>\n"
    )


def text(words: str) -> str:
    """Return text for an element or an attribute: letters only, and not too many."""
    shown = printable(words)
    return html.escape(shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…", quote=True)


def _body(report: Report) -> Iterator[str]:
    answer = report.answer
    yield f"<h1>{text(answer.verdict.text)}</h1>"
    yield f'<p class="soft">{text(answer.target)}, by whyidle</p>'
    yield from _account(report)
    yield f"<h2>Findings: {len(answer.findings)}</h2>"
    for finding in answer.findings:
        yield from _finding(finding, report)
    if not answer.findings:
        yield '<p class="soft">None.</p>'
    yield from _code(report)
    yield "<h2>Environment</h2>"
    yield from table((), [(text(name), _mono(value)) for name, value in report.environment.items()])
    yield from _caveats(report)


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int = 9
) -> Iterator[str]:
    """Yield a table of cells that are markup already; those from a column on are numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="number"' if place >= numbers_from else "" for place in range(len(row))]
        return "".join(f"<{tag}{k}>{c}</{tag}>" for k, c in zip(kinds, row, strict=True))

    yield "<table>"
    if titles:
        yield f"<tr>{cells('th', titles)}</tr>"
    yield from (f"<tr>{cells('td', row)}</tr>" for row in rows)
    yield "</table>"


def _account(report: Report) -> Iterator[str]:
    """Yield where the time goes: a bar, and a line for each part."""
    answer = report.answer
    yield "<h2>Where the time goes</h2>"
    budget = answer.budget
    if budget is None:
        yield f"<p>It is not known: {text(answer.unknown['budget'])}.</p>"
        return
    total = sum(budget["slices"].values())
    parts = in_order(budget)
    yield '<div class="bar">'
    for part, ns in parts:
        look = LOOKS[part]
        words = text(f"{look.words} {share(ns, total)}") if ns >= _LEAST_WORDS * total else ""
        much = f"width:{100 * ns / total:.3f}%;{_fill(look.colour)}"
        yield f'<span style="{much}" title="{text(look.words)} {share(ns, total)}">{words}</span>'
    yield "</div>"
    step = report.step_ns
    rows = [
        (f"{_dot(LOOKS[part].colour)}{text(LOOKS[part].words)}", text(LOOKS[part].meaning),
         share(ns, total), numbers.DASH if step is None else clock(step * ns / total))
        for part, ns in parts
    ]  # fmt: skip
    yield from table(("", "", "share", "of a step"), rows, 2)
    whole = "" if step is None else f"A step takes {clock(step)}. "
    by = answer.budget_source
    yield f'<p class="soft">{whole}{text(f"By {by}.") if by else ""}</p>'


def _finding(finding: FindingJson, report: Report) -> Iterator[str]:
    said = finding_text.of(finding, report.path)
    severity, rule = text(said.severity), text(said.rule)
    yield f'<section class="card" style="--side:{_SIDES[said.severity]}" data-rule="{rule}"'
    yield f' data-severity="{severity}"><h3><span class="tag">{severity.upper()}</span>'
    yield f"{text(said.title)} <code class=soft>{rule}</code></h3>"
    if said.gain is not None:
        yield f"<p>{text(said.gain)}</p>"
    yield "<ul>"
    for e in said.evidence:
        value, where = f"<b>{text(e.value)}</b>", f'<span class="soft">({text(e.origin)})</span>'
        yield f"<li>{text(e.name)}: {value} {where}</li>"
    yield "</ul>"
    for place in said.places:
        much = place.share and f", {place.share}"
        yield f"<p>at {_mono(place.at)} in {_mono(place.function)}{much}</p>"
        if place is said.places[0] and said.callers:
            yield f'<p class="soft">{text(said.callers)}</p>'
        if (code := report.code.get((place.json.file, place.json.line))) is not None:
            yield _excerpt(code)
    for remedy in said.remedies:
        whose = f"<b>{text(remedy.framework)}</b>: " if remedy.framework else ""
        yield f"<p>{whose}{text(remedy.text)}</p>"
        if remedy.code:
            yield f"<pre>{_lines(remedy.code.splitlines())}</pre>"
    yield f'<p class="soft">More: <code>{text(said.more)}</code></p></section>'


def _excerpt(code: Excerpt) -> str:
    shown = []
    for number, line in enumerate(code.lines, code.first):
        written = f"{number:>5}  {_lines([line])}"
        shown.append(f"<b>{written}</b>" if number == code.line else f"{written}\n")
    return f"<pre>{''.join(shown)}</pre>"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(html.escape(printable(line), quote=True) for line in lines)


# Your code ---------------------------------------------------------------------------------------
def _code(report: Report) -> Iterator[str]:
    """Yield where the main thread was: the chains of lines, and the lines alone."""
    host = report.host
    if host is None:
        return
    where = report.answer.host
    yield f"<h2>Your code: where {who_worked(where)} ({int(host.samples):,} samples)</h2>"
    yield '<p class="soft screen">Click a box to look into it; Escape shows all again.</p>'
    found = boxes(host)
    placed = dict(_placed(found))
    depth = 1 + max((depth for _, depth in placed.values()), default=0)
    yield f'<div class="icicle" style="height:{ROW * depth}px">'
    yield from (_box(box, *placed[box.key]) for box in found)
    yield "</div>"
    kinds = {kind: host.share(kind) for kind in HostClass if host.share(kind) > 0}
    named = (
        f"{_dot(HOST_LOOKS[kind].colour)}{text(HOST_LOOKS[kind].words)} {much:.0%}"
        for kind, much in sorted(kinds.items(), key=lambda item: -item[1])
    )
    yield f"<p>{' &nbsp; '.join(named)}</p>"
    if idle := without_work(where):
        yield f"<p>Without idle time: {text(idle)}.</p>"
    elif beside := phases(report.answer):
        yield f"<p>Besides the steps: {text(beside)}.</p>"
    rows = [(_mono(name), text(doing), f"{much:.0%}") for name, doing, much in code_lines(where)]
    yield from table(("line", "what it did", "share"), rows, 2)


def _placed(found: Sequence[Box]) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield where each box begins, as a share of the width, and how deep it is."""
    free: dict[str, float] = {"": 0.0}
    depth: dict[str, int] = {"": -1}
    for box in found:
        at = free[box.parent]
        free[box.parent] = at + box.share
        free[box.key], depth[box.key] = at, depth[box.parent] + 1
        yield box.key, (at, depth[box.key])


def _box(box: Box, x: float, depth: int) -> str:
    words = box.words or doing(box.doing)
    colour = _MIXED if box.colour is None else HOST_LOOKS[box.colour].colour
    place = f"left:{100 * x:.4f}%;top:{ROW * depth}px;width:{100 * box.share:.4f}%;{_fill(colour)}"
    hover = f"{words}: {numbers.show(box.share, 'ratio')} ({doing(box.doing)})"
    return (
        f'<button style="{place}" data-x="{x:.6f}" data-w="{box.share:.6f}" title="{text(hover)}">'
        f"{text(words)} {numbers.show(box.share, 'ratio')}</button>"
    )


def doing(kinds: Mapping[HostClass, float]) -> str:
    """Say what the thread does in a box."""
    return ", ".join(HOST_LOOKS[each].words for each in kinds)


# The rest ----------------------------------------------------------------------------------------
def _caveats(report: Report) -> Iterator[str]:
    answer = report.answer
    if answer.warnings or answer.failed:
        yield "<h2>To be known</h2><ul>"
        yield from (f"<li>{text(each)}</li>" for each in answer.warnings)
        for rule, why in answer.failed.items():
            yield f"<li>{text(rule)} failed, a defect of whyidle: {text(why)}</li>"
        yield "</ul>"
    if answer.not_checked:
        yield f"<h2>Not checked: {len(answer.not_checked)}</h2>"
        yield "<details><summary>What they need</summary>"
        needs = by_need(answer.not_checked)
        yield from table((), [(text(n), text(", ".join(names))) for n, names in needs.items()])
        yield "</details>"
    if cost := overhead(answer.overhead):
        yield f'<p class="soft">{text(cost)}</p>'


def _mono(words: str) -> str:
    return f"<code>{text(words)}</code>"


def _dot(colour: str) -> str:
    return f'<span class="dot" style="background:{colour}"></span>'


def _fill(colour: str) -> str:
    return f"background:{colour};color:{'#000000' if is_light(colour) else '#ffffff'}"
