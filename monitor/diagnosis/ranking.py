"""Findings in order: causes without their symptoms, the most important first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from whyidle.monitor.core.finding import LEAST_LOST, ROUNDING, Found, Severity
from whyidle.monitor.rules import Kind, Rule

# A cause that takes less explains no symptom away, nor one that takes less than half of what that
# does.
EXPLAINS: Final = LEAST_LOST[Severity.MEDIUM]
MOST_OF: Final = 0.5
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
    # Rules whose findings this one explains, or that share its slice and have less of it.
    also_seen: tuple[str, ...] = ()
    # Another finding stands for the same slice, or is the cause of this.
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


def without_symptoms(found: list[Finding]) -> list[Finding]:
    """Leave out symptoms whose cause is found too; the cause names them."""
    known = [each for each in found if (each.found.explains or each.reach) >= EXPLAINS]
    # What may cost nothing at all is no cause of what does; nor is what leaves a line to others.
    causes = {
        each.rule.id: each
        for each in known
        if each.severity is not Severity.INFO and not each.found.yields_lines
    }
    seen: dict[str, list[str]] = {}
    left = []
    for each in found:
        reasons = (*each.rule.symptom_of, *each.found.symptom_of)
        named = [causes[name] for name in reasons if name in causes]
        mine = [cause for cause in named if cause.reach >= MOST_OF * each.reach]
        if each.rule.is_last_resort or each.found.yields_lines:
            mine = [cause for cause in known if cause is not each and _explains(cause, each)]
        elif each.rule.kind is Kind.TIME:
            mine += [cause for cause in known if _stands_for(cause, each)]
        if mine and each.rule.kind is not Kind.MEMORY:
            cause = max(mine, key=lambda one: one.reach)
            seen.setdefault(cause.rule.id, []).append(each.rule.id)
        else:
            left.append(each)
    return [_with(each, seen.get(each.rule.id, ())) for each in left]


def _stands_for(cause: Finding, other: Finding) -> bool:
    """Tell whether nothing was there to be slow: a job that stood still, most of the time."""
    if cause.found.explains is None or cause.rule.id == other.rule.id:
        return False
    if other.found.gain is None:
        return cause.found.explains >= MOST_OF
    return _explains(cause, other)


def _explains(cause: Finding, other: Finding) -> bool:
    """Tell whether a finding that knows a cure is about the lines of one that knows none.

    About all of what these take: a cure that gives back less leaves the rest to be explained.
    """
    gain, others = cause.found.gain, other.found.gain
    most = cause.found.explains if gain is None else gain.high
    if cause.rule.is_last_resort or most is None:
        return False
    if others and most < MOST_OF * others.low:
        return False
    if others and cause.found.hides_host and most >= others.high - ROUNDING:
        return True
    places = {(place.file, place.line) for place in cause.found.where}
    shares = [((x.file, x.line) in places, x.share or 0.0) for x in other.found.where]
    covered = sum(share for is_causes, share in shares if is_causes)
    return any(is_causes for is_causes, _ in shares) and covered >= MOST_OF * sum(
        share for _, share in shares
    )


def ranked(every: list[Finding]) -> list[Finding]:
    """Put them in order; of those that share a slice the first is its cause."""
    ordered = _with_causes_first(sorted(every, key=lambda each: each.place))
    first: dict[str, str] = {}
    for each in ordered:
        if each.found.slice is not None and each.found.gain is not None:
            first.setdefault(each.found.slice, each.rule.id)
    behind = {
        each.rule.id: first[each.found.slice]
        for each in ordered
        if each.found.slice in first and first[each.found.slice] != each.rule.id
    }
    found = []
    for each in ordered:
        others = [name for name, leader in behind.items() if leader == each.rule.id]
        found.append(_with(each, others, behind.get(each.rule.id)))
    return found


def _with_causes_first(ordered: list[Finding]) -> list[Finding]:
    """Put memory that no line is known to hold behind what makes it grow: that names one.

    The job may end by it all the same, so that it stays.
    """
    for each in [x for x in ordered if x.rule.kind is Kind.MEMORY and not x.found.where]:
        causes = [
            other
            for other in ordered
            if {other.rule.id, *other.also_seen} & {*each.rule.symptom_of}
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
