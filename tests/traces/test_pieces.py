"""What is too short to be seen alone is drawn together, and nothing of it is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.pieces import depths, merge_short, merge_to_fit

Pieces = tuple[np.ndarray, np.ndarray, np.ndarray]  # type: ignore[type-arg]


@st.composite
def pieces(draw: st.DrawFn) -> Pieces:
    """Pieces that lie apart, in order."""
    count = draw(st.integers(0, 60))
    steps = draw(st.lists(st.integers(0, 400), min_size=2 * count, max_size=2 * count))
    edges = np.cumsum(np.array(steps, np.int64))
    kinds = draw(st.lists(st.sampled_from(list(Cause)), min_size=count, max_size=count))
    return edges[::2], edges[1::2], np.array(kinds, np.int64)


@examples(100)
@given(pieces(), st.integers(1, 300))
def test_no_piece_and_no_time_is_lost(some: Pieces, finest: int) -> None:
    start, end, kind = some
    seen = merge_short(start, end, kind, finest)
    assert int(seen.count.sum()) == len(start)
    assert int(seen.busy.sum()) == int((end - start).sum())
    assert (seen.start[1:] >= seen.end[:-1]).all()
    assert (seen.busy <= seen.end - seen.start).all()


@examples(100)
@given(pieces(), st.integers(1, 300))
def test_what_can_be_seen_alone_is_drawn_alone(some: Pieces, finest: int) -> None:
    start, end, kind = some
    seen = merge_short(start, end, kind, finest)
    long = end - start >= finest
    alone = {(a, b) for a, b, n in zip(seen.start, seen.end, seen.count, strict=True) if n == 1}
    assert {(a, b) for a, b in zip(start[long], end[long], strict=True)} <= alone


def test_what_has_most_time_gives_the_colour_and_the_longest_the_name() -> None:
    start = np.array([0, 10, 20, 30])
    end = np.array([4, 14, 24, 35])
    kind = np.array([Cause.GC, Cause.GC, Cause.GC, Cause.SYNC])
    seen = merge_short(start, end, kind, 100)
    assert (len(seen), seen.kind[0], seen.main[0], seen.busy[0]) == (1, Cause.GC, 3, 17)


def test_neighbours_of_another_colour_stay_apart() -> None:
    start = np.arange(0, 200, 10)
    kind = np.where(start < 100, Cause.GC, Cause.SYNC)
    seen = merge_short(start, start + 9, kind, 50)
    assert seen.kind.tolist() == [Cause.GC, Cause.SYNC]


def test_what_lies_far_apart_is_not_joined() -> None:
    start = np.array([0, 5, 1000, 1005])
    seen = merge_short(start, start + 2, np.full(4, Cause.GC), 10)
    assert seen.start.tolist() == [0, 1000]


def test_many_pieces_become_few_and_few_stay_as_they_are() -> None:
    start = np.arange(0, 1_000_000, 10)
    line = (start, start + 5, np.where(start // 1000 % 2, Cause.GC, Cause.SYNC))
    assert sum(map(len, merge_to_fit([line, line], 1_000_000, 500))) <= 500
    few = (start[:100], start[:100] + 5, np.full(100, Cause.GC))
    assert [len(seen) for seen in merge_to_fit([few], 1000, 500)] == [100]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200)), max_size=60))
def test_nothing_overlaps_on_its_own_line(spans: list[tuple[int, int]]) -> None:
    both = sorted(((a, a + n) for a, n in spans), key=lambda span: (span[0], -span[1]))
    start, end = (np.array([span[i] for span in both], np.int64) for i in (0, 1))
    line = depths(start, end)
    for value in set(line.tolist()):
        of = np.flatnonzero(line == value)
        assert (start[of][1:] >= end[of][:-1]).all()


@pytest.mark.parametrize(
    ("spans", "lines"),
    [
        ([(0, 100), (10, 90), (20, 30), (30, 40)], [0, 1, 2, 2]),
        ([(0, 10), (10, 20)], [0, 0]),
        ([(0, 10), (5, 15), (12, 20)], [0, 1, 0]),
    ],
    ids=["nested", "one after the other", "crossing"],
)
def test_what_is_called_lies_below_its_caller(
    spans: list[tuple[int, int]], lines: list[int]
) -> None:
    start, end = (np.array([span[i] for span in spans]) for i in (0, 1))
    assert depths(start, end).tolist() == lines
