"""The most memory that the job has held."""

from __future__ import annotations

import mmap

import pytest

from whyidle.agents import python
from whyidle.agents.python import PeakMemory
from whyidle.agents.timers import SECOND


def test_it_is_what_the_process_once_held() -> None:
    before = PeakMemory(0).read(0)
    assert before is not None
    with mmap.mmap(-1, before) as held:
        for place in range(0, before, mmap.PAGESIZE):
            held[place] = 1
    after = PeakMemory(0).read(0)
    assert after is not None
    assert after > 1.5 * before


def test_it_is_read_each_second_and_then_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    monkeypatch.setattr(python, "_peak_bytes", lambda: reads.append(1) or len(reads))
    peak = PeakMemory(0)
    peaks = [peak.read(second * SECOND) for second in range(1, 121)]
    assert peaks[:8] == [*range(1, 9)]
    # Read every fifth second; between, the last value is repeated.
    assert peaks[-1] - peaks[-61] == 60 / 5
    assert peaks == sorted(peaks, key=lambda each: each or 0)


def test_where_the_kernel_does_not_say_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> int:
        raise OSError("no /proc here")

    known = PeakMemory(0)
    before = known.read(0)
    monkeypatch.setattr(python.os, "open", no)
    assert PeakMemory(0).read(0) is None
    assert known.read(SECOND) == before
