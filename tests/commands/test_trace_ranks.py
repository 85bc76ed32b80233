"""``monitor trace DIR``: the ranks of a job on one screen, however many they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Monitor
from tests.traces.ranks_folder import Job
from whyidle.monitor.core.paths import database
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.stored_traces import Kept


@pytest.mark.parametrize("ranks", [2, 64])
def test_the_screen_names_the_late_rank_in_a_few_lines(
    tmp_path: Path, monitor: Monitor, ranks: int
) -> None:
    Job(ranks, 20, late=0.1, per_host=8).write(tmp_path)
    done = monitor("trace", str(tmp_path))
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert f"Rank {ranks - 1} on node{(ranks - 1) // 8} keeps the others waiting for" in shown
    assert len(done.stdout.splitlines()) < 60
    assert ("median of 64 ranks" in shown) == (ranks == 64)


def test_files_are_a_job_as_a_folder_is(tmp_path: Path, monitor: Monitor) -> None:
    Job(2, 20, late=0.1).write(tmp_path)
    folder: dict[str, Any] = json.loads(monitor("trace", str(tmp_path), "--json").stdout)
    files = sorted(str(path) for path in tmp_path.iterdir())
    named: dict[str, Any] = json.loads(monitor("trace", *files, "--json").stdout)
    assert folder["ranks"] == named["ranks"]
    assert folder["ranks"]["straggler"]["rank"] == 1


def test_a_job_is_diagnosed(tmp_path: Path, monitor: Monitor) -> None:
    Job(2, 20, late=0.6).write(tmp_path)
    done = monitor("diagnose", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    assert "misaligned_shards" in [one["rule"] for one in json.loads(done.stdout)["findings"]]


def test_options_of_one_process_are_refused(tmp_path: Path, monitor: Monitor) -> None:
    Job(2, 2).write(tmp_path)
    done = monitor("trace", str(tmp_path), "--seconds", "1")
    assert done.returncode != 0
    assert "are for one process" in done.stderr


def test_a_job_is_kept_with_a_recording_and_the_page_is_named(
    tmp_path: Path, monitor: Monitor
) -> None:
    with Writer.open(database()) as writer:
        writer.end_run(writer.begin_run(NewRun()), "the job ended", 0)
    Job(2, 5, late=0.3).write(tmp_path / "job")
    done = monitor("trace", str(tmp_path / "job"), "--run", "1")
    assert done.returncode == 0, done.stderr
    assert "monitor dashboard 1 (page Timeline)" in " ".join(done.stderr.split())
    with Kept.open(database()) as kept:
        (trace,) = kept.traces(1)
        assert len(kept.steps(trace.id)) == 5
        assert [len(ops) for ops in kept.operations(trace.id, trace.start, trace.end)] == [20, 20]
    assert trace.format == "ranks"
    assert "see it with: monitor dashboard 1" in monitor("runs", "1").stdout
    # It is no file that another program could show.
    done = monitor("trace", "view", "1", "--perfetto", str(tmp_path / "out.json"))
    assert "No trace is kept with run 1" in done.stderr
