"""The screen of ``monitor diagnose``: where the time goes, what costs it, and what to change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from whyidle.monitor.core.contracts.diagnosis import (
    ComputeJson,
    DiagnosisJson,
    EvidenceJson,
    FindingJson,
    NotCheckedJson,
)
from whyidle.monitor.core.finding import FRAMEWORKS, Framework
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.diagnosis.diagnose import Diagnosis
from whyidle.monitor.render.brief import STYLES
from whyidle.monitor.render.budget import NARROWEST, bar, legend, words
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.numbers import amount
from whyidle.monitor.render.trace import fitted

_INDENT: Final = "  "
# Rules that could not judge, by what they lack: more names than these are counted.
MOST_NAMES: Final = 6
# In words, for a person without time.
HEALTHY: Final = "Nothing worth fixing above {least:.0%} of the time was found."

NOT_EXPLAINED: Final = (
    "No known fault was recognised, though {share:.0%} of the time is no work, mostly {mostly}."
)
# Where more than this is no work, nothing is well.
NOTABLE: Final = 0.2
NOT_KNOWN: Final = "Too little is known to judge it: see below what would tell."


def screen(diagnosis: Diagnosis, *, console: Console | None = None) -> str:
    """Return the whole page as text for this terminal."""
    console = console or Console(highlight=False)
    return fitted(console, page(diagnosis, max(console.width, NARROWEST)))


def page(diagnosis: Diagnosis, width: int) -> Group:
    """Return the parts of the page, an empty line between them."""
    told = diagnose.as_json(diagnosis)
    parts: list[RenderableType] = [
        Text(f"{printable(told['target'])}: {verdict(told)}", style="bold")
    ]
    budget = told["budget"]
    if budget is None:
        parts.append(Text(f"Where the time goes is not known: {told['unknown']['budget']}."))
    else:
        parts.append(Group(bar(budget, width), *legend(budget, None, width, 1)))
    if told["compute"]:
        parts.append(Group(*_busy(told["compute"], width)))
    parts.extend(Group(*_finding(each, width)) for each in told["findings"])
    if told["failed"] or told["warnings"]:
        parts.append(Group(*_doubts(told, width)))
    if told["not_checked"]:
        parts.append(Group(*_not_checked(told["not_checked"], width)))
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Group(*spaced[:-1])


def verdict(told: DiagnosisJson) -> str:
    """Say what a person in a hurry reads."""
    worth = [f for f in told["findings"] if f["severity"] in {"high", "medium", "low"}]
    if not worth and not told["is_known"]:
        return NOT_KNOWN
    if not worth and (unexplained := sum(told["unexplained"].values())) >= NOTABLE:
        mostly = words(Slice(next(iter(told["unexplained"]))))
        return NOT_EXPLAINED.format(share=unexplained, mostly=mostly)
    if not worth:
        return HEALTHY.format(least=diagnose.LEAST)
    first = printable(worth[0]["title"])
    more = len(worth) - 1
    return f"{first}." if not more else f"{first}; and {more} more."


def _finding(told: FindingJson, width: int) -> Iterator[Text]:
    severity = told["severity"]
    head = Text(f"{severity.upper():<7}", style=STYLES[severity])
    head.append(printable(told["title"]), style="bold")
    head.append(f"  [{told['rule']}]", style="dim")
    yield head
    if (back := gain(told)) is not None:
        yield _line(back, width)
    for e in told["evidence"]:
        yield _line(f"{e['name']}: {amount(e['value'], e['unit'])}  ({source(e)})", width)
    for place in told["where"]:
        share = "" if place["share"] is None else f"  {place['share']:.0%}"
        line = f":{place['line']}" if place["line"] else ""
        yield _line(f"at {place['file']}{line} in {place['function']}{share}", width)
    for name, fix in told["fixes"].items():
        yield _line(f"{FRAMEWORKS[_framework(name)]}: {fix['text']}", width)
        for code in fix["code"].splitlines():
            yield Text(f"{_INDENT * 3}{code}", style="cyan")
    yield _line(
        f"Documents: {', '.join(told['documents'])}.  More: monitor rules {told['rule']}", width
    )
    if told["also_seen"]:
        yield _line(f"Also seen: {', '.join(told['also_seen'])}.", width)


def _framework(name: str) -> Framework:
    return next(each for each in FRAMEWORKS if each == name)


def gain(told: FindingJson) -> str | None:
    """Say what the fix gives back; ``None``: no time that could be told."""
    if not told["lost_share"] or not told["speedup"]:
        return None
    low, high = told["lost_share"]
    slow, fast = told["speedup"]
    what = {"steps": "a step gets", "samples": "samples come"}[told["paced_by"]]
    text = f"Costs {low:.0%} to {high:.0%} of the time; {what} {slow:.2f}x to {fast:.2f}x faster."
    watts = told["energy"]["watts_lost"]
    return text if watts is None else f"{text} At the power drawn now that is {watts:.0f} W."


def source(evidence: EvidenceJson) -> str:
    """Say where a number comes from, and how old it is."""
    window, age = evidence["window_s"], evidence["age_s"]
    over = "" if window is None else f", over {amount(window, 's')}"
    old = "" if age is None or age < 1 else f", {amount(age, 's')} ago"
    return f"{evidence['source']}{over}{old}"


def _line(text: str, width: int) -> Text:
    wrapped = textwrap.wrap(printable(text), max(20, width - 4)) or [""]
    joined = f"\n{_INDENT * 2}".join(wrapped)
    return Text(f"{_INDENT}{joined}")


def _busy(told: ComputeJson, width: int) -> Iterator[Text]:
    """Say how the GPU works while it works."""
    yield Text("While it computes", style="bold")
    for text in told["said"]:
        yield _line(text, width)
    if told["efficiency"] is not None:
        share = amount(told["efficiency"], "ratio")
        yield _line(f"{share} of the chip's peak is used ({told['efficiency_source']}).", width)
    for text in dict.fromkeys(told["unknown"].values()):
        yield _line(f"not known: {text}", width)


def _doubts(told: DiagnosisJson, width: int) -> Iterator[Text]:
    """Say what a reader must know besides: of the trace, and of rules that failed."""
    for text in told["warnings"]:
        yield _line(f"! {text}", width)
    for rule, why in told["failed"].items():
        yield _line(f"! {rule} failed, a defect of whyidle: {why}", width)


def _not_checked(told: list[NotCheckedJson], width: int) -> Iterator[Text]:
    yield Text("Not checked", style="bold")
    for need, names in by_need(told).items():
        shown = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        yield _line(f"{shown}{more}: needs {need}", width)


def by_need(told: Sequence[NotCheckedJson]) -> dict[str, list[str]]:
    """Return the rules that could not judge, by what they lack."""
    found: dict[str, list[str]] = {}
    for each in told:
        found.setdefault(each["needs"], []).append(each["rule"])
    return found
