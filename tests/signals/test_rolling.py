"""Values of the last ten seconds, reported again and again: what came when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whyidle.monitor.core import metrics as m
from whyidle.monitor.recording.stats.figures import Growth
from whyidle.monitor.signals import rolling
from whyidle.monitor.store import Point


def rolled(rate: Callable[[int], float], seconds: int, unknown: int = 2) -> list[Point]:
    """Return what a recorder keeps each second of a total that grows like this."""
    growth, total = Growth(), 0.0
    points = [Point(1000 * s, None, None, None) for s in range(unknown)]
    growth.note("x", unknown - 1, 0.0)
    for second in range(unknown, seconds):
        total += rate(second)
        growth.note("x", second, total)
        grown = growth.over("x", m.REACH_S)
        assert grown is not None
        mean = grown[0] / grown[1]
        points.append(Point(1000 * second, mean, mean, mean))
    return points


@pytest.mark.parametrize("seconds", [8, 12, 40, 100])
def test_what_a_job_did_while_it_started_is_not_in_what_follows(seconds: int) -> None:
    points = rolled(lambda s: 0.9 if s <= 4 else 0.2, seconds)
    assert points[6].mean > 0.5  # type: ignore[operator]
    assert rolling.mean_of(points, 4000) == pytest.approx(0.2)
    whole = (3 * 0.9 + (seconds - 5) * 0.2) / (seconds - 2)
    assert rolling.mean_of(points, 0) == pytest.approx(whole)


def test_each_stretch_is_reported() -> None:
    points = rolled(lambda s: s % 3, 35)
    stretches = rolling.since_the_last(points)
    assert [round(mean, 6) for _, _, mean in stretches] == [s % 3 for s in range(2, 35)]
    assert [(a, b) for a, b, _ in stretches] == [(1000 * (s - 1), 1000 * s) for s in range(2, 35)]


def test_a_recording_that_begins_in_the_middle_goes_on_as_it_was() -> None:
    points = rolled(lambda _: 0.3, 60)[20:]
    assert rolling.mean_of(points, points[0].ts_ms) == pytest.approx(0.3)


def test_a_process_that_was_seen_as_two_is_counted_once() -> None:
    points = rolled(lambda _: 0.3, 30)
    twice = [*points[:20], points[19], *points[20:]]
    assert rolling.since_the_last(twice) == rolling.since_the_last(points)


@pytest.mark.parametrize("gap", [9, 10, 11, 30])
def test_what_came_while_nobody_looked_is_not_known(gap: int) -> None:
    points = rolled(lambda s: 0.3 if s < 20 else 0.6, 70)
    seen = [*points[:20], *points[19 + gap :]]
    assert rolling.mean_of(seen, 0) == pytest.approx(0.5, abs=0.06)
    stretches = rolling.since_the_last(seen)
    assert max(until - since for since, until, _ in stretches) <= 10_000
    assert [round(mean, 3) for _, _, mean in stretches[-20:]] == [0.6] * 20


def test_nothing_is_ever_less_than_none() -> None:
    points = [Point(1000 * s, 1.0 if s < 20 else 0.0, None, None) for s in range(60)]
    assert min(mean for _, _, mean in rolling.since_the_last(points)) == 0.0


def test_what_was_never_known_has_no_mean() -> None:
    assert rolling.mean_of([], 0) is None
    assert rolling.mean_of([Point(0, None, None, None)], 0) is None
    assert rolling.mean_of(rolled(lambda _: 1.0, 9), 9000) is None


def test_whatever_grows_in_leaps_is_declared() -> None:
    found = {x for x in m.METRICS if x.gauge is not None and x.gauge.is_recent}
    assert m.PROCESS_SYNC_WAIT in found
    assert m.PROCESS_GC_PAUSE not in found
    assert found | {x for x in m.METRICS if x.together and m.processes_of(x) in found} == m.IN_LEAPS
