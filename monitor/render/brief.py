"""Findings in a line each: for the live view and the page at the end of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from rich.text import Text

from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.render.escape import printable
from whyidle.monitor.runs.summary import RunSummary

MOST: Final = 3
STYLES: Final = {"high": "bold red", "medium": "bold yellow", "low": "bold", "info": "dim"}


def lines(findings: Sequence[FindingJson], width: int) -> list[Text]:
    """Return one line a finding, the most important ones."""
    shown = []
    for told in findings[:MOST]:
        line = Text(f"{told['severity'].upper():<7}", STYLES[told["severity"]])
        line.append(one(told))
        line.truncate(width, overflow="ellipsis")
        shown.append(line)
    if len(findings) > MOST:
        shown.append(Text(f"{'':7}and {len(findings) - MOST} more: monitor diagnose last", "dim"))
    return shown


def one(told: FindingJson) -> str:
    """Return a finding: the gain to expect, the fault, and the line of code."""
    speedup = told["speedup"]
    gain = "" if speedup is None else f"{speedup[0]:.2f}-{speedup[1]:.2f}x  "
    place = next(iter(told["where"]), None)
    where = "" if place is None else f"  {PurePath(place['file']).name}:{place['line']}"
    return printable(f"{gain}{told['title']}{where}")


def page(told: RunSummary) -> list[str]:
    """Return what was wrong with a run, and where to read on."""
    if told.diagnosis is None:
        return [f"  finding  none: {told.not_diagnosed}"] if told.not_diagnosed else []
    findings = told.diagnosis["findings"]
    shown = [f"  finding  {f['severity'].upper():<7}{one(f)}" for f in findings[:MOST]]
    more = len(findings) - MOST
    then = f"  finding  {more} more" if more > 0 else "  finding "
    if not findings:
        known = told.diagnosis["is_known"]
        then = f"  finding  {'nothing worth fixing' if known else 'too little is known to judge'};"
    return [
        *shown,
        f"{then} evidence, fixes, and what was not checked: monitor diagnose {told.run.id}",
    ]
