"""Findings of a running job without flicker: each is shown once it lasts, and until it is gone.

What a trace shows is exact, and an error is an error: these are shown at once. What counters
suggest must be found twice in a row. A finding that is missing stays for some diagnoses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.core.finding import Severity

# Diagnoses in a row in which a finding of counters must be, and in which it may be missing.
SURE: Final = 2
GONE: Final = 3
# Two findings change places when they differ by more of the time than this.
APART: Final = 0.05
# What is loud stands before what is not, however much that may gain.
_LEVELS: Final = {Severity.HIGH: 0, Severity.MEDIUM: 0, Severity.LOW: 1, Severity.INFO: 2}

News = Literal["found", "gone"]


@dataclass(frozen=True, slots=True)
class Change:
    """A finding that has become certain, or has gone."""

    news: News
    finding: FindingJson


class Debouncer:
    """Takes one diagnosis after the other."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._missed: dict[str, int] = {}
        self._shown: dict[str, FindingJson] = {}

    @property
    def shown(self) -> tuple[FindingJson, ...]:
        """What is certain now, the most important first."""
        return tuple(self._shown.values())

    def take(self, findings: Iterable[FindingJson], first: str | None = None) -> list[Change]:
        """Take in the findings of one diagnosis; returns what has changed.

        ``first``: the rule that its verdict is about.
        """
        found = {each.rule: each for each in findings}
        self._seen = {rule: self._seen.get(rule, 0) + 1 for rule in found}
        self._missed = {
            rule: self._missed.get(rule, 0) + 1 for rule in self._shown if rule not in found
        }
        gone = [rule for rule, times in self._missed.items() if times >= GONE]
        changes = [Change("gone", self._shown.pop(rule)) for rule in gone]
        for rule, finding in found.items():
            if rule not in self._shown and self._seen[rule] < SURE and not is_exact(finding):
                continue
            if rule not in self._shown:
                changes.append(Change("found", finding))
            self._shown[rule] = finding
        self._shown = _in_order(self._shown, first)
        return changes


def is_exact(finding: FindingJson) -> bool:
    """Whether a finding is shown at once."""
    return _is_risk(finding) or any(each.source.startswith("trace") for each in finding.evidence)


def _in_order(shown: Mapping[str, FindingJson], first: str | None) -> dict[str, FindingJson]:
    """Put those that now lose clearly more before others; the rest stay where they are.

    Before all that costs time stands what the verdict is about.
    """
    order: list[FindingJson] = []
    for finding in shown.values():
        place = len(order)
        while place and _is_before(finding, order[place - 1]):
            place -= 1
        order.insert(place, finding)
    order.sort(key=lambda each: 0 if _is_risk(each) else 1 if each.rule == first else 2)
    return {finding.rule: finding for finding in order}


def _is_risk(finding: FindingJson) -> bool:
    return finding.expected is None and finding.severity == "high"


def _is_before(finding: FindingJson, other: FindingJson) -> bool:
    mine, others = (_LEVELS[Severity(each.severity)] for each in (finding, other))
    if mine != others:
        return mine < others
    return _lost(finding) > _lost(other) + APART


def _lost(finding: FindingJson) -> float:
    if finding.expected is None:
        # Errors stand first, what costs no time last.
        return 2.0 if _is_risk(finding) else 0.0
    return 1 - 1 / finding.expected
