"""What ``torch.compile`` compiles while the agent is there, and why again."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.agents.torch.inside import Observed, probe, training
from tests.agents.torch.test_compiled import COMPILING
from whyidle.agents import wire
from whyidle.agents.torch.compilations import KEPT, MODULE, _reason

torch = pytest.importorskip("torch")

LIVE = """
def loss(x, how): return (x * 2).sum() if how == "double" else (x * 3).sum()
loss = compiled(loss)
loss(x, "before we came")
start(); until(reachable)
for how in ("double", "a", "b"): loss(x, how)
ready()
while not stop: loss(x, "double"); time.sleep(0.01)
"""


def test_a_job_that_compiles_again_reports_what_and_why(tmp_path: Path) -> None:
    with training(COMPILING + LIVE, tmp_path) as job:
        last = job.until("gauges", lambda record: record[2].get(wire.COMPILES) == 3)
        observed = job.of("compile")
        assert [record[3] for record in observed] == ["loss"] * 3
        assert all(record[2] == "torch" and record[6][1:] == [observed[0][6][1], "loss"]
                   for record in observed)  # fmt: skip
        # The last of what was compiled before no longer held.
        assert "no longer true: how == 'a'" in {record[5] for record in observed}
        assert all(last[1] - 60e9 < record[1] <= last[1] for record in observed)
        assert 0 < sum(record[4] for record in observed) == last[2][wire.COMPILE_NS]


class Compiler:
    """Stands for the compiler: what it remembers."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int = 64) -> None:
        self.kept: deque[Any] = deque(maxlen=most)
        module = ModuleType(MODULE)
        setattr(module, KEPT, self.kept)
        patch.setitem(sys.modules, MODULE, module)

    def compiles(self, name: str | None = "step", **more: Any) -> None:
        facts = {"co_name": name, "co_filename": name and "/job/train.py", "co_firstlineno": 12}
        self.kept.append(SimpleNamespace(**{**facts, "duration_us": 2_000, **more}))


def records(observed: Observed) -> list[Any]:
    return [record for record in observed.records if record[0] == "compile"]


def test_what_was_compiled_before_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    compiler.compiles()
    with probe() as observed:
        assert observed.second()[wire.COMPILES] == 0
        compiler.compiles("other", recompile_reason="0/1: x.size()[0] == 4  # y = x  # a.py:3")
        compiler.compiles(None, is_forward=False)
        assert observed.second()[wire.COMPILES] == 1
        found = observed.second()
    assert (found[wire.COMPILES], found[wire.COMPILE_NS]) == (1, 4_000_000)
    (record,) = records(observed)
    why, where = "no longer true: x.size()[0] == 4", ["/job/train.py", 12, "other"]
    assert record[3:] == ["other", 2_000_000, why, where, False]


def test_an_older_compiler_reports_seconds_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    with probe() as observed:
        compiler.compiles(duration_us=None, entire_frame_compile_time_s=1.5)
        compiler.compiles(co_firstlineno="?", duration_us="?", entire_frame_compile_time_s=None)
        assert observed.second()[wire.COMPILE_NS] == 1_500_000_000
    first, second = records(observed)
    assert first[1] == second[1] == observed.now
    assert first[5] is None
    assert second[6] == ["/job/train.py", 0, "step"]


def test_a_clock_that_was_set_moves_no_compilation_into_the_future(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = Compiler(monkeypatch)
    with probe() as observed:
        now_us = time.time_ns() // 1000
        compiler.compiles(end_time_us=now_us - 2_000_000)
        compiler.compiles(end_time_us=now_us + 3600_000_000)
        observed.second()
    past, future = records(observed)
    assert 1_900_000_000 < observed.now - past[1] < 60_000_000_000
    assert future[1] == observed.now


def test_more_than_it_remembers_are_missed_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, most=4)
    with probe() as observed:
        compiler.compiles()
        observed.second()
        before = observed.probe.lost()
        for _ in range(9):
            compiler.compiles()
        assert observed.second()[wire.COMPILES] == 5
        assert observed.probe.lost() == before + 1


def test_a_compiler_that_remembers_nothing_turns_the_part_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))
    with probe() as observed:
        assert observed.said == [f"no compilations: no {MODULE}.{KEPT}"]
        assert wire.COMPILES not in observed.second()


def test_a_compiler_that_was_told_to_forget_has_missed_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = Compiler(monkeypatch)
    with probe() as observed:
        compiler.compiles()
        observed.second()
        compiler.kept.clear()
        compiler.compiles()
        assert observed.second()[wire.COMPILES] == 2
        assert observed.probe.lost() == 0


def test_a_duration_that_makes_no_sense_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    with probe() as observed:
        compiler.compiles(duration_us=10**12)
        compiler.compiles(duration_us=-5)
        found = observed.second()
    assert (found[wire.COMPILES], found[wire.COMPILE_NS]) == (2, 0)


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("0/3: k == 'd'", "no longer true: k == 'd'"),
        ("tensor 'x' size mismatch at index 0. expected 8, actual 9",
         "tensor 'x' size mismatch at index 0. expected 8, actual 9"),
        ("Unable to find recompilation reasons", None),
        ("", None),
        (7, None),
    ],
)  # fmt: skip
def test_a_reason_says_what_it_is(reason: Any, kept: str | None) -> None:
    assert _reason(reason) == kept
