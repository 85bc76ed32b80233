"""Findings in order: causes without their symptoms, the most important first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from whyidle.monitor.core.finding import LEAST_LOST, Found, Gain, Knows, Severity
from whyidle.monitor.diagnosis.claims import MOST_OF, Claims, Row, claimed
from whyidle.monitor.rules import Kind, Rule

# A cause that takes less explains no symptom away, nor one that takes less than half of what that
# does.
EXPLAINS: Final = LEAST_LOST[Severity.MEDIUM]
# What is only a symptom of others, and of which.
CAUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "allocation_churn": ("dense_embedding_gradients",),
    "cpu_starved": ("few_cpus_allowed",),
    "eager_launch_bound": ("python_loop_over_batch",),
    "eager_tensorflow": ("retracing", "python_loop_over_batch"),
    # The exchange lasts until the late rank has come.
    "exposed_communication": ("straggler_rank",),
    "gil_contention": ("input_starved",),
    # What is compiled for each length is known by its name.
    "growing_sequence": ("retracing",),
    # Where the pieces are many and small, it is their number that costs.
    "host_resident_data": ("many_small_copies",),
    "input_starved": ("few_cpus_allowed",),
    "many_small_copies": ("python_loop_over_batch", "unjitted_step"),
    "memory_growth": ("retracing", "unjitted_step", "growing_sequence", "slowing_down"),
    "misaligned_shards": ("clock_throttled",),
    "per_step_sync": ("large_readback", "straggler_rank"),
    "slow_tokenizer": ("input_starved",),
    "tiny_work": (
        "input_starved", "gc_pauses", "eager_launch_bound", "allocation_churn",
        "python_loop_over_batch",
    ),
    "unfused_optimizer": ("optimizer_on_cpu",),
    "unjitted_step": ("retracing", "python_loop_over_batch"),
}  # fmt: skip
# What surely gains so much is as severe as what is expected of it.
LOUD: Final = LEAST_LOST[Severity.MEDIUM]
# Errors and risks first; then what costs time; then what is only to know.
_ORDER: Final = {Kind.ERROR: 0, Kind.TIME: 1, Kind.MEMORY: 2, Kind.INFORMATION: 3}
_LAST: Final = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found, and what else points at the same part of the time."""

    rule: Rule
    found: Found
    # How much of the time the account has of it, as no useful work; ``None``: nothing says so.
    measured: float | None = None
    # Rules whose findings are symptoms of this one, or mostly about the same part of the time.
    also_seen: tuple[str, ...] = ()
    # Another finding is the cause of this.
    behind: str | None = None

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        gain = self.found.gain
        if self.found.severity is not None:
            return self.found.severity
        severity = Severity.of_share(self.lost)
        if gain is None or gain.low >= LOUD:
            return severity
        # What may gain little counts one level less, yet for what is sure; and is never loud where
        # nothing is measured.
        likely = severity.less
        if likely is Severity.MEDIUM and not gain.is_sure and self.measured is None:
            likely = Severity.LOW
        return min(likely, Severity.of_share(gain.low), key=lambda one: one.rank)

    @property
    def lost(self) -> float:
        """The share that is expected to come back, by which it is ranked."""
        gain = self.found.gain
        if gain is None:
            return 0.0
        if gain.is_sure or self.measured is None:
            return gain.expected
        # Where nothing is sure, no more than what was seen to be lost.
        return max(gain.low, min(gain.expected, self.measured))

    @property
    def reach(self) -> float:
        """The share that it may be the cause of."""
        return self.found.gain.expected if self.found.gain else 0.0

    @property
    def claims(self) -> bool:
        """Whether it is about a part of the time."""
        return self.rule.kind is Kind.TIME or self.found.explains is not None

    @property
    def is_risk(self) -> bool:
        """Whether it stands before all that only costs time."""
        return self.place[0] == _ORDER[Kind.ERROR]

    @property
    def place(self) -> tuple[int, int, float, float, str]:
        """Where it stands in the list: by what is sure, then by what is expected."""
        order = _ORDER[self.rule.kind]
        if self.rule.kind is Kind.MEMORY and self.severity is Severity.HIGH:
            # A job that will end soon is a risk before all that it loses.
            order = _ORDER[Kind.ERROR]
        is_slight = self.severity is Severity.LOW and self.found.gain is None
        if self.severity is Severity.INFO or (is_slight and self.rule.kind is Kind.TIME):
            # What may give back much stands before what surely gives back nothing.
            return _LAST, 0, -self.lost, -self.reach, self.rule.id
        return order, self.severity.rank, -self.lost, -self.reach, self.rule.id


