"""Findings of a running job: reported once they last, and until they are gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whyidle.monitor.core.contracts.diagnosis import EvidenceJson, FindingJson
from whyidle.monitor.diagnosis.costs import NO_COST
from whyidle.monitor.diagnosis.debounce import GONE, SURE, Debouncer


def finding_of(
    rule: str,
    share: tuple[float, float] | None = (0.3, 0.4),
    source: str = "agent",
    severity: str = "high",
) -> FindingJson:
    return FindingJson(
        rule=rule,
        severity=severity,
        title="",
        confidence="measured",
        slice=None,
        lost_share=None if share is None else list(share),
        paced_by="steps",
        speedup=None,
        expected=None if share is None else 1 / (1 - sum(share) / 2),
        evidence=[EvidenceJson(name="", value=1.0, unit="", source=source)],
        where=[],
        fixes={},
        documents=[],
        also_seen=[],
        behind=None,
        energy=NO_COST,
    )


def rules(certain: Debouncer) -> list[str]:
    return [each.rule for each in certain.shown]


def test_what_counters_suggest_must_show_twice() -> None:
    certain = Debouncer()
    assert certain.take([finding_of("a")]) == []
    assert certain.take([]) == []
    assert certain.take([finding_of("a")]) == []
    changes = certain.take([finding_of("a")])
    assert [(c.news, c.finding.rule) for c in changes] == [("found", "a")]
    assert certain.take([finding_of("a")]) == []


def test_what_a_trace_shows_is_reported_at_once() -> None:
    certain = Debouncer()
    assert [c.news for c in certain.take([finding_of("a", source="trace 3")])] == ["found"]


def test_an_error_is_reported_at_once() -> None:
    certain = Debouncer()
    assert [c.news for c in certain.take([finding_of("gpu_error", None)])] == ["found"]
    assert certain.take([finding_of("memory_growth", None, severity="medium")]) == []


def test_one_round_without_it_is_no_news() -> None:
    certain = Debouncer()
    certain.take([finding_of("a", source="trace 1")])
    for _ in range(GONE - 1):
        assert certain.take([]) == []
        assert rules(certain) == ["a"]
    assert [c.news for c in certain.take([])] == ["gone"]
    assert rules(certain) == []


def test_the_latest_figures_are_shown() -> None:
    certain = Debouncer()
    certain.take([finding_of("a", (0.1, 0.2), "trace 1")])
    certain.take([finding_of("a", (0.5, 0.6), "agent")])
    assert certain.shown[0].lost_share == [0.5, 0.6]


def test_nearly_equal_losses_do_not_change_places() -> None:
    certain = Debouncer()
    certain.take([finding_of("a", (0.3, 0.3), "trace 1"), finding_of("b", (0.2, 0.2), "trace 1")])
    certain.take([finding_of("a", (0.3, 0.3)), finding_of("b", (0.33, 0.33))])
    assert rules(certain) == ["a", "b"]
    certain.take([finding_of("a", (0.3, 0.3)), finding_of("b", (0.4, 0.4))])
    assert rules(certain) == ["b", "a"]


def test_what_is_loud_stands_before_what_may_gain_more() -> None:
    certain = Debouncer()
    slight = finding_of("a", (0.1, 0.7), "trace 1", "low")
    certain.take([slight, finding_of("b", (0.1, 0.2), "trace 1", "medium")])
    assert rules(certain) == ["b", "a"]
    certain.take([slight, finding_of("c", (0.0, 0.9), "trace 1", "info")])
    assert rules(certain) == ["b", "a", "c"]


ROUNDS = st.lists(st.sets(st.sampled_from("abc")), max_size=30)


@given(ROUNDS)
def test_each_news_alternates_and_agrees_with_what_is_shown(rounds: list[set[str]]) -> None:
    certain, now = Debouncer(), set[str]()
    for i, found in enumerate(rounds):
        for change in certain.take([finding_of(rule) for rule in sorted(found)]):
            rule = change.finding.rule
            assert (change.news == "found") is (rule not in now)
            now ^= {rule}
            if change.news == "found":
                assert all(rule in each for each in rounds[i + 1 - SURE : i + 1])
            else:
                assert not any(rule in each for each in rounds[i + 1 - GONE : i + 1])
        assert set(rules(certain)) == now
