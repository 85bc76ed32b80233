"""Findings in order: causes without their symptoms, the most important first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from whyidle.monitor.core.finding import LEAST_LOST, Found, Gain, Knows, Severity
from whyidle.monitor.diagnosis.claims import MOST_OF, Claims, Row, claimed
from whyidle.monitor.rules import Kind, Rule

# A cause that takes less has no symptoms, nor one that takes less than half of what those do.
EXPLAINS: Final = LEAST_LOST[Severity.MEDIUM]
# What is only a symptom of others, and of which.
CAUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "allocation_churn": ("dense_embedding_gradients", "retracing", "buffers_not_donated"),
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
    # A loop over what is in the batch copies for each pass.
    "many_small_copies": ("python_loop_over_batch", "unjitted_step"),
    # Programs that are compiled again stay in memory, and a list that is walked again grows.
    "memory_growth": ("retracing", "unjitted_step", "growing_sequence", "slowing_down"),
    "misaligned_shards": ("clock_throttled",),
    "per_step_sync": ("large_readback", "straggler_rank"),
    # Where a loader has it cut, what waits is the input.
    "slow_tokenizer": ("input_starved",),
    "tiny_work": (
        "input_starved", "gc_pauses", "eager_launch_bound", "allocation_churn",
        "python_loop_over_batch",
    ),
    "unfused_optimizer": ("optimizer_on_cpu",),
    "unjitted_step": ("retracing", "python_loop_over_batch"),
}  # fmt: skip
# Of all that takes time.
OF_ALL: Final = ("job_stands_still",)
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
        if not gain.is_sure and self.measured is None:
            likely = max(likely, Severity.LOW, key=lambda one: one.rank)
        return min(likely, Severity.of_share(gain.low), key=lambda one: one.rank)

    @property
    def lost(self) -> float:
        """The share that is expected to come back; where nothing says it, what it takes."""
        gain = self.found.gain
        if gain is None:
            return self.found.takes or 0.0
        if gain.is_sure:
            return gain.expected
        # Where nothing is sure, no more than what was seen to be lost.
        seen = gain.expected if self.measured is None else self.measured
        return max(gain.low, min(gain.expected, seen))

    @property
    def weight(self) -> float:
        """How much of the time it speaks for: what is expected, or sure where it is not loud."""
        if self.is_loud:
            return max(self.lost, self.severity.least)
        return self.found.takes or (self.found.gain.low if self.found.gain else 0.0)

    @property
    def is_loud(self) -> bool:
        """Whether a person should act on it."""
        return self.severity.rank <= Severity.MEDIUM.rank

    @property
    def reach(self) -> float:
        """The share that it may be the cause of."""
        return self.found.gain.expected if self.found.gain else self.found.takes or 0.0

    @property
    def claims(self) -> bool:
        """Whether it is about a part of the time."""
        return self.rule.kind is Kind.TIME

    @property
    def is_risk(self) -> bool:
        """Whether it stands before all that only costs time."""
        return self.place[0] == _ORDER[Kind.ERROR]

    def without(self, taken: float) -> Finding:
        """Return what is left of it where others give back such a part of its time."""
        gain, left = self.found.gain, 1 - min(1.0, taken)
        if gain is None:
            return self
        less = Gain(gain.low * left, gain.high * left)
        return replace(self, found=replace(self.found, gain=less))

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
    claims, left = Claims(rows), list[Finding]()
    # What each names beside itself, and who names a rule that is left out.
    seen: dict[str, list[str]] = {}
    named_by: dict[str, str] = {}
    for each in _in_turn(found):
        claim = claimed(rows, each.found) if each.claims else {}
        taken = claims.taken(claim, at_most=each.found.knows is Knows.LINES)
        cause, owner = _cause(each, found), None
        if cause is not None:
            owner = named_by.get(cause.rule.id, cause.rule.id)
        elif sum(taken.values()) > MOST_OF:
            owner = max(taken, key=lambda name: taken[name])
        if owner is not None:
            seen.setdefault(owner, []).append(each.rule.id)
            if each.rule.kind is not Kind.MEMORY:
                named_by[each.rule.id] = owner
                continue
            # The job may end by it all the same: it is said once more, and loud once.
            quiet = replace(each.found, severity=Severity.LOW)
            left.append(replace(each, behind=owner, found=quiet))
            continue
        left.append(each)
        if each.reach >= EXPLAINS:
            # What may be nothing takes nothing from what is something.
            claims.take(each.rule.id, each.found, claim, surely=each.severity is not Severity.INFO)
    shown = _with_what_is_left(left, rows, seen)
    return [replace(each, also_seen=tuple(seen.get(each.rule.id, ()))) for each in shown]


def _with_what_is_left(
    found: Sequence[Finding], rows: Sequence[Row], seen: dict[str, list[str]]
) -> list[Finding]:
    """Return findings in order, each without what those before it give back."""
    claims, left = Claims(rows), list[Finding]()
    for each in sorted(found, key=lambda each: (each.found.knows is Knows.LINES, each.place)):
        taken = claims.taken(claimed(rows, each.found)) if each.claims else {}
        rest = each.without(sum(taken.values()))
        if not rest.found.is_worth_a_line:
            owner = max(taken, key=lambda name: taken[name])
            seen.setdefault(owner, []).extend((each.rule.id, *seen.pop(each.rule.id, ())))
            continue
        left.append(rest)
        if each.claims:
            claim, surely = claimed(rows, rest.found), each.severity is not Severity.INFO
            claims.take(each.rule.id, rest.found, claim, surely=surely)
    return sorted(left, key=lambda each: each.place)


def _in_turn(found: Sequence[Finding]) -> list[Finding]:
    """Return causes before symptoms, who names lines and a cure for them before who does not.

    Who only names the lines takes what all others leave.
    """

    def depth(each: Finding) -> int:
        cause = _cause(each, found)
        return 0 if cause is None else 1 + depth(cause)

    def turn(each: Finding) -> tuple[bool, int, bool, Knows]:
        knows, is_placed = each.found.knows, bool(each.found.where or each.found.rows)
        return knows is Knows.LINES, depth(each), not is_placed, knows

    return sorted(sorted(found, key=lambda each: each.place), key=turn)


def _cause(symptom: Finding, found: Sequence[Finding]) -> Finding | None:
    """Return what a finding is only a symptom of: what may cost nothing is no cause."""
    kind = symptom.rule.kind
    if kind is Kind.MEMORY and symptom.found.where:
        # Its line is known.
        return None
    names = (*CAUSES.get(symptom.rule.id, ()), *(OF_ALL if kind is Kind.TIME else ()))
    causes = (
        each
        for each in found
        if each.rule.id in names
        and each.reach >= max(EXPLAINS, MOST_OF * symptom.reach)
        and (each.is_loud or (kind is not Kind.MEMORY and each.severity is not Severity.INFO))
        and each.found.knows is Knows.CURE
    )
    return max(causes, key=lambda each: each.reach, default=None)
