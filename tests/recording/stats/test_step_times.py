"""How long steps take now, and how many there are a second."""

from __future__ import annotations

import pytest

from tests.recording.records import MOST, SECOND, steps
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.records import Steps
from whyidle.monitor.recording.stats import step_times as module
from whyidle.monitor.recording.stats.step_times import StepTimes


def read(times: StepTimes, second: float) -> Reading:
    reading = Reading()
    times.put(reading, int(second * SECOND), module.NO_STEP)
    return reading


def feed(times: StepTimes, record: Steps) -> bool:
    return times.take(record, record.t)


def test_before_the_first_step_nothing_is_known() -> None:
    reading = read(StepTimes(), 1)
    assert not reading.values
    assert reading.unknown == dict.fromkeys(module.MEASURED, module.NO_STEP)


def test_quick_steps_are_recorded_in_part_and_count_in_full() -> None:
    times = StepTimes()
    for second in range(1, 31):
        slow = second > 20
        feed(times, steps(second, *([20.0] * 50 if slow else [10.0] * 64), count=50 + 50 * slow))
    reading = read(times, 30)
    assert reading.values[m.PROCESS_STEP_P50] == pytest.approx(0.02)
    assert reading.values[m.PROCESS_STEPS] == pytest.approx(100)


@pytest.mark.parametrize("later", [0.0, 0.1, 0.4, 0.9])
def test_of_a_record_that_lies_half_in_the_past_half_counts(later: float) -> None:
    times = StepTimes()
    for second in range(1, 31):
        feed(times, steps(second, *([100.0] * 10)))
        read(times, second + later)
    assert read(times, 30 + later).values[m.PROCESS_STEPS] == pytest.approx(10, rel=1e-6)


def test_the_slow_ones_among_the_last_seconds_show_in_the_tail() -> None:
    times = StepTimes()
    for second in range(1, 11):
        feed(times, steps(second, *([10.0] * 9), 200.0))
    reading = read(times, 10)
    assert reading.values[m.PROCESS_STEP_P50] == pytest.approx(0.01)
    assert reading.values[m.PROCESS_STEP_P95] == pytest.approx(0.2)


@pytest.mark.parametrize("took", [3, 30])
def test_slow_steps_are_counted_over_a_few_of_them(took: int) -> None:
    times = StepTimes()
    for second in range(took, 10 * took, took):
        feed(times, steps(second, took * 1000.0))
        for later in range(took):
            reading = read(times, second + later)
            assert reading.values[m.PROCESS_STEPS] == pytest.approx(1 / took, rel=0.5)
            assert reading.values[m.PROCESS_STEP_P50] == pytest.approx(took)


def test_a_job_that_steps_no_more_makes_none_a_second() -> None:
    times = StepTimes()
    feed(times, steps(1, 10, 10))
    read(times, 1)
    reading = read(times, 1 + module.WINDOW_NS / SECOND)
    assert reading.values == {m.PROCESS_STEPS: 0.0}
    assert reading.unknown[m.PROCESS_STEP_P50] == module.NONE_LATELY
    assert times.source == "optimizer"


def test_another_source_begins_anew() -> None:
    times = StepTimes()
    feed(times, steps(1, *([10.0] * 50)))
    feed(times, steps(2, 40, 40, source="whyidle.step"))
    reading = read(times, 2)
    assert times.source == "whyidle.step"
    assert reading.values[m.PROCESS_STEP_P50] == pytest.approx(0.04)
    assert reading.values[m.PROCESS_STEPS] == pytest.approx(1 / 0.04)


def test_the_rate_begins_at_the_first_step_and_not_when_the_agent_came() -> None:
    times = StepTimes()
    # The hook came in the middle of the first second.
    feed(times, steps(1, *([50.0] * 10)))
    assert read(times, 1).values[m.PROCESS_STEPS] == pytest.approx(20)
    for second in (2, 3):
        feed(times, steps(second, *([50.0] * 20)))
        assert read(times, second).values[m.PROCESS_STEPS] == pytest.approx(20)


@pytest.mark.parametrize("pause", [2, 3, 5])
def test_pauses_between_rounds_are_part_of_the_time(pause: int) -> None:
    times, read_at = StepTimes(), []
    for second in range(1, 12 * (pause + 1)):
        if second % (pause + 1) == 0:
            feed(times, steps(second, *([10.0] * 100)))
        rate = read(times, second).values.get(m.PROCESS_STEPS)
        if second > 3 * m.REACH_S and rate is not None:
            read_at.append(rate)
    mean = sum(read_at) / len(read_at)
    assert mean == pytest.approx(100 / (pause + 1), rel=0.06)


def test_a_pause_shows_while_it_lasts_and_whatever_paused_before() -> None:
    times = StepTimes()
    # The first step after a pause of four seconds took all of it.
    for second in range(1, 31):
        if second % 6 == 0:
            feed(times, steps(second, 4000.0, *([10.0] * 49)))
        elif second % 6 == 1:
            feed(times, steps(second, *([10.0] * 100)))
        read(times, second)
    # Of the last ten seconds: a quarter of one round, two rounds, and none in the last two seconds.
    feed(times, steps(31, *([10.0] * 100)))
    for second in (31, 32):
        read(times, second)
    assert read(times, 33).values[m.PROCESS_STEPS] == pytest.approx((12.5 + 100 + 150) / 10)


@pytest.mark.parametrize("late", [0.0, 0.7, 1.4])
def test_in_a_pause_no_more_is_said_than_there_was(late: float) -> None:
    times = StepTimes()
    # Five steps a second for eight seconds, and none for three.
    had = [0 if second % 11 > 7 else 5 for second in range(67)]
    for second in range(1, 67):
        if had[second]:
            feed(times, steps(second, *([200.0] * 5)))
        rate = read(times, second + late).values.get(m.PROCESS_STEPS)
        if second > 15:
            assert rate == pytest.approx(sum(had[second - 9 : second + 1]) / 10)


@pytest.mark.parametrize("source", ["whyidle.step", "optimizer", module.LOOP])
@pytest.mark.parametrize("every", [1, 2])
def test_who_is_always_told_late_steps_as_often(source: str, every: int) -> None:
    times, read_at = StepTimes(), []
    for second in range(1, 61):
        feed(times, steps(second, *([20.0] * 50), source=source))
        if second % every == 0 and second > 20:
            # Up to a second later, and each time another part of it.
            late = (7 * second) % 10 / 10 + (every - 1)
            read_at.append(read(times, second + late).values[m.PROCESS_STEPS])
    assert sum(read_at) / len(read_at) == pytest.approx(50, rel=0.03)


def test_what_makes_no_sense_is_passed_over() -> None:
    times = StepTimes()
    assert not feed(times, steps(1, 10, source="gossip"))
    assert not feed(times, Steps(1, "optimizer", 0, MOST, [MOST]))
    assert not feed(times, Steps(1, "optimizer", 0, 0, []))
    assert times.source is None
    assert feed(times, Steps(SECOND, "optimizer", MOST, 1, [0, MOST]))
    assert feed(times, Steps(SECOND, "optimizer", MOST, 5, []))
    reading = read(times, 1)
    assert 0 <= reading.values[m.PROCESS_STEPS] <= 10
    for _ in range(1000):
        feed(times, Steps(SECOND, "optimizer", 0, 64, [MOST] * 64))
    assert len(times._seen) == module.MOST_RECORDS
    assert times.window_ns <= module.LONGEST_WINDOW_NS
