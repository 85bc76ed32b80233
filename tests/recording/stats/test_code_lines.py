"""Where the main thread was, and where values were read back."""

from __future__ import annotations

import json

import pytest

from tests.recording.records import KEY, LEAF, LOAD, MOST, SECOND, STEP, stacks, take
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.link.records import Frame, Read, Reads, StackCount, Stacks
from whyidle.monitor.recording.stats import code_lines, event_limits
from whyidle.monitor.recording.stats.agent_stats import AgentStats
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.stacks import MOST_ROWS, Chain, CodeLine, Counts, StackSamples


@pytest.fixture
def agent_stats() -> AgentStats:
    return AgentStats(KEY)


def test_the_users_own_lines_of_the_last_seconds(agent_stats: AgentStats) -> None:
    take(agent_stats, stacks(1, StackCount(3, LEAF, [STEP, LOAD]), StackCount(1, LOAD, [LOAD])))
    agent_stats.reading(2 * SECOND)
    assert agent_stats.where.lines == (
        SourceLine("/job/train.py", 20, "step", 0.75),
        SourceLine("/job/train.py", 8, "load", 0.25),
    )
    assert agent_stats.where.looks == 4
    agent_stats.reading(2 * SECOND + code_lines.WHERE_NS)
    assert not agent_stats.where.lines


def test_where_the_thread_was_is_kept_soon_then_every_ten_seconds(
    agent_stats: AgentStats,
) -> None:
    kept = []
    for second in range(1, 24):
        take(agent_stats, stacks(second, StackCount(10, LEAF, [STEP])))
        kept += agent_stats.events(second * SECOND)
    kept += agent_stats.events(24 * SECOND, ending=True)
    assert [e.data["samples"] for e in kept if e.data] == [60, 100, 70]
    first = kept[0]
    assert first.kind == "stacks"
    assert not first.is_news
    assert first.data is not None
    seen = StackSamples.of_events([first.data])
    assert seen.lines() == (SourceLine("/job/train.py", 20, "step", 1.0),)
    assert seen.leaves()[0].file == LEAF.file


def test_whole_chains_are_kept_with_how_often_they_waited(agent_stats: AgentStats) -> None:
    called = Frame("/lib/queue.py", 5, "get")
    take(agent_stats, stacks(1, StackCount(3, LEAF, [LOAD, STEP], called, 3, 2)))
    take(
        agent_stats,
        stacks(2, StackCount(2, LEAF, [LOAD, STEP], called, 1, 1), StackCount(1, LOAD, [LOAD])),
    )
    (event,) = agent_stats.events(3 * SECOND, ending=True)
    assert event.data is not None
    seen = StackSamples.of_events([json.loads(json.dumps(event.data))] * 2)
    first, second = seen.chains.items()
    lines = [CodeLine(f.file, f.line, f.function) for f in (LOAD, STEP, LEAF, called)]
    assert first == (Chain(tuple(lines[:2]), *lines[2:]), Counts(10, 8, 6, when=0b1111))
    assert second == (Chain((lines[0],), lines[0]), Counts(2, when=0b1010))


def test_a_marked_phase_is_kept_beside_the_chain(agent_stats: AgentStats) -> None:
    look = StackCount(3, LEAF, [STEP], None, 3, 1, 0, 0, "validation")
    take(agent_stats, stacks(1, look, StackCount(5, LEAF, [STEP], None, 5, 2)))
    (event,) = agent_stats.events(2 * SECOND, ending=True)
    assert event.data is not None
    seen = StackSamples.of_events([json.loads(json.dumps(event.data))] * 2)
    found = {chain.marked: counts for chain, counts in seen.chains.items()}
    assert found == {"validation": Counts(6, 6, 2, when=0b11), None: Counts(10, 10, 4, when=0b11)}


def test_recordings_of_older_programs_have_lines_and_leaves() -> None:
    line = {"file": "/job/train.py", "line": 20, "function": "step", "share": 0.5}
    leaf = {**line, "file": "/lib/queue.py", "share": 0.25}
    seen = StackSamples.of_events([{"samples": 8, "lines": [line], "leaves": [leaf]}] * 2)
    assert seen.lines() == (SourceLine("/job/train.py", 20, "step", 0.5),)
    assert seen.leaves() == (SourceLine("/lib/queue.py", 20, "step", 0.25),)


