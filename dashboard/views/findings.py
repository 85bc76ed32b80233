"""The findings of a run, as a page needs them beyond ``diagnose.as_json``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard import theme
from whyidle.dashboard.views import source
from whyidle.dashboard.views.source import Code
from whyidle.monitor import rules
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.processes.secrets import MASK
from whyidle.monitor.render import finding_text
from whyidle.monitor.render import findings as terminal
from whyidle.monitor.render.budget import words
from whyidle.monitor.store import Run

# How many locations are shown with their code; the others are only named.
MOST_CODE: Final = 2
# How many risks stand beside the costliest finding; the page Fix shows all.
MOST_BESIDE: Final = 2
# A command that would not fit on a screen.
LONGEST_COMMAND: Final = 500
_OWN_COMMAND: Final = "# CMD: your own command, as you type it. A secret in it was not stored."
_PID, _RUN = re.compile(r"\bPID\b"), re.compile(r"\bRUN\b")


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """A line of user code, with the code there or why it is not shown."""

    words: str
    code: Code | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A range of speed-ups, as a chart shows it."""

    name: str
    low: float
    high: float
    colour: str
    # Set for a measured range.
    middle: float | None = None


@dataclass(frozen=True, slots=True)
class Lead:
    """What comes first, and what stands beside it: risks, or beside a risk what costs time."""

    first: FindingJson
    beside: Sequence[FindingJson]
    more: int


def lead(answer: DiagnosisJson) -> Lead | None:
    """Return the finding that the verdict is about, else the first that costs time."""
    findings, rule = answer.findings, answer.verdict.rule
    if not findings:
        return None
    timed = [each for each in findings if each.speedup]
    said = (each for each in findings if each.rule == rule)
    first = next(said, None) or next(iter(timed), findings[0])
    risks = [each for each in findings[: findings.index(first)] if not each.speedup]
    beside = risks[:MOST_BESIDE] if first.speedup else timed[:1]
    return Lead(first, beside, len(findings) - 1 - len(beside))


def of_slice(answer: DiagnosisJson, part: Slice) -> FindingJson | None:
    """Return the first finding about a slice that names lines of code."""
    found = (each for each in answer.findings if each.slice == part and each.where)
    return next(found, None)


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of ``monitor diagnose``, with the code that it names."""

    answer: DiagnosisJson
    verdict: str
    # By rule.
    places: Mapping[str, Sequence[CodeLocation]]

    def finding(self, rule: str) -> FindingJson | None:
        """Return what a rule found."""
        return next((each for each in self.answer.findings if each.rule == rule), None)


def of(answer: DiagnosisJson, run: Run) -> Page:
    """Return an answer of ``monitor diagnose`` in the form of the page."""
    return Page(
        answer,
        answer.verdict.text,
        {f.rule: places(f, run) for f in answer.findings},
    )


def places(finding: FindingJson, run: Run) -> list[CodeLocation]:
    """Return the lines that a finding names, the costliest with their code."""
    found = []
    for i, place in enumerate(finding.where):
        text = finding_text.place(place).words
        code = source.around(place, run) if i < MOST_CODE else None
        if isinstance(code, str):
            found.append(CodeLocation(text, None, code))
        else:
            found.append(CodeLocation(text, code))
    return found


def ranges(findings: Sequence[FindingJson]) -> list[Range]:
    """Return the expected gain of each fix."""
    found = []
    for each in findings:
        if each.speedup:
            low, high = each.speedup
            colour = theme.SEVERITIES.get(each.severity, theme.GREY)
            found.append(Range(each.title, low, high, colour))
    return found


def why(rule: str) -> str:
    """Return the page of a rule: what it checks, why it costs, when it is wrong."""
    found = rules.load().get(rule)
    return "" if found is None else found.page.partition("\n")[2].strip()


def unexplained(answer: DiagnosisJson) -> list[tuple[str, float]]:
    """Return the idle slices that no finding is about."""
    return [(words(Slice(part)), share) for part, share in answer.unexplained.items()]


def while_it_computes(answer: DiagnosisJson) -> list[str]:
    """Return how well the device computes while it computes."""
    return terminal.while_it_computes(answer.compute) if answer.compute else []


def caveats(answer: DiagnosisJson) -> list[str]:
    """Return the warnings about the trace, and the rules that failed."""
    failed = answer.failed.items()
    return [*answer.warnings, *(f"{r} failed, a defect of whyidle: {why}" for r, why in failed)]


def not_checked(answer: DiagnosisJson, run: Run) -> dict[str, list[str]]:
    """Return the rules that could not be checked, by what they need in this run."""
    found: dict[str, list[str]] = {}
    for need, names in terminal.by_need(answer.not_checked).items():
        text = need
        if run.is_recording:
            text = _RUN.sub(str(run.id), _PID.sub(str(run.target_pid or "PID"), text))
        found[text] = names
    return found


def measuring(run: Run) -> str:
    """Return the commands that show whether a change has helped."""
    command, label = run.command or "CMD", f"fix-of-{run.id}"
    is_masked = MASK in command
    if is_masked or len(command) > LONGEST_COMMAND:
        command = "CMD"
    lines = [f"monitor run --label {label} -- {command}", f"monitor compare {run.id} {label}"]
    return "\n".join([_OWN_COMMAND, *lines] if is_masked else lines)
