"""Complete buckets are read once, and the result is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.stores import make
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Reader
from whyidle.monitor.store.records import Point
from whyidle.monitor.store.sealed import MOST_KEPT, Sealed

HOUR_MS = 3_600_000


def point(ts_ms: int) -> Point:
    return Point(ts_ms, float(ts_ms), None, None)


@pytest.mark.parametrize(("hours", "points"), [(1, 160), (6, 100), (6, 500), (24, 48)])
def test_a_reader_that_has_read_before_sees_what_a_new_one_sees(
    tmp_path: Path, hours: int, points: int
) -> None:
    made = make(tmp_path / DATABASE, seconds=7 * 3600, gpus=2)
    with Reader.open(tmp_path / DATABASE) as old:
        for more in (0, 1, 59, 7, 600, 3600, 61):
            made.more(more)
            for end in (made.ts_ms, made.ts_ms - 90_000, made.ts_ms + 5000):
                asked = (m.GPU_POWER, made.gpus, end - hours * HOUR_MS, end, points)
                with Reader.open(tmp_path / DATABASE) as new:
                    assert old.series(*asked) == new.series(*asked)
    made.end()


def test_only_what_is_new_is_read() -> None:
    asked: list[tuple[int, int]] = []

    def read(start: int, end: int) -> tuple[list[Point], int]:
        asked.append((start, end))
        return [point(at) for at in range(start, end, 10)], end // 10 * 10 - 10

    sealed = Sealed()
    for start, end in ((0, 100), (10, 115), (20, 125), (500, 600)):
        returned = sealed.points("line", start, end, read)
        assert [each.ts_ms for each in returned] == list(range(start, end, 10))
    assert asked == [(0, 100), (90, 115), (100, 125), (500, 600)]


def test_what_lies_before_is_read_anew() -> None:
    def read(start: int, end: int) -> tuple[list[Point], int]:
        return [point(at) for at in range(start, end, 10)], end

    sealed = Sealed()
    for start, end in ((50, 100), (0, 100), (0, 50)):
        returned = sealed.points("line", start, end, read)
        assert [each.ts_ms for each in returned] == list(range(start, end, 10))


def test_so_many_lines_are_kept_and_no_more() -> None:
    sealed = Sealed()
    for line in range(MOST_KEPT + 9):
        sealed.points(line, 0, 10, lambda start, end: ([point(start)], end))
    assert len(sealed._kept) == MOST_KEPT
    assert 0 not in sealed._kept
