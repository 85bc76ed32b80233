"""The innermost of nested spans, against counting tick by tick."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.monitor.traces.model import Ints
from whyidle.monitor.traces.where.nesting import NONE, Labels, disjoint, nest, never, portions

HORIZON = 40
intervals = st.lists(
    st.tuples(st.integers(0, HORIZON - 1), st.integers(1, 12)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=12,
)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Brackets: each span closes inside the one around it."""
    spans: list[tuple[int, int]] = []

    def fill(start: int, end: int) -> None:
        while start < end and len(spans) < 20 and draw(st.booleans()):
            a = draw(st.integers(start, end - 1))
            b = draw(st.integers(a + 1, end))
            spans.append((a, b))
            fill(a, b)
            start = b

    fill(0, HORIZON)
    return spans


def columns(spans: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    spans = sorted(spans, key=lambda s: (s[0], -s[1]))
    return np.array([s[0] for s in spans], np.int64), np.array([s[1] for s in spans], np.int64)


@given(nested())
def test_the_innermost_is_the_open_span_that_began_last(spans: list[tuple[int, int]]) -> None:
    start, end = columns(spans)
    found = nest(start, end)
    times = np.arange(-1, HORIZON + 2)
    for time, row in zip(times.tolist(), found.innermost.at(times).tolist(), strict=True):
        is_open = np.flatnonzero((start <= time) & (time < end))
        assert row == (is_open[-1] if len(is_open) else NONE)
    for row, parent in enumerate(found.parent.tolist()):
        around = [r for r in range(row) if end[r] >= end[row]]
        assert parent == (around[-1] if around else NONE)


@given(intervals)
def test_of_spans_that_do_not_nest_none_is_told_that_is_not_open(
    spans: list[tuple[int, int]],
) -> None:
    start, end = columns(spans)
    times = np.arange(-1, HORIZON + 15)
    for time, row in zip(times, nest(start, end).innermost.at(times), strict=True):
        assert row == NONE or start[row] <= time < end[row]


@given(nested(), st.sets(st.integers(-2, HORIZON + 2)).map(sorted))
def test_portions_add_up_to_the_intervals(spans: list[tuple[int, int]], cuts: list[int]) -> None:
    line = nest(*columns(spans)).innermost
    end = np.array(cuts[1::2], np.int64)
    start = np.array(cuts[::2], np.int64)[: len(end)]
    row, label, length = portions(start, end, line)
    assert np.bincount(row, length, len(start)).tolist() == (end - start).tolist()
    for i, (a, b) in enumerate(zip(start, end, strict=True)):
        ticks, counts = np.unique(line.at(np.arange(a, b)), return_counts=True)
        of = row == i
        found = {n: int(length[of][label[of] == n].sum()) for n in set(label[of].tolist())}
        assert found == dict(zip(ticks.tolist(), counts.tolist(), strict=True))


def lined(*pairs: tuple[int, int]) -> Labels:
    return Labels(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))


def pairs_of(line: Labels) -> list[tuple[int, int]]:
    return list(zip(line.time.tolist(), line.label.tolist(), strict=True))


class TestLabels:
    def test_a_pause_within_one_label_is_bridged_and_others_are_not(self) -> None:
        line = lined((0, 7), (2, NONE), (4, 7), (5, NONE), (8, 3), (9, NONE))
        assert pairs_of(line.bridged()) == [(0, 7), (5, NONE), (8, 3), (9, NONE)]

    def test_held_lasts_until_the_next_label(self) -> None:
        line = lined((0, NONE), (1, 7), (2, NONE), (4, 3), (6, NONE))
        assert pairs_of(line.held()) == [(1, 7), (4, 3)]

    def test_over_shows_the_other_where_there_is_no_label(self) -> None:
        mine, other = lined((2, 1), (4, NONE)), lined((0, 8), (3, 9), (6, NONE))
        assert pairs_of(mine.over(other)) == [(0, 8), (2, 1), (4, 9), (6, NONE)]
        assert pairs_of(mine.over(never())) == [(2, 1), (4, NONE)]
        assert pairs_of(never().over(mine)) == [(2, 1), (4, NONE)]

    def test_intervals_side_by_side_leave_no_pause(self) -> None:
        line = disjoint(np.array([1, 3, 6]), np.array([3, 5, 7]), np.array([4, 5, 6]))
        assert pairs_of(line) == [(1, 4), (3, 5), (5, NONE), (6, 6), (7, NONE)]


@pytest.mark.parametrize("line", [never(), nest(*columns([])).innermost])
def test_nothing_has_no_label(line: Labels) -> None:
    assert line.at(np.array([-1, 0, 5])).tolist() == [NONE] * 3
    assert pairs_of(line.held()) == pairs_of(line.bridged()) == []
    assert portions(np.array([2]), np.array([5]), line)[2].tolist() == [3]
