"""A diagnosis as Markdown, fit for a comment on a pull request.

What comes from a job stands in code, where a host follows no link, mention or markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.core.slices import LOOKS
from whyidle.monitor.render import finding_text
from whyidle.monitor.render.budget import clock, in_order, share
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.findings import by_need, overhead
from whyidle.monitor.render.places import Repository

_MARKS: Final = {"high": "🔴", "medium": "🟠", "low": "🔵", "info": "⚪"}
# What is markup within a line, an address, an emoji, or a mention.
_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>#|~&$@]|:(?=//|\w+:)|(?<=www)\.")
LONGEST: Final = 300


def page(answer: DiagnosisJson, repository: Repository) -> str:
    """Return the diagnosis."""
    return "\n".join(lines(answer, repository))


def lines(answer: DiagnosisJson, repository: Repository) -> Iterator[str]:
    """Yield the verdict, where the time goes, and each finding behind a line that opens it."""
    yield f"### whyidle: {plain(answer.verdict.text)}"
    yield ""
    yield from _budget(answer)
    for finding in answer.findings:
        yield from _finding(finding, repository)
    for text in answer.warnings:
        yield f"- ⚠ {plain(text)}"
    for rule, why in answer.failed.items():
        yield f"- ⚠ {code(rule)} failed, a defect of whyidle: {plain(why)}"
    yield from _not_checked(answer)
    if cost := overhead(answer.overhead):
        yield f"\n<sub>{plain(answer.target)}. {plain(cost)}</sub>"


def _budget(answer: DiagnosisJson) -> Iterator[str]:
    budget = answer.budget
    if budget is None:
        yield f"Where the time goes is not known: {plain(answer.unknown['budget'])}.\n"
        return
    total = sum(budget["slices"].values())
    yield from table(
        ("where the time goes", "share", "time"),
        [(plain(LOOKS[part].words), share(ns, total), clock(ns)) for part, ns in in_order(budget)],
    )


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table; all but the first column to the right."""
    yield f"| {' | '.join(titles)} |"
    yield f"|---|{'--:|' * (len(titles) - 1)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _finding(finding: FindingJson, repository: Repository) -> Iterator[str]:
    said = finding_text.of(finding, repository.shown)
    at = f" at {code(said.places[0].at)}" if said.places else ""
    head = f"{_MARKS[said.severity]} <b>{said.severity.upper()}</b> {plain(said.title)}{at}"
    yield f"<details><summary>{head} {code(said.rule)}</summary>\n"
    if said.gain is not None:
        yield f"{plain(said.gain)}\n"
    for e in said.evidence:
        yield f"- {plain(e.name)}: **{plain(e.value)}** ({plain(e.origin)})"
    for place in said.places:
        yield f"- at {code(place.at)} in {code(place.function)}{place.share and f', {place.share}'}"
        if place is said.places[0] and said.callers:
            yield f"  - {code(said.callers)}"
    for remedy in said.remedies:
        whose = f"**{remedy.framework}**: " if remedy.framework else ""
        yield f"\n{whose}{plain(remedy.text)}"
        if remedy.code:
            yield from fenced(remedy.code)
    yield f"\nMore: {code(said.more)}\n\n</details>\n"


def _not_checked(answer: DiagnosisJson) -> Iterator[str]:
    if not answer.not_checked:
        return
    yield f"\n<details><summary>Not checked: {len(answer.not_checked)}</summary>\n"
    for need, names in by_need(answer.not_checked).items():
        yield f"- needs {plain(need)}: {', '.join(code(name) for name in names)}"
    yield "\n</details>"


def plain(text: str) -> str:
    """Return text as a host shows it letter by letter; no mention of anybody is one."""
    short = _shortened(printable(text))
    return _MARKUP.sub(_entity, short).replace("&#64;", "&#64;&#8203;")


def code(text: str) -> str:
    """Return text as code; between tags, which no backtick of its own can end."""
    return f"<code>{_MARKUP.sub(_entity, _shortened(printable(text)))}</code>"


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def fenced(text: str) -> Iterator[str]:
    """Yield a block of Python, between marks that it does not contain."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = "\n".join(printable(line.replace("\t", "    ")) for line in text.splitlines())
    yield f"\n{fence}python\n{shown}\n{fence}"
