"""Whether a program got worse than its baseline: slower beyond noise, or with a new fault.

Each of its runs is compared with the baseline's middle run, and the middle one of these speaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Final

from whyidle.monitor.compare import answer
from whyidle.monitor.compare.comparison import compare
from whyidle.monitor.compare.pace import BETWEEN_RUNS, TELLING
from whyidle.monitor.compare.result import Comparison, Fault, Verdict
from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core.contracts.comparison import GateJson, GrownJson
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.runs.stacks import CodeLine

# The pace of one machine says nothing of another's.
OF_THE_MACHINE: Final = ("device", "GPU", "devices")
LEAST: Final = Severity.MEDIUM
# So many runs of each side say themselves how much one program varies. Of fewer nothing does: on a
# shared machine one that nobody had changed was 5% slower beyond the noise of its steps.
ENOUGH_RUNS: Final = 3
# A line that took less of what was added says nothing.
MOSTLY: Final = 0.5
NO_STEPS: Final = "the steps of one of them are not known"
VARIES: Final = "runs of the same program differ by as much"
NOISE: Final = "the steps vary too much to tell"


class Outcome(StrEnum):
    """What a gate comes to."""

    PASSED = "passed"
    WORSE = "worse"
    NOT_JUDGED = "not_judged"


@dataclass(frozen=True, slots=True)
class Grown:
    """The line of the user's whose function takes more time of a step than it did."""

    line: CodeLine
    before_ns: float
    after_ns: float


@dataclass(frozen=True, slots=True)
class Gate:
    """What became of a program since its baseline."""

    # Of each run with the baseline, in the order of the runs.
    each: tuple[Comparison, ...]
    # Which of them is in the middle.
    speaks: int
    is_slower: bool
    allowed: float
    # Findings that are new, or matter now and did not before, in most of the runs.
    new: tuple[Fault, ...]
    # Where the added time is; ``None``: no line took more.
    grown: Grown | None
    why_unknown: str | None

    @property
    def comparison(self) -> Comparison:
        """The one that speaks."""
        return self.each[self.speaks]

    @property
    def outcome(self) -> Outcome:
        """What is certain goes before what is not."""
        if self.is_slower or self.new:
            return Outcome.WORSE
        return Outcome.PASSED if self.why_unknown is None else Outcome.NOT_JUDGED

    @property
    def speedups(self) -> tuple[float, float] | None:
        """How many times faster the slowest and the fastest run are."""
        known = [one.speedup.middle for one in self.each if one.speedup is not None]
        return (min(known), max(known)) if known else None


def judge(baseline: Sequence[Side], runs: Sequence[Side], allowed: float | None = None) -> Gate:
    """Hold runs of a program against those of its baseline; ``allowed``: percent slower."""
    if allowed is None:
        is_enough = min(len(baseline), len(runs)) >= ENOUGH_RUNS
        allowed = 100 * (BETWEEN_RUNS if is_enough else TELLING)
    before = baseline[_middle([_pace(side) for side in baseline])]
    each = tuple(compare(before, side) for side in runs)
    speaks = _middle([_took(one) for one in each])
    chosen = each[speaks]
    why = _why_unknown(chosen)
    beyond = why is None and _slower(chosen, allowed)
    agree = sum(_slower(one, allowed) for one in each) > len(each) / 2
    # Runs of the baseline that were as slow say that the program varies by so much.
    varies = beyond and not (agree and _is_outside(chosen, baseline, before))
    slow = beyond and not varies
    return Gate(
        each,
        speaks,
        slow,
        allowed,
        tuple(_new(each, chosen)),
        _grown(chosen) if slow else None,
        VARIES if varies else why,
    )


