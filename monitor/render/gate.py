"""What ``monitor run --gate`` came to, on one screen: the reason first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from whyidle.monitor.compare.gate import Gate, Outcome
from whyidle.monitor.core.contracts.comparison import GateJson, GrownJson
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_lines import one
from whyidle.monitor.render.said import framework
from whyidle.monitor.render.verdict import change, verdict

WIDTH: Final = 100
# A screen has some 24 lines.
MOST_FINDINGS: Final = 4
MOST_WARNINGS: Final = 3
_HEADS: Final = {
    Outcome.PASSED: "passed: neither slower nor with a new finding",
    Outcome.WORSE: "failed",
    Outcome.NOT_JUDGED: "not judged",
}


def screen(gate: Gate, answer: GateJson, diagnosis: DiagnosisJson | None) -> str:
    """Return the page."""
    return "\n".join(_page(gate, answer, diagnosis))


def _page(gate: Gate, answer: GateJson, diagnosis: DiagnosisJson | None) -> Iterator[str]:
    yield f"gate {printable(answer['baseline'])}: {_HEADS[gate.outcome]}"
    allowed = f"slower ({gate.allowed:g}% are allowed). " if gate.is_slower else ""
    yield from _line(f"{allowed}{verdict(gate.comparison)}")
    if len(gate.each) > 1 and (ends := answer["speedup_of_runs"]) is not None:
        yield from _line(f"of {len(gate.each)} runs: {ends[0]:.2f}x to {ends[1]:.2f}x as fast")
    if answer["grown"] is not None:
        yield from _line(f"most of it {grown(answer['grown'])}")
    if gate.why_unknown is not None:
        yield from _line(f"whether it is slower is not known: {gate.why_unknown}")
    yield from _new(new_findings(answer, diagnosis))
    for text in gate.comparison.warnings[:MOST_WARNINGS]:
        yield from _line(f"! {text}")
    yield f"  more: monitor diagnose {answer['run']}"


def _new(found: Sequence[FindingJson]) -> Iterator[str]:
    for finding in found[:MOST_FINDINGS]:
        yield from _line(f"new  {finding['severity'].upper():<7}{one(finding)}")
        for name, fix in list(finding["fixes"].items())[:1]:
            yield from _line(f"     {framework(name)}: {fix['text']}")
    if len(found) > MOST_FINDINGS:
        yield from _line(f"new  {len(found) - MOST_FINDINGS} more")


def new_findings(answer: GateJson, diagnosis: DiagnosisJson | None) -> list[FindingJson]:
    """Return what is new in full, in the order of the diagnosis."""
    rules = {fault["rule"] for fault in answer["findings_new"]}
    findings = [] if diagnosis is None else diagnosis["findings"]
    return [finding for finding in findings if finding["rule"] in rules]


def grown(line: GrownJson) -> str:
    """Say where the added time is."""
    place = f"{PurePath(line['file']).name}:{line['line']}"
    after = clock(line["after_ns"])
    took = change(line["before_ns"], line["after_ns"], clock) if line["before_ns"] else after
    new = "" if line["before_ns"] else ", and was not seen before"
    return printable(f"in {line['function']} at {place}: {took} of a step{new}")


def _line(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="      ")
