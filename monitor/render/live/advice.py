"""The top of the live view: what is wrong, where, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from whyidle.monitor.core.contracts.diagnosis import FindingJson, FixJson, PlaceJson, VerdictJson
from whyidle.monitor.core.finding import is_uncertain, times
from whyidle.monitor.recording.faults import FIRST_SECONDS
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import finding_text
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_lines import STYLES
from whyidle.monitor.render.live.lines import cut, ends

INDENT: Final = "       "
# The rest is a key away.
MOST: Final = 3
HEADING: Final = "what to write"
LOOKING: Final = f"Looking for the cause: that takes about {FIRST_SECONDS + 5:.0f} s."
NOTHING: Final = "No cause is certain yet."


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that is wrong."""

    title: str
    # Empty for a verdict that no finding is about.
    severity: str = ""
    # The expected factor, and what is known of it.
    gain: str = ""
    between: str = ""
    place: str = ""
    fix: str = ""
    code: str = ""
    # The most telling measured number.
    evidence: str = ""


def of(snapshot: Snapshot) -> tuple[Advice, ...]:
    """Return what is wrong, what the verdict is about first."""
    verdict = snapshot.verdict
    if verdict is None and not snapshot.findings:
        return (Advice(LOOKING if snapshot.elapsed < 2 * FIRST_SECONDS else NOTHING),)
    rule = None if verdict is None else verdict.rule
    findings = sorted(snapshot.findings, key=lambda finding: finding.rule != rule)
    head = () if verdict is None or rule is not None else (_said(verdict),)
    return (*head, *map(_found, findings))


def _said(verdict: VerdictJson) -> Advice:
    fix, code = _fixed(verdict.fix, verdict.where)
    return Advice(
        printable(verdict.what or verdict.text), place=_place(verdict.where), fix=fix, code=code
    )


def _found(finding: FindingJson) -> Advice:
    slow, fast = finding.speedup or (1.0, 1.0)
    gain = "" if finding.expected is None else f"about {times(finding.expected)} faster"
    gain += ", uncertain" if gain and is_uncertain((slow, fast)) else ""
    low, high = times(slow), times(fast)
    fix, code = _fixed(next(iter(finding.fixes.values()), None), finding.where)
    return Advice(
        printable(finding.title),
        finding.severity,
        gain,
        f"{low} to {high}" if gain and low != high else "",
        _place(finding.where),
        fix,
        code,
        "".join(e.words for e in finding_text.of(finding).evidence[:1]),
    )


def _place(where: Sequence[PlaceJson]) -> str:
    return "".join(map(finding_text.in_function, where[:1]))


def _fixed(fix: FixJson | None, where: Sequence[PlaceJson]) -> tuple[str, str]:
    if fix is None:
        return "", ""
    return finding_text.to_do(fix, where), finding_text.own_code(fix.code)


def lines(advice: Sequence[Advice], width: int) -> list[Text]:
    """Return the first with its place, fix and evidence, a line for each of the next."""
    first, *rest = advice
    shown = [_head(first, width, "bold")]
    if first.place or first.between:
        shown.append(ends(Text(f"{INDENT}{first.place}"), first.between, width))
    if first.fix:
        shown.append(cut(Text(f"{INDENT}→ {first.fix}", "cyan"), width))
    if first.evidence:
        shown.append(cut(Text(f"{INDENT}{first.evidence}", "dim"), width))
    shown += [_head(each, width) for each in rest[: MOST - 1]]
    if more := len(rest) - MOST + 1:
        shown += [Text(f"{INDENT}and {more} more", "dim")] if more > 0 else []
    return shown


def _head(advice: Advice, width: int, style: str = "") -> Text:
    line = Text()
    if advice.severity:
        line.append(f"{advice.severity.upper():<{len(INDENT)}}", STYLES[advice.severity])
    return ends(line.append(advice.title, style), advice.gain, width, "bold green")


def code(advice: Advice, width: int) -> list[Text]:
    """Return what to write, for a screen with space to spare."""
    rows = [Text(f"{INDENT}{printable(row)}", "cyan") for row in advice.code.splitlines()]
    return [cut(x, width) for x in (Text(HEADING, "dim"), *rows)] if rows else []