def _middle(took: Sequence[float]) -> int:
    """Return which of them is in the middle; of two, the smaller."""
    order = sorted(range(len(took)), key=lambda place: took[place])
    return order[(len(order) - 1) // 2]


def _pace(side: Side) -> float:
    return 0.0 if side.pace is None else side.pace.middle_ns


def _took(found: Comparison) -> float:
    return 0.0 if found.speedup is None else 1 / found.speedup.middle


def _slower(found: Comparison, allowed: float) -> bool:
    much = found.speedup
    if much is None or found.verdict is not Verdict.SLOWER:
        return False
    return 100 * (1 / much.middle - 1) > allowed


def _is_outside(chosen: Comparison, baseline: Sequence[Side], before: Side) -> bool:
    """Tell whether it is slower than each run of the baseline was, beside its middle one."""
    slowest = max((_pace(side) for side in baseline), default=0.0)
    return not _pace(before) or _took(chosen) > slowest / _pace(before)


def _why_unknown(found: Comparison) -> str | None:
    for each in found.setup:
        if each.name in OF_THE_MACHINE:
            return f"not the same {each.name}: {each.a} and {each.b}"
    if found.verdict is Verdict.UNKNOWN or found.speedup is None:
        return found.why_no_steps or NO_STEPS
    if found.verdict is Verdict.UNCERTAIN:
        return found.why_uncertain or found.speedup.why_no_bounds or NOISE
    return None


def _new(each: Sequence[Comparison], chosen: Comparison) -> list[Fault]:
    counts = Counter(fault.rule for one in each for fault in _worse(one))
    return [fault for fault in _worse(chosen) if counts[fault.rule] > len(each) / 2]


def _worse(found: Comparison) -> list[Fault]:
    """Return what is new, and what was too slight to count."""

    def counts(severity: str | None) -> bool:
        return severity is not None and Severity(severity).rank <= LEAST.rank

    faults = (*found.faults.new, *found.faults.kept)
    return [fault for fault in faults if counts(fault.b) and not counts(fault.a)]


def _grown(found: Comparison) -> Grown | None:
    """Return where most of the added time is; a function keeps its name while its lines move."""
    if found.steps is None:
        return None
    before = _by_function(found.a, found.steps.a.middle)
    after = _by_function(found.b, found.steps.b.middle)
    much = {at: _sum(lines) - _sum(before.get(at, {})) for at, lines in after.items()}
    most = max(much, key=lambda at: much[at], default=None)
    if most is None or much[most] < MOSTLY * found.steps.difference.middle:
        return None
    lines, old = after[most], before.get(most, {})
    line = max(lines, key=lambda each: lines[each])
    return Grown(line, _sum(old), _sum(lines))


def _sum(lines: dict[CodeLine, float]) -> float:
    return sum(lines.values())


def _by_function(side: Side, step_ns: float) -> dict[tuple[str, str], dict[CodeLine, float]]:
    found: dict[tuple[str, str], dict[CodeLine, float]] = {}
    for row in side.window.rows:
        if row.frames:
            line = row.frames[0]
            lines = found.setdefault((PurePath(line.file).name, line.function), {})
            lines[line] = lines.get(line, 0.0) + row.share * step_ns
    return found


def as_json(gate: Gate, baseline: str, runs: Sequence[int]) -> GateJson:
    """Return the answer of ``monitor run --gate --json``."""
    compared = answer.as_json(gate.comparison)
    rules = {fault.rule for fault in gate.new}
    known = [*compared.findings_new, *compared.findings_kept]
    ends = gate.speedups
    return GateJson(
        baseline=baseline,
        outcome=str(gate.outcome),
        is_slower=gate.is_slower,
        allowed_percent=gate.allowed,
        why_unknown=gate.why_unknown,
        runs=list(runs),
        run=runs[gate.speaks],
        speedup_of_runs=None if ends is None else [round(each, 4) for each in ends],
        findings_new=[fault for fault in known if fault.rule in rules],
        grown=None if gate.grown is None else _grown_json(gate.grown),
        comparison=compared,
    )


def _grown_json(grown: Grown) -> GrownJson:
    file, line, function = grown.line
    return GrownJson(
        file=file, line=line, function=function,
        before_ns=round(grown.before_ns), after_ns=round(grown.after_ns),
    )  # fmt: skip
