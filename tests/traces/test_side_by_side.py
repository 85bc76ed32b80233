"""The ranks of a job come onto one clock, and what is one collective has one number on all."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.traces.ranks_folder import Job
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.ranks.answer import read_ranks
from whyidle.monitor.traces.ranks.member import members
from whyidle.monitor.traces.ranks.side_by_side import SideBySide


def of(folder: Path) -> SideBySide:
    return read_ranks([str(folder)]).side_by_side()


def ends(job: SideBySide) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for device in job.trace.devices:
        for number, end in zip(
            device.ops.correlation.tolist(), device.ops.end.tolist(), strict=True
        ):
            found.setdefault(number, []).append(end)
    return found


def test_clocks_that_are_apart_are_set_right(tmp_path: Path) -> None:
    job = of(Job(3, 6, skew_us=1e6, begins_later={1: 5}).write(tmp_path))
    found = ends(job)
    assert {number for number, some in found.items() if len(some) == 3} == set(range(5, 24))
    assert max(max(some) - min(some) for some in found.values()) < 10_000
    assert [device["rank"] for device in job.answer["devices"]] == [0, 1, 2]
    # The account of each is on the same clock as its collectives.
    for segments, device in zip(job.segments, job.trace.devices, strict=True):
        assert abs(int(segments.end[-1]) - int(device.ops.end[-1])) < 1000


def test_what_nobody_waits_in_for_all_has_no_number(tmp_path: Path) -> None:
    job = of(Job(4, 3, pairs=True).write(tmp_path))
    counts = {len(some) for some in ends(job).values()}
    assert counts == {2}


def test_ranks_that_are_missing_damaged_or_of_another_job_cost_only_themselves(
    tmp_path: Path,
) -> None:
    Job(5, 10, late=0.2, who=0).write(tmp_path)
    (tmp_path / "rank1.json.gz").unlink()
    cut = tmp_path / "rank2.json.gz"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (tmp_path / "rank3.json.gz").write_bytes(b"no trace")
    job = of(tmp_path)
    shown = [device["rank"] for device in job.answer["devices"]]
    assert {0, 4} <= set(shown)
    assert not {1, 3} & set(shown)
    ranks = job.answer["ranks"]
    assert ranks is not None
    assert any("rank3" in text for text in ranks["warnings"])
    assert {2} <= {len(some) for some in ends(job).values()}


def test_of_many_pieces_short_ones_are_merged_and_no_time_is_lost(tmp_path: Path) -> None:
    file = Job(1, 40).write(tmp_path) / "rank0.json.gz"
    analysis = analyse(file)
    (whole,), (few,) = members(analysis), members(analysis, 30)
    assert len(few.segments) < 60 < len(whole.segments)
    assert (few.segments.start[1:] == few.segments.end[:-1]).all()
    ends_ = [np.array([m.segments.start[0], m.segments.end[-1]]) for m in (whole, few)]
    assert (ends_[0] == ends_[1]).all()


def test_one_collective_is_seen_on_both_ranks_where_no_step_is_marked(tmp_path: Path) -> None:
    Job(2, 1, collectives=1, late=0.5, marks=False).write(tmp_path)
    ranks = read_ranks([str(tmp_path)]).answer["ranks"]
    assert ranks is not None
    assert ranks["collectives"] == 1
    assert "seen on two ranks" not in ranks["unknown"]["straggler"]


def test_a_size_that_no_column_holds_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for file in Job(2, 3, collectives=1).write(tmp_path, suffix=".json").glob("*.json"):
        text = file.read_text().replace(
            f'"In msg nelems": {1 << 18}', f'"In msg nelems": {1 << 62}'
        )
        (tmp_path / "job" / file.name).write_text(text)
    job = of(tmp_path / "job")
    assert {size for device in job.trace.devices for size in device.ops.bytes.tolist()} == {-1}
