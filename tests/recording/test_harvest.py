"""From an agent's records to figures, lines of code and events."""

from __future__ import annotations

import json

import pytest

from whyidle.agents import wire
from whyidle.monitor import metrics as m
from whyidle.monitor.link.records import Bye, Frame, Gauges, LongGc, Look, Record, Stacks
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.reading import FIRST
from whyidle.monitor.recording import harvest as module
from whyidle.monitor.recording.harvest import Harvest
from whyidle.monitor.summary import Line

SECOND = 1_000_000_000
LEAF = Frame("/site-packages/torch/nn.py", 5, "forward")
LOAD, STEP = Frame("/job/train.py", 8, "load"), Frame("/job/train.py", 20, "step")


def gauges(second: float, **values: float | None) -> Gauges:
    return Gauges(int(second * SECOND), dict(values))


def stacks(second: float, *looks: Look) -> Stacks:
    return Stacks(int(second * SECOND), SECOND, sum(look.count for look in looks), list(looks))


@pytest.fixture
def harvest() -> Harvest:
    return Harvest(ProcessKey(7, 1))


def take(harvest: Harvest, *records: Record) -> None:
    harvest.take(records, lambda t: t)


def test_totals_become_rates_from_the_second_on(harvest: Harvest) -> None:
    take(harvest, gauges(1, gc_ns=0, gc_collections=10, agent_cpu_ns=0, lost=0))
    first = harvest.reading(SECOND)
    assert first.unknown[m.PROCESS_GC_PAUSE] == FIRST
    take(harvest, gauges(3, gc_ns=SECOND, gc_collections=20, agent_cpu_ns=SECOND // 100, lost=2))
    second = harvest.reading(3 * SECOND)
    assert second.values[m.PROCESS_GC_PAUSE] == pytest.approx(0.5)
    assert second.values[m.PROCESS_GC_COLLECTIONS] == pytest.approx(5)
    assert second.values[m.PROCESS_AGENT_CPU] == pytest.approx(0.005)
    assert second.values[m.PROCESS_AGENT_LOST] == 2


def test_the_last_word_comes_too_soon_for_a_rate(harvest: Harvest) -> None:
    totals = {"gc_ns": 0, "gc_collections": 0, "agent_cpu_ns": 0}
    take(harvest, gauges(1, **totals))
    harvest.reading(SECOND)
    take(harvest, gauges(2, **totals, lost=0))
    assert harvest.reading(2 * SECOND).values[m.PROCESS_AGENT_CPU] == 0
    take(harvest, gauges(2.00001, gc_ns=10**6, gc_collections=1, agent_cpu_ns=10**6, lost=5))
    last = harvest.reading(2 * SECOND)
    assert last.values == {m.PROCESS_AGENT_LOST: 5}
    take(harvest, gauges(3, gc_ns=10**8, gc_collections=2, agent_cpu_ns=10**9, lost=5))
    later = harvest.reading(3 * SECOND)
    assert later.values[m.PROCESS_GC_PAUSE] == pytest.approx(0.1)
    assert later.values[m.PROCESS_GC_COLLECTIONS] == pytest.approx(2)
    assert later.values[m.PROCESS_AGENT_CPU] == 1.0
    take(harvest, gauges(4, gc_ns=10**8, gc_collections=2, agent_cpu_ns=10**10, lost=5))
    assert harvest.reading(4 * SECOND).unknown[m.PROCESS_AGENT_CPU] == module.NO_SENSE
    take(harvest, gauges(5, gc_ns=10**8, agent_cpu_ns=10**10 + 1, lost=5), Bye(5 * SECOND, "exit"))
    assert harvest.reading(5 * SECOND).values == {m.PROCESS_AGENT_LOST: 5}


def test_what_the_agent_does_not_know_has_a_reason(harvest: Harvest) -> None:
    take(harvest, gauges(1, python_threads=None, rss_peak_bytes=1e300, gc_ns=-1))
    reading = harvest.reading(SECOND)
    assert not reading.values
    assert set(reading.unknown.values()) == {module.NOT_READ}
    assert set(reading.unknown) == set(module.MEASURED)


def test_between_two_tellings_nothing_is_due_and_the_last_is_shown(harvest: Harvest) -> None:
    take(harvest, gauges(1, python_threads=3))
    harvest.reading(SECOND)
    again = harvest.reading(SECOND + 1)
    assert not again.values
    assert not again.unknown
    assert harvest.latest.values[m.PROCESS_PYTHON_THREADS] == 3


def test_an_agent_that_says_nothing_is_silent_and_not_zero(harvest: Harvest) -> None:
    take(harvest, gauges(1, python_threads=3))
    harvest.reading(SECOND)
    late = harvest.reading(SECOND + module.SILENT_NS + 1)
    assert late.unknown[m.PROCESS_PYTHON_THREADS] == module.SILENT
    assert harvest.latest.values == {}


def test_the_users_own_lines_of_the_last_seconds(harvest: Harvest) -> None:
    take(harvest, stacks(1, Look(3, LEAF, [STEP, LOAD]), Look(1, LOAD, [LOAD])))
    harvest.reading(2 * SECOND)
    assert harvest.where == (
        Line("/job/train.py", 20, "step", 0.75),
        Line("/job/train.py", 8, "load", 0.25),
    )
    assert harvest.looks == 4
    harvest.reading(2 * SECOND + module.WHERE_NS)
    assert not harvest.where


def test_where_the_thread_was_is_kept_every_ten_seconds_and_at_the_end(harvest: Harvest) -> None:
    kept = []
    for second in range(1, 24):
        take(harvest, stacks(second, Look(10, LEAF, [STEP])))
        kept += harvest.events(second * SECOND)
    kept += harvest.events(24 * SECOND, ending=True)
    assert [e.data["samples"] for e in kept if e.data] == [110, 100, 20]
    first = kept[0]
    assert first.kind == "stacks"
    assert not first.is_news
    assert first.data is not None
    assert first.data["lines"] == [
        {"file": "/job/train.py", "line": 20, "function": "step", "share": 1.0}
    ]
    assert first.data["leaves"][0]["file"] == LEAF.file


def test_a_long_recording_keeps_it_less_often(harvest: Harvest) -> None:
    harvest._told = module.LATER
    take(harvest, stacks(1, Look(1, LEAF, [STEP])))
    assert harvest.events(SECOND) == []
    assert harvest.events(SECOND + module.EVENT_NS) == []
    assert len(harvest.events(SECOND + module.LATER_EVENT_NS)) == 1


def test_of_many_long_pauses_the_longest_is_told(harvest: Harvest) -> None:
    take(harvest, LongGc(SECOND, 2, 60_000_000, 5), LongGc(SECOND, 0, 10_000_000, 5))
    (first,) = harvest.events(SECOND)
    assert "60 ms (generation 2)." in first.text
    assert first.at == 1.0
    take(harvest, *(LongGc(2 * SECOND, 2, ms * 1_000_000, 5) for ms in (70, 90, 80)))
    assert harvest.events(2 * SECOND) == []
    (later,) = harvest.events(SECOND + module.EVENT_NS)
    assert "90 ms (generation 2), the longest of 3" in later.text


def test_a_liars_figures_stay_small(harvest: Harvest) -> None:
    most = 2**63 - 1
    for i in range(3 * module.MOST_PLACES):
        frame = Frame(f"{i}.py", most, "f")
        take(harvest, Stacks(1, most, most, [Look(most, frame, [frame])]))
    take(harvest, *(LongGc(1, most, most, most) for _ in range(1000)))
    harvest.reading(SECOND)
    first, second = harvest.events(SECOND, ending=True)
    assert len(harvest.where) == module.LINES_SHOWN
    assert all(0 <= line.share <= 1 for line in harvest.where)
    assert second.data is not None
    assert len(second.data["lines"]) == module.LINES_KEPT
    assert first.kind == "gc_pause"
    assert len(harvest._since._lines) <= module.MOST_PLACES


def test_an_event_has_few_bytes_whatever_the_names(harvest: Harvest) -> None:
    for i in range(30):
        frame = Frame("\U0001f600" * 297 + f"{i:03}", 1, "\x00" * 100)
        take(harvest, Stacks(1, SECOND, 1, [Look(1, frame, [frame])]))
    (event,) = harvest.events(SECOND, ending=True)
    assert event.data is not None
    assert 1 <= len(event.data["lines"]) < module.LINES_KEPT
    assert len(json.dumps(event.data)) < 3 * module.EVENT_BYTES


def test_before_the_first_word_nothing_waits_for_a_second(harvest: Harvest) -> None:
    assert set(harvest.latest.unknown.values()) == {module.NOTHING_YET}
    take(harvest, gauges(1, python_threads=3, rss_peak_bytes=5, gc_ns=0))
    first = harvest.reading(SECOND)
    assert first.values[m.PROCESS_PYTHON_THREADS] == 3
    assert first.values[m.PROCESS_RSS_PEAK] == 5
    assert first.unknown[m.PROCESS_GC_PAUSE] == FIRST


def test_gauges_are_those_of_the_contract() -> None:
    names = {name for name, _ in module._RATES.values()} | set(module._LEVELS.values())
    assert names | {wire.LOST, wire.RSS_BYTES} == {
        wire.GC_NS, wire.GC_COLLECTIONS, wire.AGENT_CPU_NS, wire.PYTHON_THREADS,
        wire.RSS_PEAK_BYTES, wire.LOST, wire.RSS_BYTES,
    }  # fmt: skip
