"""What the frameworks report of themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.recording.records import KEY, SECOND, state, take
from whyidle.agents import wire
from whyidle.monitor.link.records import decode
from whyidle.monitor.recording.stats import agent_stats as module
from whyidle.monitor.recording.stats import event_limits
from whyidle.monitor.recording.stats.agent_stats import AgentStats

FACTS = {"version": "2.13.0", "model": "Net", "parameters": 1_200_000, "batch_size": 32}


@pytest.fixture
def agent_stats() -> AgentStats:
    return AgentStats(KEY)


def test_the_facts_of_a_process_are_news_once(agent_stats: AgentStats) -> None:
    take(agent_stats, state(1, backend="cpu", **FACTS))
    assert agent_stats.frameworks.latest == {"torch": {"backend": "cpu", **FACTS}}
    assert agent_stats.events(SECOND) == []
    (event,) = agent_stats.events(SECOND + event_limits.EVENT_NS)
    assert event.kind == "framework"
    assert event.is_news
    assert event.text == (
        "Process 7: PyTorch 2.13.0 on cpu, model Net, 1,200,000 parameters, batches of 32."
    )
    assert event.data == {"probe": "torch", "facts": {"backend": "cpu", **FACTS}}
    take(agent_stats, state(2, backend="cpu", **FACTS))
    assert agent_stats.events(30 * SECOND, ending=True) == []
    take(agent_stats, state(3, **FACTS))
    (again,) = agent_stats.events(31 * SECOND, ending=True)
    assert not again.is_news


def test_facts_that_change_all_the_time_are_stored_now_and_then(agent_stats: AgentStats) -> None:
    kept = []
    for second in range(1, 3601):
        take(agent_stats, state(second, "jax", live_bytes=second))
        kept += agent_stats.events(second * SECOND)
    assert len(kept) <= event_limits.LATER + 3600 * SECOND // event_limits.LATER_EVENT_NS
    assert agent_stats.frameworks.latest["jax"] == {"live_bytes": 3600}


@pytest.mark.parametrize(
    ("fact", "plain"),
    [
        ("x" * 1000, "x" * module.LONGEST_WORD),
        (2**70, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, True),
        ([[[[["deep"]]]]], [[[None]]]),
        (list(range(1000)), list(range(module.LONGEST_LIST))),
        ({"k" * 500: object()}, {"k" * module.LONGEST_WORD: None}),
    ],
)
def test_a_fact_is_made_plain(fact: Any, plain: Any) -> None:
    assert module.plain({"fact": fact}) == {"fact": plain}


def test_who_is_no_framework_or_says_too_much_is_not_heard(agent_stats: AgentStats) -> None:
    take(agent_stats, state(1, "gossip", **FACTS))
    long = {f"{i}" * 50: "x" * 200 for i in range(100)}
    assert len(json.dumps(long)) > wire.STATE_BYTES
    take(agent_stats, state(1, "torch", **long))
    assert agent_stats.frameworks.latest == {}


def test_words_of_another_kind_are_left_out() -> None:
    facts = {"version": 7, "model": ["Net"], "parameters": "many", "batch_size": None}
    assert module.said("jax", facts) == "JAX"


def test_facts_as_deep_as_a_line_may_be_are_cut(agent_stats: AgentStats) -> None:
    record = decode(b'["state", 1, "jax", {"a": ' + b"[" * 300 + b"]" * 300 + b"}]")
    assert record is not None
    take(agent_stats, record)
    assert agent_stats.frameworks.latest == {"jax": {"a": [[[None]]]}}
