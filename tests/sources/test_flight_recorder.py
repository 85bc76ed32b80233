"""Dumps of PyTorch's flight recorder: what they say of a hang, and that they can run nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.signals.dumped import of_dumps
from whyidle.monitor.sources.flight_recorder import NoDump, dumps_of, read

SITE = "/venv/lib/python3.11/site-packages"
CREATED = 1_700_000_000_000_000_000
LATER_S = 700


def entry(number: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    """Return an entry as the recorder of NCCL writes it."""
    return {
        "frames": [
            {"name": "all_reduce", "filename": f"{SITE}/torch/distributed/c.py", "line": 9},
            {"name": "train", "filename": "/job/train.py", "line": 40},
        ],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "is_p2p": False,
        "profiling_name": "nccl:all_reduce", "time_created_ns": CREATED, "state": state,
        "input_sizes": [[1024, 2]], "input_dtypes": ["Float"], "output_sizes": [[1024, 2]],
        "output_dtypes": ["Float"], "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": state == "completed",
        "timeout_ms": 600_000, **more,
    }  # fmt: skip


def dump(folder: Path, rank: int, *entries: dict[str, Any], form: str = "pickle") -> Path:
    data = {
        "version": "2.10", "entries": list(entries), "comm_lib_version": "2.27",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
    }  # fmt: skip
    path = folder / f"comm_lib_trace_rank_{rank}"
    path.write_bytes(json.dumps(data).encode() if form == "json" else pickle.dumps(data, 2))
    at = CREATED / 1e9 + LATER_S
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_began_fewer_is_missing(form: str, tmp_path: Path) -> None:
    done = [entry(n) for n in range(40, 42)]
    for rank in (0, 1, 3):
        dump(tmp_path, rank, *done, entry(42, "started"), entry(43, "scheduled"), form=form)
    dump(tmp_path, 2, *done, form=form)
    (tmp_path / "notes.txt").write_text("no dump")
    window = of_dumps(dumps_of(tmp_path), "dumps")
    (finding,) = (x for x in diagnose(window).findings if x.rule.id == "job_stands_still")
    assert finding.found.title == ("Stuck: rank 2 has started nothing after nccl:all_reduce #41")
    assert finding.severity == "high"
    assert finding.found.where[0].file == "/job/train.py"
    said = {each.name: each.value for each in finding.found.evidence}
    assert said["ranks that were looked at"] == "4 of 4"
    assert said["rank 0 started last"] == "nccl:all_reduce #42 of Float 1024x2"


def test_the_rank_whose_device_never_came_to_it(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, entry(41), entry(42, "scheduled" if rank == 1 else "started"))
    window = of_dumps(dumps_of(tmp_path), "dumps")
    titles = [each.found.title for each in diagnose(window).findings]
    assert any("rank 1 has not started nccl:all_reduce #42" in (each or "") for each in titles)


class Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("echo ran > ran",)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_names_code_is_refused_and_runs_nothing(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "comm_lib_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [Runs()]}, protocol))
    with pytest.raises(NoDump, match="which no dump does"):
        read(path)
    assert not (tmp_path / "ran").exists()
    assert dumps_of(tmp_path) == []


def test_a_folder_of_traces_is_none_of_dumps_and_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank_0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    (tmp_path / "rank_1.pb").write_bytes(b"\n\x10/host:CPU")
    (tmp_path / "rank_2").write_bytes(pickle.dumps({"entries": []}, 0))
    monkeypatch.setattr(Path, "read_bytes", None)
    assert dumps_of(tmp_path) == []


@pytest.mark.parametrize("cut", [1, 50, 400])
def test_a_damaged_dump_is_passed_over(cut: int, tmp_path: Path) -> None:
    whole = dump(tmp_path, 0, entry(41), entry(42, "started"))
    damaged = tmp_path / "comm_lib_trace_rank_1"
    damaged.write_bytes(whole.read_bytes()[:cut])
    assert [each.rank for each in dumps_of(tmp_path)] == [0]


@pytest.mark.parametrize(
    "data",
    [{"entries": 3}, {"entries": [1]}, {"other": 1}, [1], {"entries": [{"record_id": "x"}]}],
)
def test_a_dump_that_means_nothing_is_no_error(data: Any, tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(pickle.dumps(data))
    diagnose(of_dumps(dumps_of(tmp_path), "dumps"))


def test_the_dump_of_this_torch_is_read(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    source = """
import sys, torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
dist.init_process_group("gloo", f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
for _ in range(3): dist.all_reduce(torch.ones(2, 5))
if not hasattr(c10d, "_dump_fr_trace"): sys.exit(9)
open(f"{sys.argv[1]}/rank_0", "wb").write(c10d._dump_fr_trace(includeStackTraces=True))
open(f"{sys.argv[1]}/rank_1.json", "wb").write(c10d._dump_fr_trace_json())
"""
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path)], check=False)
    if done.returncode == 9:
        pytest.skip("this torch has no flight recorder for gloo")
    window = of_dumps(dumps_of(tmp_path), "dumps")
    assert window.job.standstill is not None
    last = [each.collective for each in window.job.standstill.stands]
    assert [each and each.words for each in last] == ["gloo:all_reduce #3 of Float 2x5"] * 2
