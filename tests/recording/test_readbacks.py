"""Where values are read back from the device."""

from __future__ import annotations

from tests.recording.records import KEY, LOAD, MOST, SECOND, STEP, take
from whyidle.monitor.link.records import Frame, Read, Reads
from whyidle.monitor.recording import due, readbacks
from whyidle.monitor.recording.agent_stats import AgentStats
from whyidle.monitor.runs.aggregates import ReadBack


def test_reads_of_some_seconds_are_one_event_with_their_lines() -> None:
    agent_stats, kept = AgentStats(KEY), []
    for second in range(1, 13):
        places = [Read(1, 5, LOAD), Read(3, 600, STEP), Read(1, 7, None)]
        take(agent_stats, Reads(second * SECOND, "item", places))
        kept += agent_stats.events(second * SECOND)
    (event,) = kept
    assert event.kind == "reads"
    assert not event.is_news
    assert event.data is not None
    assert (event.data["count"], event.data["ns"]) == (5 * 6, 612 * 6)
    assert event.data["places"][0] == {
        "kind": "item", "file": STEP.file, "line": 20, "function": "step",
        "count": 18, "ns": 3600,
    }  # fmt: skip
    assert len(agent_stats.events(12 * SECOND, ending=True)) == 1
    assert agent_stats.events(13 * SECOND + due.EVENT_NS, ending=True) == []


def test_a_liars_reads_stay_few() -> None:
    agent_stats = AgentStats(KEY)
    for i in range(20):
        frames = [Frame(f"{i} {j}" + "\x00" * 200, MOST, "f") for j in range(30)]
        take(agent_stats, Reads(SECOND, "?" * 256, [Read(MOST, MOST, each) for each in frames]))
    assert len(agent_stats._readbacks._places) == readbacks.MOST_PLACES
    (event,) = agent_stats.events(SECOND, ending=True)
    assert event.data is not None
    assert 1 <= len(event.data["places"]) <= readbacks.PLACES_KEPT
    assert event.data["ns"] <= MOST


def test_the_line_that_waits_longest_now_is_of_the_last_records() -> None:
    agent_stats = AgentStats(KEY)
    assert agent_stats.read_line(0) is None
    take(
        agent_stats,
        Reads(SECOND, "item", [Read(9, 50, LOAD), Read(1, 600, STEP), Read(1, 7, None)]),
    )
    found = agent_stats.read_line(2 * SECOND)
    assert found == ReadBack("item", STEP.file, STEP.line, STEP.function, 1, 600)
    take(agent_stats, Reads(20 * SECOND, "item", [Read(9, 50, LOAD)]))
    found = agent_stats.read_line(SECOND + readbacks.WINDOW_NS + 1)
    assert found is not None
    assert found.line == LOAD.line
    assert agent_stats.read_line(21 * SECOND + readbacks.WINDOW_NS) is None
