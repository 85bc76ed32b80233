"""What NumPy does in passes over all rows and what is compiled: the same lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.traces import intervals
from whyidle.monitor.traces.intervals import Timeline, aligned, sweep

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
        assert intervals.compiled.sweep(start, end, kind, np.array(rows), NONE, *room) == -1


def test_columns_that_do_not_fit_raise() -> None:
    one, two, kind = np.array([1]), np.array([1, 2]), np.zeros(2, np.int8)
    room = np.zeros(4, np.int64), np.zeros(4, np.int8)
    assert intervals.compiled is not None
    for start, none, out in (
        (one, NONE, room),
        (two, 128, room),
        (two, -1, room),
        (two, NONE, (one, kind)),
    ):
        with pytest.raises(ValueError, match="lengths"):
            intervals.compiled.sweep(start, two, kind, two[:1], none, *out)
    with pytest.raises(ValueError, match="lengths"):
        intervals.compiled.aligned((one, two), room[0], room[0])
    with pytest.raises(ValueError, match="runs"):
        intervals.compiled.aligned((one,) * 9, room[0], room[0])