def test_a_long_recording_keeps_it_less_often(agent_stats: AgentStats) -> None:
    agent_stats.where._due._stored = event_limits.LATER
    take(agent_stats, stacks(1, StackCount(1, LEAF, [STEP])))
    assert agent_stats.events(SECOND) == []
    assert agent_stats.events(SECOND + event_limits.EVENT_NS) == []
    assert len(agent_stats.events(SECOND + event_limits.LATER_EVENT_NS)) == 1


def test_an_event_has_few_bytes_whatever_the_names(agent_stats: AgentStats) -> None:
    for i in range(30):
        frame = Frame("\U0001f600" * 297 + f"{i:03}", 1, "\x00" * 100)
        take(agent_stats, Stacks(1, SECOND, 1, [StackCount(1, frame, [frame])]))
    (event,) = agent_stats.events(SECOND, ending=True)
    assert event.data is not None
    assert 1 <= len(event.data["rows"]) < 30
    assert len(json.dumps(event.data)) < 3 * event_limits.EVENT_BYTES


def test_a_liars_lines_stay_few(agent_stats: AgentStats) -> None:
    for i in range(3 * code_lines.MOST_PLACES):
        frame = Frame(f"{i}.py", MOST, "f")
        take(agent_stats, Stacks(1, MOST, MOST, [StackCount(MOST, frame, [frame])]))
    agent_stats.reading(SECOND)
    (event,) = agent_stats.events(SECOND, ending=True)
    assert len(agent_stats.where.lines) == code_lines.LINES_SHOWN
    assert all(0 <= line.share <= 1 for line in agent_stats.where.lines)
    assert event.data is not None
    assert len(event.data["rows"]) == MOST_ROWS


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
    assert agent_stats.events(13 * SECOND + event_limits.EVENT_NS, ending=True) == []


def test_a_liars_reads_stay_few() -> None:
    agent_stats = AgentStats(KEY)
    for i in range(20):
        frames = [Frame(f"{i} {j}" + "\x00" * 200, MOST, "f") for j in range(30)]
        take(agent_stats, Reads(SECOND, "?" * 256, [Read(MOST, MOST, each) for each in frames]))
    assert len(agent_stats._readbacks._places) == code_lines.MOST_PLACES
    (event,) = agent_stats.events(SECOND, ending=True)
    assert event.data is not None
    assert 1 <= len(event.data["places"]) <= code_lines.PLACES_KEPT
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
    found = agent_stats.read_line(SECOND + code_lines.WINDOW_NS + 1)
    assert found is not None
    assert found.line == LOAD.line
    assert agent_stats.read_line(21 * SECOND + code_lines.WINDOW_NS) is None


def test_looks_stay_apart_over_events_and_when_packed_again() -> None:
    chain, other = (
        Chain((CodeLine("/job/a.py", 3, "save"),)),
        Chain((CodeLine("/job/a.py", 9, "f"),)),
    )
    events = []
    for second in range(12):
        samples = StackSamples()
        samples.looks = 30
        samples.count(other, 20, when=(1 << 30) - 1)
        if second == 5:
            samples.count(chain, 2, when=0b110)
        events.append(json.loads(json.dumps(samples.packed(10_000))))
    seen = StackSamples.of_events(events)
    assert seen.looks == 12 * 30
    assert seen.chains[chain].when == 0b110 << 150
    again = StackSamples.of_events([json.loads(json.dumps(seen.packed(100_000)))])
    assert (again.looks, again.chains[chain]) == (seen.looks, seen.chains[chain])
    # In a long run an event is one look; and one that does not know its looks leaves all unknown.
    assert StackSamples.of_events(events * 2).chains[chain].when == (1 << 5) | (1 << 17)
    del events[3]["looks"]
    assert StackSamples.of_events(events).looks == 0
    assert StackSamples.of_events(events).chains[chain].when == 0
