"""Traces of all ranks at once: which of several turns is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.app import take_ranks
from whyidle.monitor.app.take_ranks import OneRank
from whyidle.monitor.tracing.taken import Taken

# Of each turn, when the trace of each rank began and ended, in ms; none where it was refused.
Turn = list[tuple[int, int] | None]
APART: Turn = [(0, 30), (100, 130)]
TOGETHER: Turn = [(1000, 1500), (1010, 1510)]
REFUSED: Turn = [(1000, 1500), None]


@pytest.mark.parametrize(
    ("turns", "kept", "asked"),
    [
        ([TOGETHER], 0, 1),
        ([APART, TOGETHER], 1, 2),
        # All are asked at one moment, and some agents need a trace of their own first.
        ([APART, REFUSED, REFUSED], 0, 3),
        ([REFUSED], 0, 1),
        ([APART, REFUSED, TOGETHER], 2, 3),
        ([APART, APART, APART], 2, 3),
    ],
)
def test_the_turn_with_the_most_ranks_is_kept(
    turns: list[Turn], kept: int, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = None
    ranks = [OneRank(nothing, rank, has_said=True) for rank in range(2)]
    left = list(turns)

    def ask_all(ranks: list[OneRank], _space: object, _seconds: float) -> bool:
        number, turn = len(turns) - len(left), left.pop(0)
        for each, window in zip(ranks, turn, strict=True):
            each.taken = (
                None if window is None else _taken(tmp_path / f"{number}-{each.rank}", window)
            )
        return False

    monkeypatch.setattr(take_ranks, "_ask_all", ask_all)
    take_ranks._take(ranks, nothing, 0.5)
    assert len(turns) - len(left) == asked
    there = {f"{kept}-{rank}" for rank, window in enumerate(turns[kept]) if window is not None}
    assert {each.file.name for each in ranks if each.file is not None} == there
    assert {each.name for each in tmp_path.iterdir()} == there


def test_what_the_kept_turn_says_of_a_rank_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = None
    ranks = [OneRank(nothing, rank, has_said=True) for rank in range(3)]
    turns = [[(0, 30), (100, 130), None], [(1000, 1500), None, None]]

    def ask_all(ranks: list[OneRank], _space: object, _seconds: float) -> bool:
        turn = turns.pop(0) if len(turns) > 1 else turns[0]
        for each, window in zip(ranks, turn, strict=True):
            each.taken = None if window is None else _taken(tmp_path / f"{window[0]}", window)
            each.why = "" if window else f"refused in turn {len(turns)}"
        return False

    monkeypatch.setattr(take_ranks, "_ask_all", ask_all)
    take_ranks._take(ranks, nothing, 0.5)
    assert [each.why for each in ranks] == ["", "", "refused in turn 1"]


def test_a_turn_that_came_too_soon_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = None
    ranks = [OneRank(nothing, rank, has_said=True) for rank in range(2)]

    def wait_for(ranks: list[OneRank], _seconds: float) -> None:
        ranks[0].taken = _taken(tmp_path / "0", (0, 500))
        ranks[1].why = "too soon: the last one took 0.5 s"

    monkeypatch.setattr(take_ranks, "_wait_for", wait_for)
    monkeypatch.setattr(take_ranks, "ByAgent", lambda *_: None)
    assert take_ranks._ask_all(ranks, nothing, 0.5)
    assert [each.file for each in ranks] == [None, None]
    assert all("too soon" in each.why for each in ranks)
    assert not list(tmp_path.iterdir())


def _taken(path: Path, window: tuple[int, int]) -> Taken:
    path.write_text("{}")
    began, ended = window
    return Taken("torch", path, began * 10**6, ended * 10**6, 0, None, "by its agent")
