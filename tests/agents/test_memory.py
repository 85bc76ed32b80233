"""The most memory that the job has held."""

from __future__ import annotations

import mmap

import pytest

from whyidle.agents import memory
from whyidle.agents.duties import SECOND
from whyidle.agents.memory import Peak


def test_it_is_what_the_process_once_held() -> None:
    before = Peak(0).look(0)
    assert before is not None
    with mmap.mmap(-1, before) as held:
        for place in range(0, before, mmap.PAGESIZE):
            held[place] = 1
    after = Peak(0).look(0)
    assert after is not None
    assert after > 1.5 * before


def test_looks_come_each_second_and_then_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(memory, "_peak", lambda: looks.append(1) or len(looks))
    peak = Peak(0)
    told = [peak.look(second * SECOND) for second in range(1, 121)]
    assert told[:8] == [*range(1, 9)]
    # Each fifth second, and what was told between is the last that was seen.
    assert told[-1] - told[-61] == 60 / 5
    assert told == sorted(told, key=lambda each: each or 0)


def test_where_the_kernel_does_not_say_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> int:
        raise OSError("no /proc here")

    known = Peak(0)
    before = known.look(0)
    monkeypatch.setattr(memory.os, "open", no)
    assert Peak(0).look(0) is None
    assert known.look(SECOND) == before
