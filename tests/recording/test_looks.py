"""Where a main thread was: the lines of now, and what is kept of them."""

from __future__ import annotations

import json

import pytest

from tests.recording.records import KEY, LEAF, LOAD, MOST, SECOND, STEP, stacks, take
from whyidle.monitor.core.source_lines import SourceLine
from whyidle.monitor.link.records import Frame, Look, Stacks
from whyidle.monitor.recording import due, looks
from whyidle.monitor.recording.harvest import Harvest


@pytest.fixture
def harvest() -> Harvest:
    return Harvest(KEY)


def test_the_users_own_lines_of_the_last_seconds(harvest: Harvest) -> None:
    take(harvest, stacks(1, Look(3, LEAF, [STEP, LOAD]), Look(1, LOAD, [LOAD])))
    harvest.reading(2 * SECOND)
    assert harvest.where.lines == (
        SourceLine("/job/train.py", 20, "step", 0.75),
        SourceLine("/job/train.py", 8, "load", 0.25),
    )
    assert harvest.where.looks == 4
    harvest.reading(2 * SECOND + looks.WHERE_NS)
    assert not harvest.where.lines


def test_where_the_thread_was_is_kept_soon_then_every_ten_seconds(
    harvest: Harvest,
) -> None:
    kept = []
    for second in range(1, 24):
        take(harvest, stacks(second, Look(10, LEAF, [STEP])))
        kept += harvest.events(second * SECOND)
    kept += harvest.events(24 * SECOND, ending=True)
    assert [e.data["samples"] for e in kept if e.data] == [60, 100, 70]
    first = kept[0]
    assert first.kind == "stacks"
    assert not first.is_news
    assert first.data is not None
    assert first.data["lines"] == [
        {"file": "/job/train.py", "line": 20, "function": "step", "share": 1.0}
    ]
    assert first.data["leaves"][0]["file"] == LEAF.file


def test_a_long_recording_keeps_it_less_often(harvest: Harvest) -> None:
    harvest.where._due._told = due.LATER
    take(harvest, stacks(1, Look(1, LEAF, [STEP])))
    assert harvest.events(SECOND) == []
    assert harvest.events(SECOND + due.EVENT_NS) == []
    assert len(harvest.events(SECOND + due.LATER_EVENT_NS)) == 1


def test_an_event_has_few_bytes_whatever_the_names(harvest: Harvest) -> None:
    for i in range(30):
        frame = Frame("\U0001f600" * 297 + f"{i:03}", 1, "\x00" * 100)
        take(harvest, Stacks(1, SECOND, 1, [Look(1, frame, [frame])]))
    (event,) = harvest.events(SECOND, ending=True)
    assert event.data is not None
    assert 1 <= len(event.data["lines"]) < looks.LINES_KEPT
    assert len(json.dumps(event.data)) < 3 * due.EVENT_BYTES


def test_a_liars_lines_stay_few(harvest: Harvest) -> None:
    for i in range(3 * looks.MOST_PLACES):
        frame = Frame(f"{i}.py", MOST, "f")
        take(harvest, Stacks(1, MOST, MOST, [Look(MOST, frame, [frame])]))
    harvest.reading(SECOND)
    (event,) = harvest.events(SECOND, ending=True)
    assert len(harvest.where.lines) == looks.LINES_SHOWN
    assert all(0 <= line.share <= 1 for line in harvest.where.lines)
    assert event.data is not None
    assert len(event.data["lines"]) == looks.LINES_KEPT
