"""The ranks of a job under each other: who comes last, what it did, and what is not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard import rank_jobs
from tests.dashboard.apps import App, app
from tests.traces.ranks_folder import Job
from whyidle.dashboard.views import timeline, timeline_lanes
from whyidle.monitor.store import blocks, windows

PICKER = "pick-ranks"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    return rank_jobs.make(folder, Job(20, 6, late=0.3, who=13, per_host=4).write(folder / "job"))


def names(shown: App) -> list[str]:
    picker = shown.test.multiselect(key=PICKER)
    return [picker.options[i] for i in picker.value]


def test_of_two_ranks_it_says_at_one_step_who_comes_last_and_what_it_did(tmp_path: Path) -> None:
    store = rank_jobs.make(tmp_path, Job(2, 6, late=0.4, noise=0.0).write(tmp_path / "job"))
    shown = app(store, "timeline")
    assert "Rank 1 keeps the others waiting" in shown.words
    assert "of 6, 142 ms" in shown.words
    said = "AllReduce of 1.0 MiB GPU 1 rank 1 10.0 ms compute 35.0 ms, 10.0 ms more than the others"
    assert said in shown.words
    assert names(shown) == ["GPU 0 rank 0", "GPU 1 rank 1"]
    assert "are shown" not in shown.words
    assert f"{tmp_path}/job/rank0.json.gz" in [each.value.split()[-1] for each in shown.test.code]


def test_of_many_the_worst_and_typical_ones_are_shown_and_others_can_be_chosen(many: Path) -> None:
    shown = app(many, "timeline")
    assert names(shown)[0] == "GPU 5 rank 13 on node3"
    assert "8 of 20 ranks are shown: the 4 that the others wait for the most" in shown.words
    shown.test.multiselect(key=PICKER).set_value([2, 13]).run()
    assert shown.test.query_params["ranks"] == "2.13"
    assert "2 of 20 ranks are shown. Choose" in shown.words
    again = app(many, "timeline", ranks="2.13.99.x")
    assert names(again) == ["GPU 2 rank 2 on node0", "GPU 5 rank 13 on node3"]


def test_it_begins_at_the_slowest_step_and_can_go_to_all_of_them(many: Path) -> None:
    shown = app(many, "timeline")
    next(each for each in shown.test.button if each.label == "Whole trace").click().run()
    assert shown.test.query_params["window"] == "all"
    assert "all of the trace" in shown.words
    assert "Of 24 collectives these are the 12" in shown.words


def test_what_is_missing_damaged_or_uneven_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = Job(5, 10, late=0.2, who=0, begins_later={4: 9}).write(tmp_path / "job")
    (folder / "rank1.json.gz").unlink()
    (folder / "rank3.json.gz").write_bytes(b"<img src=x>")
    words = app(rank_jobs.make(tmp_path, folder), "timeline").words
    assert "No file of ranks 1, 3" in words
    assert "rank3.json.gz is left out" in words
    assert "unequal numbers of steps (" in words
    assert "GPU 0 rank 0" in words


def test_a_rank_of_another_job_stands_alone(tmp_path: Path) -> None:
    folder = Job(3, 6).write(tmp_path / "job")
    Job(3, 6, collectives=1, transfer_us=9000, step_us=7e5, seed=4).write(tmp_path / "other")
    (tmp_path / "other" / "rank2.json.gz").replace(folder / "rank2.json.gz")
    words = app(rank_jobs.make(tmp_path, folder), "timeline").words
    assert "Rank 2 is next to no other: its collectives are in no other file." in words


def test_of_many_collectives_also_the_shortest_those_of_the_late_rank_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (windows, timeline_lanes):
        monkeypatch.setattr(module, "READ_MOST", 100)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 64)
    folder = Job(10, 20, collectives=10, late=0.5, who=4).write(tmp_path / "job")
    store = rank_jobs.make(tmp_path, folder)
    (trace,) = timeline.traces(store, 1)
    (step, *_) = timeline.steps_of(store, trace.id, timeline.whole(trace)).parts
    drawn = timeline_lanes.picture(store, trace.id, step, [4])
    work = [lane for lane in drawn.lines if lane.header.what == "work"]
    assert [len(lane.names) for lane in work] in ([10], [11])
    assert not drawn.notes
