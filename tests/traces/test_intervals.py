"""What NumPy does in passes over all rows and what is compiled: the same lines."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.traces import intervals
from whyidle.monitor.traces.intervals import Timeline, aligned, blended, following, sweep, tally

pytestmark = pytest.mark.skipif(
    intervals.compiled is None, reason="no C compiler: it was not built"
)

NONE = 3
# Starts, lengths (some are none, or less) and labels, one of which is that of nothing.
SPANS = st.lists(
    st.tuples(st.integers(-9, 30), st.integers(-2, 20), st.integers(0, 70)), max_size=30
)
RUNS = st.lists(st.lists(st.integers(-5, 20), max_size=12).map(sorted), min_size=1, max_size=4)


def plain(line: Timeline) -> list[tuple[int, int]]:
    return list(zip(line.time.tolist(), line.label.tolist(), strict=True))


@examples(2000)
@given(SPANS, st.booleans())
def test_lines_are_the_same(spans: list[tuple[int, int, int]], few: bool) -> None:
    spans = sorted((start, length, label % 6 if few else label) for start, length, label in spans)
    start, length, label = (np.array([span[i] for span in spans], np.int64) for i in range(3))
    kinds, end = label.astype(np.int8), start + length
    every = np.ones(len(spans), np.bool_)
    for counts in (every, label % 2 == 0):
        rows = np.flatnonzero(counts)
        found = sweep(start, end, kinds, NONE, rows)
        assert plain(found) == plain(intervals._sweep(start[rows], end[rows], kinds[rows], NONE))
        assert (str(found.time.dtype), str(found.label.dtype)) == ("int64", "int8")
    assert plain(sweep(start, end, kinds, NONE)) == plain(
        sweep(start, end, kinds, NONE, every.nonzero()[0])
    )


@examples(500)
@given(RUNS)
def test_merged_runs_are_the_same(runs: list[list[int]]) -> None:
    columns = [np.array(run, np.int64) for run in runs]
    found = aligned(*columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "compiled", None)
        times, rows = aligned(*columns)
    assert found[0].tolist() == times.tolist()
    assert [column.tolist() for column in found[1]] == [column.tolist() for column in rows]


LINES = st.lists(
    st.tuples(st.integers(-5, 20), st.integers(0, 5)), max_size=14, unique_by=lambda x: x[0]
)


@examples(500)
@given(LINES, LINES, st.integers(0, 5), st.randoms(use_true_random=False))
def test_blended_lines_are_the_same(
    one: list[tuple[int, int]], other: list[tuple[int, int]], none: int, random: Random
) -> None:
    lines = []
    for line in (sorted(one), sorted(other)):
        time, label = np.array([at for at, _ in line], np.int64), [label for _, label in line]
        lines.append(Timeline(time, np.array(label, np.int8), none))
    table = np.array([[random.randrange(6) for _ in range(6)] for _ in range(6)], np.int8)
    found = blended(*lines, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "compiled", None)
        assert plain(found) == plain(blended(*lines, table))


@examples(300)
@given(SPANS, st.integers(-9, 30), st.integers(-9, 40))
def test_tallied_ticks_are_the_same(
    spans: list[tuple[int, int, int]], begin: int, stop: int
) -> None:
    start, length, label = (np.array([span[i] for span in spans], np.int64) for i in range(3))
    columns, ticks = (start, start + length, label.astype(np.int8)), np.zeros((2, 71), np.int64)
    tally(*columns, (begin, stop), ticks[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "compiled", None)
        tally(*columns, (begin, stop), ticks[1])
    assert ticks[0].tolist() == ticks[1].tolist()


@examples(300)
@given(RUNS.filter(lambda runs: len(runs) > 1))
def test_what_follows_is_the_same(runs: list[list[int]]) -> None:
    run, times = (np.array(each, np.int64) for each in runs[:2])
    assert following(run, times).tolist() == np.searchsorted(run, times).tolist()


def test_what_is_not_sorted_is_left_to_numpy() -> None:
    start, end, kind = np.array([9, 1]), np.array([10, 12]), np.zeros(2, np.int8)
    assert plain(sweep(end, end + 1, kind - 1, NONE)) == [
        (10, -1),
        (11, NONE),
        (12, -1),
        (13, NONE),
    ]
    room = np.zeros(4, np.int64), np.zeros(4, np.int8)
    assert intervals.compiled is not None
    for rows in ([0, 1], [2], [-1]):
        assert (
            intervals.compiled.sweep(start, end, kind, np.array(rows, np.int32), NONE, *room) == -1
        )


def test_columns_that_do_not_fit_raise() -> None:
    one, two, kind = np.array([1]), np.array([1, 2]), np.zeros(2, np.int8)
    row = np.zeros(1, np.int32)
    room = np.zeros(4, np.int64), np.zeros(4, np.int8)
    assert intervals.compiled is not None
    for start, none, out in (
        (one, NONE, room),
        (two, 128, room),
        (two, -1, room),
        (two, NONE, (one, kind)),
    ):
        with pytest.raises(ValueError, match="lengths"):
            intervals.compiled.sweep(start, two, kind, row, none, *out)
    with pytest.raises(ValueError, match="lengths"):
        intervals.compiled.aligned((one, two), room[0], room[0][:2])
    with pytest.raises(ValueError, match="runs"):
        intervals.compiled.aligned((one,) * 9, room[0], room[0])