def arbitrated(found: Sequence[Finding], rows: Sequence[Row]) -> list[Finding]:
    """Return the findings in order, without those that are mostly another's, which names them.

    Each promises what those before it leave.
    """
    kept = _without_symptoms(sorted(found, key=lambda each: each.place))
    claims = Claims(rows)
    left: list[Finding] = []
    seen: dict[str, list[str]] = {}
    for each in sorted(kept, key=_turn):
        claim = claimed(rows, each.found)
        taken = claims.taken(claim, at_most=each.found.knows is Knows.LINES)
        if each.claims and sum(taken.values()) > MOST_OF:
            owner = max(taken, key=lambda name: taken[name])
            seen.setdefault(owner, []).extend((each.rule.id, *each.also_seen))
            continue
        left.append(each)
        if each.claims and (each.found.explains or each.reach) >= EXPLAINS:
            # What may be nothing takes nothing from what is something.
            claims.take(each.rule.id, each.found, claim, surely=each.severity is not Severity.INFO)
    shown = _with_what_is_left(left, rows, seen)
    return _with_causes_first([_with(each, seen.get(each.rule.id, ())) for each in shown])


def _with_what_is_left(
    found: Sequence[Finding], rows: Sequence[Row], seen: dict[str, list[str]]
) -> list[Finding]:
    """Return findings in order, each without what those before it give back."""
    claims = Claims(rows)
    left = []
    for each in sorted(found, key=lambda each: (each.found.knows is Knows.LINES, each.place)):
        rest, taken, gain = each, dict[str, float](), each.found.gain
        if each.claims and gain is not None:
            taken = claims.taken(claimed(rows, each.found))
            left_over = 1 - min(1.0, sum(taken.values()))
            less = Gain(gain.low * left_over, gain.high * left_over)
            rest = replace(each, found=replace(each.found, gain=less))
        if not rest.found.is_worth_a_line:
            owner, mine = max(taken, key=lambda name: taken[name]), seen.pop(each.rule.id, ())
            seen.setdefault(owner, []).extend((each.rule.id, *each.also_seen, *mine))
            continue
        left.append(rest)
        if each.claims:
            claim, surely = claimed(rows, rest.found), each.severity is not Severity.INFO
            claims.take(each.rule.id, rest.found, claim, surely=surely)
    return sorted(left, key=lambda each: each.place)


def _turn(finding: Finding) -> tuple[bool, bool, Knows]:
    """Return when a finding may take its part: who names lines, and a cure for them, comes first.

    Who only names the lines takes what the others leave.
    """
    found = finding.found
    return found.knows is Knows.LINES, not (found.where or found.rows), found.knows


def _without_symptoms(found: Sequence[Finding]) -> list[Finding]:
    """Leave out symptoms whose cause is found too; the cause names them."""
    # What may cost nothing at all is no cause of what does; nor is what takes little.
    known = [each for each in found if each.reach >= EXPLAINS]
    causes = {
        each.rule.id: each
        for each in known
        if each.severity is not Severity.INFO and each.found.knows is Knows.CURE
    }
    seen: dict[str, list[str]] = {}
    left = []
    for each in found:
        named = [causes[name] for name in CAUSES.get(each.rule.id, ()) if name in causes]
        mine = [cause for cause in named if cause.reach >= MOST_OF * each.reach]
        if mine and each.rule.kind is not Kind.MEMORY:
            cause = max(mine, key=lambda one: one.reach)
            seen.setdefault(cause.rule.id, []).append(each.rule.id)
        else:
            left.append(each)
    return [_with(each, seen.get(each.rule.id, ())) for each in left]


def _with_causes_first(ordered: list[Finding]) -> list[Finding]:
    """Put memory that no line is known to hold behind what makes it grow: that names one.

    The job may end by it all the same, so that it stays.
    """
    for each in [x for x in ordered if x.rule.kind is Kind.MEMORY and not x.found.where]:
        causes = [
            other
            for other in ordered
            if {other.rule.id, *other.also_seen} & {*CAUSES.get(each.rule.id, ())}
            and other.severity.rank <= Severity.MEDIUM.rank
            and other.lost >= EXPLAINS
        ]
        if causes:
            cause = max(causes, key=lambda one: one.lost)
            ordered.remove(each)
            at = ordered.index(cause)
            # Said once, and loud once.
            symptom = replace(each, found=replace(each.found, severity=Severity.LOW))
            ordered[at : at + 1] = [_with(cause, [each.rule.id]), _with(symptom, (), cause.rule.id)]
    return ordered


def _with(finding: Finding, seen: Sequence[str], behind: str | None = None) -> Finding:
    names = dict.fromkeys((*finding.also_seen, *seen))
    return replace(finding, also_seen=tuple(names), behind=behind or finding.behind)
