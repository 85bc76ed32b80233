"""From an agent's records to figures; a figure without a value has a reason."""

from __future__ import annotations

import pytest

from tests.recording.records import KEY, SECOND, gauges, state, steps, take
from whyidle.agents import wire
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import FIRST, NO_JAX
from whyidle.monitor.link.records import Bye
from whyidle.monitor.recording.stats import agent_stats as module
from whyidle.monitor.recording.stats import figures, step_times
from whyidle.monitor.recording.stats.agent_stats import MEASURED, AgentStats


@pytest.fixture
def agent_stats() -> AgentStats:
    return AgentStats(KEY)


def test_totals_become_rates_from_the_second_on(agent_stats: AgentStats) -> None:
    take(agent_stats, gauges(1, gc_ns=0, gc_collections=10, agent_cpu_ns=0, lost=0))
    first = agent_stats.reading(SECOND)
    assert first.unknown[m.PROCESS_GC_PAUSE] == FIRST
    take(
        agent_stats, gauges(3, gc_ns=SECOND, gc_collections=20, agent_cpu_ns=SECOND // 100, lost=2)
    )
    second = agent_stats.reading(3 * SECOND)
    assert second.values[m.PROCESS_GC_PAUSE] == pytest.approx(0.5)
    assert second.values[m.PROCESS_GC_COLLECTIONS] == pytest.approx(5)
    assert second.values[m.PROCESS_AGENT_CPU] == pytest.approx(0.005)
    assert second.values[m.PROCESS_AGENT_LOST] == 2


def test_the_last_word_comes_too_soon_for_a_rate(agent_stats: AgentStats) -> None:
    totals = {"gc_ns": 0, "gc_collections": 0, "agent_cpu_ns": 0}
    take(agent_stats, gauges(1, **totals))
    agent_stats.reading(SECOND)
    take(agent_stats, gauges(2, **totals, lost=0))
    assert agent_stats.reading(2 * SECOND).values[m.PROCESS_AGENT_CPU] == 0
    take(agent_stats, gauges(2.00001, gc_ns=10**6, gc_collections=1, agent_cpu_ns=10**6, lost=5))
    last = agent_stats.reading(2 * SECOND)
    assert last.values == {m.PROCESS_AGENT_LOST: 5}
    take(agent_stats, gauges(3, gc_ns=10**8, gc_collections=2, agent_cpu_ns=10**9, lost=5))
    later = agent_stats.reading(3 * SECOND)
    assert later.values[m.PROCESS_GC_PAUSE] == pytest.approx(0.1)
    assert later.values[m.PROCESS_GC_COLLECTIONS] == pytest.approx(2)
    assert later.values[m.PROCESS_AGENT_CPU] == 1.0
    take(agent_stats, gauges(4, gc_ns=10**8, gc_collections=2, agent_cpu_ns=10**10, lost=5))
    assert agent_stats.reading(4 * SECOND).unknown[m.PROCESS_AGENT_CPU] == figures.NO_SENSE
    take(
        agent_stats,
        gauges(5, gc_ns=10**8, agent_cpu_ns=10**10 + 1, lost=5),
        Bye(5 * SECOND, "exit"),
    )
    assert agent_stats.reading(5 * SECOND).values == {m.PROCESS_AGENT_LOST: 5}


def test_what_the_agent_does_not_know_has_a_reason(agent_stats: AgentStats) -> None:
    take(agent_stats, gauges(1, python_threads=None, rss_peak_bytes=1e300, gc_ns=-1))
    reading = agent_stats.reading(SECOND)
    assert not reading.values
    assert set(reading.unknown) == set(MEASURED)
    assert reading.unknown[m.PROCESS_PYTHON_THREADS] == m.NOT_READ
    assert reading.unknown[m.PROCESS_STEPS] == figures.NO_FRAMEWORK
    assert reading.unknown[m.PROCESS_LOADER_WAIT] == figures.NO_FRAMEWORK
    assert reading.unknown[m.PROCESS_EXECUTABLES] == NO_JAX


def test_between_two_records_nothing_is_due_and_the_last_is_shown(agent_stats: AgentStats) -> None:
    take(agent_stats, gauges(1, python_threads=3))
    agent_stats.reading(SECOND)
    again = agent_stats.reading(SECOND + 1)
    assert not again.values
    assert not again.unknown
    assert agent_stats.latest.values[m.PROCESS_PYTHON_THREADS] == 3


def test_an_agent_that_says_nothing_is_silent_and_not_zero(agent_stats: AgentStats) -> None:
    take(agent_stats, gauges(1, python_threads=3))
    agent_stats.reading(SECOND)
    late = agent_stats.reading(SECOND + module.SILENT_NS + 1)
    assert late.unknown[m.PROCESS_PYTHON_THREADS] == module.SILENT
    assert agent_stats.latest.values == {}


def test_before_the_first_word_nothing_waits_for_a_second(agent_stats: AgentStats) -> None:
    assert set(agent_stats.latest.unknown.values()) == {module.NOTHING_YET}
    take(agent_stats, gauges(1, python_threads=3, rss_peak_bytes=5, gc_ns=0))
    first = agent_stats.reading(SECOND)
    assert first.values[m.PROCESS_PYTHON_THREADS] == 3
    assert first.values[m.PROCESS_RSS_PEAK] == 5
    assert first.unknown[m.PROCESS_GC_PAUSE] == FIRST


@pytest.mark.parametrize(
    ("probe", "why_no_step"), [("torch", step_times.NO_STEP), ("jax", step_times.NO_MARK)]
)
def test_a_framework_that_has_not_begun_says_what_is_missing(
    agent_stats: AgentStats, probe: str, why_no_step: str
) -> None:
    take(agent_stats, state(1, probe, version="2"), gauges(1, loader_batches=0, loader_wait_ns=0))
    reading = agent_stats.reading(SECOND)
    assert reading.unknown[m.PROCESS_STEP_P50] == why_no_step
    assert reading.unknown[m.PROCESS_LOADER_WAIT] == m.NO_LOADER
    assert reading.unknown[m.PROCESS_POOL_USED] == m.NO_POOL


def test_a_share_is_no_zero_before_there_was_anything_to_wait_for(agent_stats: AgentStats) -> None:
    none = {"loader_batches": 0, "loader_wait_ns": 0, "optimizer_steps": 0, "optimizer_ns": 0}
    for second in range(1, 4):
        take(agent_stats, gauges(second, **none, samples=0, sync_ns=0))
        reading = agent_stats.reading(second * SECOND)
    assert reading.unknown[m.PROCESS_LOADER_WAIT] == m.NO_LOADER
    assert reading.unknown[m.PROCESS_OPTIMIZER_TIME] == m.NO_OPTIMIZER
    assert reading.unknown[m.PROCESS_SAMPLES] == m.NO_SAMPLES
    assert reading.values[m.PROCESS_SYNC_WAIT] == 0.0


def test_waits_that_are_recorded_at_their_end_become_a_share_of_all_the_time(
    agent_stats: AgentStats,
) -> None:
    waited, shares = 0, []
    for second in range(1, 61):
        if second % 5 == 0:
            waited += 4 * SECOND
        batches = second // 5 + 1
        take(agent_stats, gauges(second, loader_batches=batches, loader_wait_ns=waited, samples=0))
        share = agent_stats.reading(second * SECOND).get(m.PROCESS_LOADER_WAIT)
        shares.append(share)
    assert shares[0] is None
    assert all(share == pytest.approx(0.8) for share in shares[20:])


def test_a_wait_that_was_longer_than_now_is_all_of_it_and_nonsense_is_none(
    agent_stats: AgentStats,
) -> None:
    take(agent_stats, gauges(1, compile_ns=0))
    take(agent_stats, gauges(2, compile_ns=30 * SECOND))
    assert agent_stats.reading(2 * SECOND).values[m.PROCESS_COMPILE] == 1.0
    take(agent_stats, gauges(3, compile_ns=2**62))
    assert agent_stats.reading(3 * SECOND).unknown[m.PROCESS_COMPILE] == figures.NO_SENSE
    take(agent_stats, gauges(4, compile_ns=5))
    assert agent_stats.reading(4 * SECOND).unknown[m.PROCESS_COMPILE] == FIRST


def test_numbers_of_the_framework_are_per_second(agent_stats: AgentStats) -> None:
    for second in range(1, 4):
        take(agent_stats, gauges(second, samples=640 * second, compiles=3 * second, executables=12))
        reading = agent_stats.reading(second * SECOND)
    assert reading.values[m.PROCESS_SAMPLES] == pytest.approx(640)
    assert reading.values[m.PROCESS_COMPILES] == pytest.approx(3)
    assert reading.values[m.PROCESS_EXECUTABLES] == 12


def test_samples_are_counted_from_the_first_batch_on(agent_stats: AgentStats) -> None:
    for second, samples in enumerate((0, 0, 0, 7, 27, 47)):
        take(agent_stats, gauges(second, samples=samples, loader_batches=samples))
        reading = agent_stats.reading(second * SECOND)
    assert reading.values[m.PROCESS_SAMPLES] == pytest.approx(20)
    assert reading.values[m.PROCESS_LOADER_BATCHES] == pytest.approx(20)


def test_who_is_fed_and_has_no_optimizer_is_told_what_marks_steps(agent_stats: AgentStats) -> None:
    take(agent_stats, state(1, version="2"), gauges(1, loader_batches=5, optimizer_steps=0))
    assert agent_stats.reading(SECOND).unknown[m.PROCESS_STEPS] == step_times.NO_OPTIMIZER
    take(agent_stats, gauges(2, loader_batches=9, optimizer_steps=1))
    assert agent_stats.reading(2 * SECOND).unknown[m.PROCESS_STEPS] == step_times.NO_STEP


def test_nothing_holds_now_of_who_is_stopped(agent_stats: AgentStats) -> None:
    take(agent_stats, steps(1, 100, 110, 120), gauges(1, steps=3))
    # What came before the stop is kept.
    assert agent_stats.reading(SECOND, stopped=True).values[m.PROCESS_STEP_P50] == pytest.approx(
        0.11
    )
    assert agent_stats.latest.unknown[m.PROCESS_STEPS] == module.STOPPED
    assert agent_stats.reading(2 * SECOND, stopped=True).unknown[m.PROCESS_STEPS] == module.STOPPED
    assert agent_stats.latest.values == {}
    take(agent_stats, steps(3, 100), gauges(3, steps=4))
    assert m.PROCESS_STEPS in agent_stats.reading(3 * SECOND).values
    assert m.PROCESS_STEPS in agent_stats.latest.values


def test_steps_stand_beside_the_gauges(agent_stats: AgentStats) -> None:
    take(agent_stats, steps(1, 100, 110, 120), gauges(1, steps=3))
    reading = agent_stats.reading(SECOND)
    assert reading.values[m.PROCESS_STEP_P50] == pytest.approx(0.11)
    # Before the first step began nothing was counted.
    assert reading.values[m.PROCESS_STEPS] == pytest.approx(3 / 0.33)
    assert agent_stats.steps.source == "optimizer"


def test_what_may_stand_for_a_loop_is_kept_with_its_moment(agent_stats: AgentStats) -> None:
    take(agent_stats, gauges(7, **{wire.MOST_BATCHES: 40, wire.CALLBACKS: 3}, steps=1))
    assert agent_stats.turned == (7 * SECOND, {wire.MOST_BATCHES: 40, wire.CALLBACKS: 3})
    take(agent_stats, gauges(8, **{wire.MOST_BATCHES: 50, wire.CALLBACKS: -1}))
    assert agent_stats.turned == (8 * SECOND, {wire.MOST_BATCHES: 50})


def test_every_gauge_of_the_contract_is_read() -> None:
    gauges = [x.gauge for x in MEASURED if x.gauge is not None]
    read = {gauge.key for gauge in gauges} | {gauge.needs for gauge in gauges if gauge.needs}
    # By its records; and where to look and what to count, for who samples from outside.
    read |= {wire.STEPS, wire.PHASE_AT, wire.MOST_BATCHES, wire.CALLBACKS}
    imported = {
        v for k, v in vars(wire).items() if k.isupper() and isinstance(v, str) and v == k.lower()
    }
    assert imported - {"_whyidle_agent"} == read


@pytest.mark.parametrize(
    ("said", "at"), [(139_000_000_000_000, 139_000_000_000_000), (None, None), (-8, None),
                     (1 << 50, None), (0, None)],
)  # fmt: skip
def test_where_a_marked_phase_lies_is_an_address(
    agent_stats: AgentStats, said: float | None, at: int | None
) -> None:
    take(agent_stats, gauges(1, **{wire.PHASE_AT: said}))
    assert agent_stats.phase_at == at


def test_every_metric_of_the_agent_has_a_value_or_a_reason(agent_stats: AgentStats) -> None:
    everything = dict.fromkeys(
        (v for k, v in vars(wire).items() if k.isupper() and v == k.lower()), 1
    )
    for second in (1, 2):
        take(agent_stats, steps(second, 1), gauges(second, **everything))
        reading = agent_stats.reading(second * SECOND)
    assert set(reading.values) == set(MEASURED)
    assert not reading.unknown
