"""What holds a process up: compilations, and pauses of the garbage collector."""

from __future__ import annotations

import json

import pytest

from tests.recording.records import KEY, MOST, SECOND, STEP, compiled, take
from whyidle.monitor.link.records import Compile, Frame, LongGc
from whyidle.monitor.processes.process import JobEvent
from whyidle.monitor.recording.stats import event_limits
from whyidle.monitor.recording.stats import stalls as module
from whyidle.monitor.recording.stats.agent_stats import AgentStats
from whyidle.monitor.recording.stats.stalls import STORM, Compiles
from whyidle.monitor.runs.summary import COMPILED, COMPILES


@pytest.fixture
def compiles() -> Compiles:
    return Compiles(KEY)


def feed(compiles: Compiles, *records: Compile, ending: bool = False) -> list[JobEvent]:
    for record in records:
        compiles.take(record, record.t)
    return compiles.events(records[-1].t if records else 0, ending=ending)


def data(event: JobEvent) -> dict[str, object]:
    assert event.data is not None
    return dict(event.data)


def test_a_long_compilation_is_shown_with_its_line_and_reason(compiles: Compiles) -> None:
    (event,) = feed(compiles, compiled(3, "step", 1500, "now f32[99,4] and before f32[20,4]"))
    assert event.kind == COMPILED
    assert event.is_news
    assert event.at == 3.0
    assert event.text == (
        "In process 7 JAX compiled 'step' in 1.5 s, called from train.py:20"
        " (now f32[99,4] and before f32[20,4])."
    )
    assert data(event) == {
        "framework": "jax", "function": "step", "ns": 1_500_000_000, "cached": False,
        "reason": "now f32[99,4] and before f32[20,4]",
        "file": STEP.file, "line": 20, "in": "step",
    }  # fmt: skip


def test_of_one_function_only_the_first_are_shown_singly(compiles: Compiles) -> None:
    many = [compiled(1, "step", 100) for _ in range(module.FIRST_OF_A_FUNCTION + 2)]
    *singly, sums = feed(compiles, *many, ending=True)
    assert [e.kind for e in singly] == [COMPILED] * module.FIRST_OF_A_FUNCTION
    assert data(sums)["count"] == 2
    assert [e.kind for e in feed(compiles, compiled(2, "eval", 100))] == [COMPILED]


def test_short_ones_become_sums_of_each_function(compiles: Compiles) -> None:
    assert feed(compiles, *(compiled(1, "add", 5) for _ in range(3)), compiled(2, "mul", 9)) == []
    assert feed(compiles, compiled(3, "add", 5, cached=True)) == []
    (event,) = compiles.events(3 * SECOND, ending=True)
    assert event.kind == COMPILES
    assert not event.is_news
    reported = data(event)
    assert (reported["count"], reported["ns"], reported["cached"]) == (5, 29_000_000, 1)
    functions = reported["functions"]
    assert isinstance(functions, list)
    assert [(f["function"], f["count"]) for f in functions] == [("add", 4), ("mul", 1)]


def test_however_many_there_are_the_events_are_few_and_have_all_of_them(compiles: Compiles) -> None:
    events: list[JobEvent] = []
    for second in range(1, 601):
        each = [compiled(second, f"f{i % 7}", 60, caller=None) for i in range(20)]
        events += feed(compiles, *each)
    events += compiles.events(601 * SECOND, ending=True)
    single = [e for e in events if e.kind == COMPILED]
    sums = [data(e)["count"] for e in events if e.kind == COMPILES]
    assert len(single) == 7 * module.FIRST_OF_A_FUNCTION
    assert len(single) + sum(n for n in sums if isinstance(n, int)) == 20 * 600
    assert len(sums) <= 61
    assert len([e for e in events if e.kind == STORM]) <= 7 * 3


def test_a_function_that_is_compiled_in_each_step_is_a_storm(compiles: Compiles) -> None:
    events: list[JobEvent] = []
    for second in range(1, 121):
        events += feed(compiles, compiled(second, "step", 20, "a new shape"))
    first, second_ = [e for e in events if e.kind == STORM]
    assert first.severity == "medium"
    assert first.at == module.STORM_COMPILES
    assert "compiles 'step' again and again: 10 times so far, 0.2 s in all" in first.text
    assert "train.py:20 (a new shape)" in first.text
    assert data(first)["count"] == module.STORM_COMPILES
    assert data(second_)["count"] == module.STORM_COMPILES * module.STORM_AGAIN


def test_warming_up_is_no_storm(compiles: Compiles) -> None:
    many = [compiled(1, f"f{i}", 5) for i in range(100)]
    same_name = [compiled(2, "<lambda>", 5, caller=Frame("a.py", i, "f")) for i in range(100)]
    cached = [compiled(3, "step", 5, cached=True) for _ in range(100)]
    seldom = [compiled(100 * i, "eval", 5) for i in range(1, 30)]
    events = feed(compiles, *many, *same_name, *cached, *seldom, ending=True)
    assert [e.kind for e in events] == [COMPILES]


def test_a_liars_compilations_stay_small(compiles: Compiles) -> None:
    function, reason = "\x00" * 256, "\U0001f600" * 500
    for i in range(5 * module.MOST_FUNCTIONS):
        caller = Frame("\x00" * 300, i, "\x00" * 100)
        compiles.take(Compile(SECOND, "?" * 256, function, MOST, reason, caller), SECOND)
    assert len(compiles._sums) == len(compiles._storms) == module.MOST_FUNCTIONS
    events = compiles.events(SECOND, ending=True)
    assert len(events) == module.FIRST_SINGLY + 1
    assert all(len(json.dumps(e.data)) < 20_000 and len(e.text) < 1000 for e in events)
    last = data(events[-1])
    assert last["count"] == 5 * module.MOST_FUNCTIONS - module.FIRST_SINGLY
    assert isinstance(last["ns"], int)
    assert last["ns"] <= MOST


def test_room_is_made_for_the_functions_of_today(compiles: Compiles) -> None:
    for i in range(module.MOST_FUNCTIONS):
        compiles.take(compiled(1, f"f{i}", 5), SECOND)
    events = feed(compiles, *(compiled(100 + i, "step", 5) for i in range(10)))
    assert STORM in [e.kind for e in events]


def test_of_many_long_pauses_the_longest_is_shown() -> None:
    agent_stats = AgentStats(KEY)
    take(agent_stats, LongGc(SECOND, 2, 60_000_000, 5), LongGc(SECOND, 0, 10_000_000, 5))
    (first,) = agent_stats.events(SECOND)
    assert "60 ms (generation 2)." in first.text
    assert first.at == 1.0
    assert first.is_news
    take(agent_stats, *(LongGc(2 * SECOND, 2, ms * 1_000_000, 5) for ms in (70, 90, 80)))
    assert agent_stats.events(2 * SECOND) == []
    (later,) = agent_stats.events(SECOND + event_limits.EVENT_NS)
    assert "90 ms (generation 2), the longest of 3" in later.text


def test_a_liars_pauses_are_one_event() -> None:
    agent_stats = AgentStats(KEY)
    take(agent_stats, *(LongGc(1, MOST, MOST, MOST) for _ in range(1000)))
    (event,) = agent_stats.events(SECOND, ending=True)
    assert event.kind == "gc_pause"
