"""The summary of a whole recording."""

from __future__ import annotations

from pathlib import Path

from whyidle.monitor.runs.summary import summarise
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
