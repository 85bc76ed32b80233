"""Where a main thread was: the lines of now, and what is kept of them."""

from __future__ import annotations

import json

import pytest

from tests.recording.records import KEY, LEAF, LOAD, MOST, SECOND, STEP, stacks, take
from whyidle.monitor.core.source_lines import SourceLine
from whyidle.monitor.link.records import Frame, Look, Stacks
from whyidle.monitor.recording import due, stack_samples
from whyidle.monitor.recording.agent_stats import AgentStats


@pytest.fixture
def agent_stats() -> AgentStats:
    return AgentStats(KEY)


def test_the_users_own_lines_of_the_last_seconds(agent_stats: AgentStats) -> None:
    take(agent_stats, stacks(1, Look(3, LEAF, [STEP, LOAD]), Look(1, LOAD, [LOAD])))
    agent_stats.reading(2 * SECOND)
    assert agent_stats.where.lines == (
        SourceLine("/job/train.py", 20, "step", 0.75),
        SourceLine("/job/train.py", 8, "load", 0.25),
    )
    assert agent_stats.where.looks == 4
    agent_stats.reading(2 * SECOND + stack_samples.WHERE_NS)
    assert not agent_stats.where.lines


def test_where_the_thread_was_is_kept_soon_then_every_ten_seconds(
    agent_stats: AgentStats,
) -> None:
    kept = []
    for second in range(1, 24):
        take(agent_stats, stacks(second, Look(10, LEAF, [STEP])))
        kept += agent_stats.events(second * SECOND)
    kept += agent_stats.events(24 * SECOND, ending=True)
    assert [e.data["samples"] for e in kept if e.data] == [60, 100, 70]
    first = kept[0]
    assert first.kind == "stacks"
    assert not first.is_news
    assert first.data is not None
    assert first.data["lines"] == [
        {"file": "/job/train.py", "line": 20, "function": "step", "share": 1.0}
    ]
    assert first.data["leaves"][0]["file"] == LEAF.file


def test_a_long_recording_keeps_it_less_often(agent_stats: AgentStats) -> None:
    agent_stats.where._due._told = due.LATER
    take(agent_stats, stacks(1, Look(1, LEAF, [STEP])))
    assert agent_stats.events(SECOND) == []
    assert agent_stats.events(SECOND + due.EVENT_NS) == []
    assert len(agent_stats.events(SECOND + due.LATER_EVENT_NS)) == 1


def test_an_event_has_few_bytes_whatever_the_names(agent_stats: AgentStats) -> None:
    for i in range(30):
        frame = Frame("\U0001f600" * 297 + f"{i:03}", 1, "\x00" * 100)
        take(agent_stats, Stacks(1, SECOND, 1, [Look(1, frame, [frame])]))
    (event,) = agent_stats.events(SECOND, ending=True)
    assert event.data is not None
    assert 1 <= len(event.data["lines"]) < stack_samples.LINES_KEPT
    assert len(json.dumps(event.data)) < 3 * due.EVENT_BYTES


def test_a_liars_lines_stay_few(agent_stats: AgentStats) -> None:
    for i in range(3 * stack_samples.MOST_PLACES):
        frame = Frame(f"{i}.py", MOST, "f")
        take(agent_stats, Stacks(1, MOST, MOST, [Look(MOST, frame, [frame])]))
    agent_stats.reading(SECOND)
    (event,) = agent_stats.events(SECOND, ending=True)
    assert len(agent_stats.where.lines) == stack_samples.LINES_SHOWN
    assert all(0 <= line.share <= 1 for line in agent_stats.where.lines)
    assert event.data is not None
    assert len(event.data["lines"]) == stack_samples.LINES_KEPT
