"""Long pauses of the garbage collector."""

from __future__ import annotations

from tests.recording.records import KEY, MOST, SECOND, take
from whyidle.monitor.link.records import LongGc
from whyidle.monitor.recording import due
from whyidle.monitor.recording.agent_stats import AgentStats


def test_of_many_long_pauses_the_longest_is_told() -> None:
    agent_stats = AgentStats(KEY)
    take(agent_stats, LongGc(SECOND, 2, 60_000_000, 5), LongGc(SECOND, 0, 10_000_000, 5))
    (first,) = agent_stats.events(SECOND)
    assert "60 ms (generation 2)." in first.text
    assert first.at == 1.0
    assert first.is_news
    take(agent_stats, *(LongGc(2 * SECOND, 2, ms * 1_000_000, 5) for ms in (70, 90, 80)))
    assert agent_stats.events(2 * SECOND) == []
    (later,) = agent_stats.events(SECOND + due.EVENT_NS)
    assert "90 ms (generation 2), the longest of 3" in later.text


def test_a_liars_pauses_are_one_event() -> None:
    agent_stats = AgentStats(KEY)
    take(agent_stats, *(LongGc(1, MOST, MOST, MOST) for _ in range(1000)))
    (event,) = agent_stats.events(SECOND, ending=True)
    assert event.kind == "gc_pause"
