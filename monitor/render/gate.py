"""What ``monitor run --gate`` came to, on one screen: the reason first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from whyidle.monitor.compare.gate import Gate, Outcome
from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core.contracts.comparison import GateJson, GrownJson
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.render.budget import clock
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_lines import one
from whyidle.monitor.render.finding_text import framework
from whyidle.monitor.render.verdict import change, verdict

WIDTH: Final = 100
# A screen has some 24 lines.
MOST_FINDINGS: Final = 4
MOST_WARNINGS: Final = 3
NEEDED: Final = (
    "to be judged it needs a minute or more of steps; in a loop of your own, marked by"
    " whyidle.step()"
)
_HEADS: Final = {
    Outcome.PASSED: "passed: neither slower nor with a new finding",
    Outcome.WORSE: "failed",
    Outcome.NOT_JUDGED: "not judged",
}


def screen(gate: Gate, answer: GateJson, diagnosis: DiagnosisJson | None) -> str:
    """Return the page."""
    return "\n".join(_page(gate, answer, diagnosis))


def _page(gate: Gate, answer: GateJson, diagnosis: DiagnosisJson | None) -> Iterator[str]:
    a, b = gate.comparison.a, gate.comparison.b
    yield f"gate {printable(answer.baseline)}: {_HEADS[gate.outcome]}"
    yield from _line(f"A: {a.label} of the baseline{_steps(a)}. B: {b.label}{_steps(b)}")
    if gate.comparison.steps is not None:
        allowed = f"slower ({gate.allowed:g}% are allowed). " if gate.is_slower else ""
        yield from _line(f"{allowed}{verdict(gate.comparison)}")
    if len(gate.each) > 1 and (ends := answer.speedup_of_runs) is not None:
        yield from _line(f"of {len(gate.each)} runs: {ends[0]:.2f}x to {ends[1]:.2f}x as fast")
    if answer.grown is not None:
        yield from _line(f"most of it {grown(answer.grown)}")
    if gate.why_unknown is not None:
        yield from _line(f"whether it is slower is not known: {gate.why_unknown}")
    if b.pace is None:
        yield from _line(NEEDED)
    yield from _new(new_findings(answer, diagnosis))
    if diagnosis is not None and not diagnosis.is_known:
        silent = len(diagnosis.not_checked)
        yield from _line(f"{silent} rules lacked what they judge by: a new fault may be there")
    for text in gate.comparison.warnings[:MOST_WARNINGS]:
        yield from _line(f"! {text}")
    yield f"  more: monitor diagnose {answer.run}"


def _steps(side: Side) -> str:
    if side.pace is None:
        return ", no steps"
    return "" if side.pace.steps is None else f", {side.pace.steps:,} steps"


def failed_job(baseline: str, how: str, code: int) -> str:
    """Say why there is nothing to judge: a job that failed took another way."""
    text = f"not judged: the job itself failed ({how}), and its exit code is ours: {code}"
    return printable(f"gate {baseline}: {text}")


def _new(found: Sequence[FindingJson]) -> Iterator[str]:
    for finding in found[:MOST_FINDINGS]:
        yield from _line(f"new  {finding.severity.upper():<7}{one(finding)}")
        for name, fix in list(finding.fixes.items())[:1]:
            yield from _line(f"     {framework(name)}: {fix.text}")
    if len(found) > MOST_FINDINGS:
        yield from _line(f"new  {len(found) - MOST_FINDINGS} more")


def new_findings(answer: GateJson, diagnosis: DiagnosisJson | None) -> list[FindingJson]:
    """Return what is new in full, in the order of the diagnosis."""
    rules = {fault.rule for fault in answer.findings_new}
    findings = [] if diagnosis is None else diagnosis.findings
    return [finding for finding in findings if finding.rule in rules]


def grown(line: GrownJson) -> str:
    """Say where the added time is."""
    place = f"{PurePath(line.file).name}:{line.line}"
    after = clock(line.after_ns)
    took = change(line.before_ns, line.after_ns, clock) if line.before_ns else after
    new = "" if line.before_ns else ", and was not seen before"
    return printable(f"in {line.function} at {place}: {took} of a step{new}")


def _line(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="      ")
