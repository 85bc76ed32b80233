"""Findings of a running job, without flicker: one is told once it lasts, and until it is gone.

What a trace shows is exact, and an error is an error: these are told at once. What counters suggest
must show again at the next look. One that is not found any more stays for some looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

# Looks in a row that a finding of counters needs, and that it may be missing.
SURE: Final = 2
GONE: Final = 3
# Two findings change places when they differ by more of the time than this.
APART: Final = 0.05

Told = Mapping[str, Any]
News = Literal["found", "gone"]


@dataclass(frozen=True, slots=True)
class Change:
    """A finding that has become certain, or has gone."""

    news: News
    told: Told


class Debouncer:
    """Takes one diagnosis after the other."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._missed: dict[str, int] = {}
        self._shown: dict[str, Told] = {}

    @property
    def shown(self) -> tuple[Told, ...]:
        """What is certain now, in the order in which it is told."""
        return tuple(self._shown.values())

    def take(self, findings: Iterable[Told]) -> list[Change]:
        """Take in what was found at one look; returns what has changed."""
        found = {each["rule"]: each for each in findings}
        self._seen = {rule: self._seen.get(rule, 0) + 1 for rule in found}
        self._missed = {
            rule: self._missed.get(rule, 0) + 1 for rule in self._shown if rule not in found
        }
        gone = [rule for rule, times in self._missed.items() if times >= GONE]
        changes = [Change("gone", self._shown.pop(rule)) for rule in gone]
        for rule, told in found.items():
            if rule not in self._shown and self._seen[rule] < SURE and not is_exact(told):
                continue
            if rule not in self._shown:
                changes.append(Change("found", told))
            self._shown[rule] = told
        self._shown = _in_order(self._shown)
        return changes


def is_exact(told: Told) -> bool:
    """Tell whether one look is enough."""
    if told["lost_share"] is None and told["severity"] == "high":
        return True
    return any(str(each["source"]).startswith("trace") for each in told["evidence"])


def _in_order(shown: Mapping[str, Told]) -> dict[str, Told]:
    """Put those that now lose clearly more before others; the rest stay where they are."""
    order: list[Told] = []
    for told in shown.values():
        place = len(order)
        while place and _lost(told) > _lost(order[place - 1]) + APART:
            place -= 1
        order.insert(place, told)
    return {told["rule"]: told for told in order}


def _lost(told: Told) -> float:
    share = told["lost_share"]
    if share is None:
        # Errors stand first, what costs no time last.
        return 2.0 if told["severity"] == "high" else 0.0
    return float(share[0] + share[1]) / 2
