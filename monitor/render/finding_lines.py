"""Findings as one line each: for the summary of a recording."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.finding import times
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.finding_text import short
from whyidle.monitor.runs.summary import RunSummary

MOST: Final = 3
STYLES: Final = {"high": "bold red", "medium": "bold yellow", "low": "bold", "info": "dim"}


def one(finding: FindingJson) -> str:
    """Return a finding as the expected gain, the fault, and the line of code."""
    expected = finding.expected
    gain = "" if expected is None else f"~{times(expected)}  "
    where = "".join(f"  {short(place)}" for place in finding.where[:1])
    return printable(f"{gain}{finding.title}{where}")


def page(summary: RunSummary) -> list[str]:
    """Return what was wrong with a run, and which command shows more."""
    if summary.diagnosis is None:
        return [f"  finding  none: {summary.not_diagnosed}"] if summary.not_diagnosed else []
    findings = summary.diagnosis.findings
    shown = [f"  finding  {f.severity.upper():<7}{one(f)}" for f in findings[:MOST]]
    more = len(findings) - MOST
    then = f"  finding  {more} more" if more > 0 else "  finding "
    return [
        f"  verdict  {printable(summary.diagnosis.verdict.text)}",
        *shown,
        f"{then} evidence, fixes, and what was not checked: monitor diagnose {summary.run.id}",
    ]
