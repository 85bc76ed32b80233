"""The summary of a whole recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.runs.summary import in_order, summarise
from whyidle.monitor.store import NewRun, Writer


def test_an_entry_of_another_version_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "whyidle.db"
    good = {
        "pid": 7, "rank": 0, "method": "ptrace", "inside": True, "stops_ms": [1.5],
        "refused": None, "next_step": None,
    }  # fmt: skip
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(info={"processes": [{"pid": 8}, good]}))
    assert [watched.pid for watched in summarise(path, str(run)).watched] == [7]


def test_who_trains_stands_for_the_job_before_who_only_loops(tmp_path: Path) -> None:
    def entry(pid: int, source: str | None) -> dict[str, Any]:
        return {
            "pid": pid, "rank": None, "method": "ptrace", "inside": True, "stops_ms": [],
            "refused": None, "next_step": None, "start_ticks": pid,
            "counted": {"steps": source and 90, "source": source},
        }  # fmt: skip

    path = tmp_path / "whyidle.db"
    with Writer.open(path) as writer:
        info = {"processes": [entry(7, None), entry(8, "loop"), entry(9, "optimizer")]}
        run = writer.begin_run(NewRun(target_pid=7, info=info))
    assert [each.pid for each in in_order(summarise(path, str(run)).run)] == [9, 8, 7]


@pytest.mark.parametrize(
    ("found", "first"),
    [
        # `accelerate launch`, `python sweep.py`: the framework is loaded in who only waits.
        ([(7, None, 0), (8, None, 90)], 8),
        ([(7, None, None), (8, None, 90), (9, None, 0)], 8),
        # Nobody's steps are counted: who was asked for.
        ([(8, None, None), (7, None, None)], 7),
        ([(7, None, 90), (8, 1, 90), (9, 0, 90)], 9),
    ],
)
def test_who_has_made_steps_stands_for_the_job(
    found: list[tuple[int, int | None, int | None]], first: int, tmp_path: Path
) -> None:
    def entry(pid: int, rank: int | None, steps: int | None) -> dict[str, Any]:
        return {
            "pid": pid, "rank": rank, "method": "ptrace", "inside": True, "stops_ms": [1.5],
            "refused": None, "next_step": None, "start_ticks": pid, "counted": {"steps": steps},
        }  # fmt: skip

    path = tmp_path / "whyidle.db"
    with Writer.open(path) as writer:
        info = {"processes": [entry(*each) for each in found]}
        run = writer.begin_run(NewRun(target_pid=7, info=info))
    assert in_order(summarise(path, str(run)).run)[0].pid == first
