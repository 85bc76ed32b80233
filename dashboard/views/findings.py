"""What was found in a run, as a page needs it beyond ``diagnose.as_json``."""

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
from whyidle.monitor.core.finding import FRAMEWORKS
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.processes.secrets import MASK
from whyidle.monitor.render import findings as terminal
from whyidle.monitor.render.budget import words
from whyidle.monitor.render.numbers import amount
from whyidle.monitor.rules import DOCUMENTS
from whyidle.monitor.store import Run

# Places whose code is shown; the others are named.
MOST_CODE: Final = 2
# Risks that stand beside the dearest finding; the page Fix has all.
MOST_BESIDE: Final = 2
# A command that would not fit on a screen.
LONGEST_COMMAND: Final = 500
_OWN_COMMAND: Final = "# CMD: your own command, as you type it. A secret in it was not stored."
_PID, _RUN = re.compile(r"\bPID\b"), re.compile(r"\bRUN\b")


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """A line of the user's code, with what stands there or why that is not shown."""

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
    # Where it is a measured one.
    middle: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A measured number in words."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to change, for one framework."""

    framework: str
    text: str
    code: str


@dataclass(frozen=True, slots=True)
class Lead:
    """What is said first: the finding that costs most time, and the risks that are no cost."""

    first: FindingJson
    beside: Sequence[FindingJson]
    more: int


def lead(findings: Sequence[FindingJson]) -> Lead | None:
    """Return which finding explains most of the lost time; with what comes before it in the list.

    The list has errors and risks first. Who looks at idle time wants to know its cause, and of the
    risks besides.
    """
    if not findings:
        return None
    first = max(findings, key=_lost)
    beside = [each for each in findings[: findings.index(first)] if not each["speedup"]][
        :MOST_BESIDE
    ]
    return Lead(first, beside, len(findings) - 1 - len(beside))


def of_slice(answer: DiagnosisJson, part: Slice) -> FindingJson | None:
    """Return the finding that is about a part of the time and names lines; the first of them."""
    found = (each for each in answer["findings"] if each["slice"] == part and each["where"])
    return next(found, None)


def _lost(finding: FindingJson) -> float:
    """Return the share of the time by which it is compared; of equals the first stays the first."""
    return sum(finding["lost_share"] or (0.0,)) / 2


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of ``monitor diagnose``, and the code that it names."""

    answer: DiagnosisJson
    verdict: str
    # By rule.
    places: Mapping[str, Sequence[CodeLocation]]

    def finding(self, rule: str) -> FindingJson | None:
        """Return what a rule found."""
        return next((each for each in self.answer["findings"] if each["rule"] == rule), None)


def of(answer: DiagnosisJson, run: Run) -> Page:
    """Return an answer of ``monitor diagnose`` as a page shows it."""
    return Page(
        answer, terminal.verdict(answer), {f["rule"]: places(f, run) for f in answer["findings"]}
    )


def places(finding: FindingJson, run: Run) -> list[CodeLocation]:
    """Return the lines that a finding names, those that cost most with their code."""
    found = []
    for i, place in enumerate(finding["where"]):
        share = "" if place["share"] is None else f"  {place['share']:.0%}"
        line = f":{place['line']}" if place["line"] else ""
        text = f"{place['file']}{line} in {place['function']}{share}"
        code = source.around(place, run) if i < MOST_CODE else None
        if isinstance(code, str):
            found.append(CodeLocation(text, None, code))
        else:
            found.append(CodeLocation(text, code))
    return found


def gain(finding: FindingJson) -> str | None:
    """Say what the fix gives back."""
    return terminal.gain(finding)


def ranges(findings: Sequence[FindingJson]) -> list[Range]:
    """Return what each fix is expected to give back."""
    found = []
    for each in findings:
        if each["speedup"]:
            low, high = each["speedup"]
            colour = theme.SEVERITIES.get(each["severity"], theme.GREY)
            found.append(Range(each["title"], low, high, colour))
    return found


def evidence(finding: FindingJson) -> list[Evidence]:
    """Return what speaks for it, each with where it comes from and how old it is."""
    return [
        Evidence(e["name"], amount(e["value"], e["unit"]), terminal.source(e))
        for e in finding["evidence"]
    ]


def remedies(finding: FindingJson) -> list[Remedy]:
    """Return the fixes that concern this job."""
    names = {str(name): words for name, words in FRAMEWORKS.items()}
    return [
        Remedy(names.get(name, name), fix["text"], fix["code"])
        for name, fix in finding["fixes"].items()
    ]


def documents(finding: FindingJson) -> list[tuple[str, str]]:
    """Return what the rule cites, with the names of the documents."""
    return [(each, DOCUMENTS.get(each[:2], "")) for each in finding["documents"]]


def why(rule: str) -> str:
    """Return the page of a rule: what it sees, why it costs, when it is wrong."""
    found = rules.load().get(rule)
    return "" if found is None else found.page.partition("\n")[2].strip()


def unexplained(answer: DiagnosisJson) -> list[tuple[str, float]]:
    """Return the parts that are no work and that no finding is about."""
    return [(words(Slice(part)), share) for part, share in answer["unexplained"].items()]


def while_it_computes(answer: DiagnosisJson) -> list[str]:
    """Say how the GPU works while it works."""
    works = answer["compute"]
    if not works:
        return []
    said = list(works["said"])
    if works["efficiency"] is not None:
        share = amount(works["efficiency"], "ratio")
        said.append(f"{share} of the chip's peak is used ({works['efficiency_source']}).")
    return [*said, *(f"not known: {each}" for each in dict.fromkeys(works["unknown"].values()))]


def caveats(answer: DiagnosisJson) -> list[str]:
    """Say what a reader must know besides: of the trace, and of rules that failed."""
    failed = answer["failed"].items()
    return [*answer["warnings"], *(f"{r} failed, a defect of whyidle: {why}" for r, why in failed)]


def not_checked(answer: DiagnosisJson, run: Run) -> dict[str, list[str]]:
    """Return the rules that could not judge by what they need, with the numbers of this run."""
    found: dict[str, list[str]] = {}
    for need, names in terminal.by_need(answer["not_checked"]).items():
        text = need
        if run.is_recording:
            text = _RUN.sub(str(run.id), _PID.sub(str(run.target_pid or "PID"), text))
        found[text] = names
    return found


def measuring(run: Run) -> str:
    """Return the commands that tell whether a change has helped."""
    command, label = run.command or "CMD", f"fix-of-{run.id}"
    is_masked = MASK in command
    if is_masked or len(command) > LONGEST_COMMAND:
        command = "CMD"
    lines = [f"monitor run --label {label} -- {command}", f"monitor compare {run.id} {label}"]
    return "\n".join([_OWN_COMMAND, *lines] if is_masked else lines)
