"""Recorded jobs with two faults at once, and with none: both are found, the larger first."""

from __future__ import annotations

import pytest

from benchmarks.record_pairs import faster, kept
from tests.rules.windows import WINDOWS, recorded
from whyidle.monitor import rules
from whyidle.monitor.core.contracts.diagnosis import FindingJson
from whyidle.monitor.demo.pairs import HEALTHY, STORIES, Pair, all_pairs, healthy
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.rules import Kind

ALL = [pair for pair in all_pairs() if pair.is_story]
EACH = pytest.mark.parametrize("pair", ALL, ids=lambda pair: f"{pair.name}-{pair.framework}")
# What other programs on the machine take is no fault of the job.
OF_OTHERS = {"cpu_starved"}
# Both fixes together.
LEAST_SPEEDUP = 1.5


def findings(name: str) -> list[FindingJson]:
    found = diagnose.diagnose(recorded(name))
    assert not found.failed
    listed = [diagnose.finding_json(found, each) for each in found.findings]
    return [each for each in listed if each.rule not in OF_OTHERS]


def place(pair: Pair, side: str) -> str:
    return f"{STORIES}/{pair.name}/{side}_{pair.framework}"


@EACH
def test_both_faults_are_found_and_the_larger_first(pair: Pair) -> None:
    costs_time = {name for name, each in rules.load().items() if each.kind is Kind.TIME}
    found = [each.rule for each in findings(place(pair, "before")) if each.rule in costs_time]
    assert found[0] == pair.faults[0]
    assert [rule for rule in found if rule in pair.faults] == list(pair.faults)


@EACH
def test_the_fixes_silence_both_and_are_worth_it(pair: Pair) -> None:
    left = findings(place(pair, "after"))
    worth = [each.rule for each in left if each.severity in {"high", "medium"}]
    assert not set(worth) & set(pair.faults)
    printed = [kept(WINDOWS / f"{place(pair, side)}.json.gz") for side in ("before", "after")]
    gain = faster(*printed)
    assert gain is not None
    assert gain > LEAST_SPEEDUP


@pytest.mark.parametrize("name", healthy())
def test_nothing_is_wrong_with_a_healthy_job(name: str) -> None:
    listed = findings(f"{HEALTHY}/{name}")
    assert [each.rule for each in listed if each.severity in {"high", "medium"}] == []
