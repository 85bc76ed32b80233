"""Every recorded pair: its fault stands first before the fix, and is at most low after it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from benchmarks.record_pairs import ABOUT, faster, kept
from tests.rules.windows import WINDOWS, recorded
from whyidle.monitor import rules
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.rules import Kind

PAIRS = sorted(
    (path.parent.name, path.name.removeprefix("before_").removesuffix(".json.gz"))
    for path in WINDOWS.glob("*/before_*.json.gz")
)
# The design's bar for predictions; docs/accuracy.md has how they do.
SHARE = 0.8
BOTH = pytest.mark.parametrize(("rule", "framework"), PAIRS)
# What errors and memory rules report beside what costs time.
TIMELESS = {name for name, each in rules.load().items() if each.kind is not Kind.TIME}


@cache
def findings(rule: str, side: str) -> list[FindingJson]:
    found = diagnose.diagnose(recorded(f"{rule}/{side}"))
    assert not found.failed
    return [diagnose.finding_json(found, each) for each in found.findings]


def of(rule: str, side: str) -> FindingJson | None:
    return next((f for f in findings(rule, side) if f.rule == ABOUT[rule]), None)


def printed(rule: str, side: str) -> dict[str, Any]:
    return kept(WINDOWS / rule / f"{side}.json.gz")


def test_there_are_pairs() -> None:
    assert PAIRS


@BOTH
def test_the_fault_stands_first(rule: str, framework: str) -> None:
    listed = findings(rule, f"before_{framework}")
    if rule in TIMELESS:
        assert of(rule, f"before_{framework}") is not None
    else:
        timed = [f.rule for f in listed if f.rule not in TIMELESS]
        assert timed[:1] == [ABOUT[rule]]


@BOTH
def test_the_fix_silences_it(rule: str, framework: str) -> None:
    left = of(rule, f"after_{framework}")
    assert left is None or left.severity in {"low", "info"}


def is_inside(rule: str, framework: str) -> bool | None:
    """Return whether the measured speed-up was predicted; ``None`` where no time was."""
    finding = of(rule, f"before_{framework}")
    measured = faster(printed(rule, f"before_{framework}"), printed(rule, f"after_{framework}"))
    if finding is None or finding.speedup is None or measured is None:
        return None
    low, high = finding.speedup
    # The step of a small job on a shared machine is known to a few percent.
    return bool(0.97 * low <= measured <= 1.03 * high)


def test_what_the_fixes_gave_back_was_predicted() -> None:
    result = {pair: is_inside(*pair) for pair in PAIRS}
    missed = [pair for pair, inside in result.items() if inside is False]
    timed = [pair for pair, inside in result.items() if inside is not None]
    assert len(missed) <= (1 - SHARE) * len(timed), missed


@BOTH
def test_the_users_line_is_named(rule: str, framework: str) -> None:
    finding = of(rule, f"before_{framework}")
    assert finding is not None
    if finding.where:
        assert any(f"before_{framework}" in place.file for place in finding.where)
