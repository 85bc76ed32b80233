"""The Timeline page without a browser: whatever a trace or a link is like, there are words."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.dashboard import timelines
from tests.dashboard.apps import App, app
from whyidle.dashboard.views import job
from whyidle.monitor.render.budget import share
from whyidle.monitor.store import NewRun, Writer

GAP = "idle-0-215000000-215000000"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timelines.make(tmp_path_factory.mktemp("timeline"))


def has_lanes(shown: App) -> bool:
    # The overview comes with a zoom: the lanes alone show all of a trace.
    return "lanes" in {name.rpartition("-")[2] for name in shown.charts}


def button(shown: App, label: str) -> None:
    next(each for each in shown.test.button if each.label == label).click().run()


def test_a_gap_of_a_link_is_explained_with_what_the_host_did_and_the_code(store: Path) -> None:
    words = app(store, "timeline", at=GAP).words
    assert "idle: input 90.4 ms of GPU 0: the job waits for its data loader." in words
    assert f"{timelines.LOADER} data loader 1 100% 100%" in words
    assert "only 90" in words
    assert "train.py:12 in train" in words


def test_the_steps_are_gone_through_by_buttons(store: Path) -> None:
    shown = app(store, "timeline")
    assert "433 ms, all of the trace" in shown.words
    button(shown, "Slowest step")
    assert "step 3 of 5, 117 ms, 173 ms into the trace" in shown.words
    assert shown.test.query_params["window"] == "173260000-289889000"
    button(shown, "Previous step")
    assert "step 2 of 5" in shown.words
    button(shown, "Whole trace")
    assert "window" not in shown.test.query_params


@pytest.mark.parametrize(
    "link",
    [
        {"trace": "99"}, {"trace": "<b>"}, {"window": "5-5"}, {"window": "-1-x"},
        {"at": "idle-9-1-1"}, {"at": "work-77-1-1"}, {"at": "host-77-1-1"}, {"at": "step-1-0-0"},
        {"at": "<script>"}, {"device": "7"}, {"at": f"idle-0-{10**17}-{10**17}"},
        {"window": "999999999999-9999999999999"}, {"by": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_link_that_makes_no_sense_shows_the_trace(store: Path, link: dict[str, str]) -> None:
    shown = app(store, "timeline", **link)
    assert has_lanes(shown)
    assert "could not be drawn" not in shown.words


def test_the_times_of_a_link_to_another_trace_mean_nothing_here(store: Path) -> None:
    shown = app(store, "timeline", trace="99", window="0-5000000", at=GAP)
    assert "all of the trace" in shown.words
    assert "Click on a gap" in shown.words


def test_a_run_without_a_trace_says_how_to_keep_one(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    with Writer.open(store) as writer:
        writer.end_run(writer.begin_run(NewRun()), "the job ended", 0)
    words = app(store, "timeline").words
    assert "no trace is stored with this run" in words
    assert "monitor trace FILE --run 1" in words


def test_a_file_that_is_of_no_run_is_there_to_choose(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    other = timelines.kept(store, timelines.write(tmp_path / "other.json", devices=2), None)
    shown = app(store, "timeline", trace=str(other))
    assert [each.label for each in shown.test.selectbox if each.label == "Trace"]
    assert "file other.json" in shown.test.selectbox(key="pick-trace").options
    assert shown.test.selectbox(key="pick-device").options == ["all 2 devices", "GPU 0", "GPU 1"]
    shown.test.selectbox(key="pick-device").select("1").run()
    assert shown.test.query_params["device"] == "1"
    assert has_lanes(shown)


def changed(store: Path, *statements: str) -> None:
    connection = sqlite3.connect(store)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_of_a_timeline_that_made_room_the_figures_are_still_shown(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    changed(store, "DELETE FROM trace_block", "UPDATE trace SET size = 0")
    shown = app(store, "timeline")
    assert "It made room for newer ones." in shown.words
    assert f"monitor trace {tmp_path / 'train.json'}" in shown.words
    assert "Kernel<gemm_f16> 55 110 ms 92%" in shown.words
    assert not has_lanes(shown)
    assert shown.charts


def test_a_damaged_timeline_says_so_and_how_to_read_the_file_again(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    changed(store, "UPDATE trace_block SET data = substr(data, 1, 50) WHERE tbl = 'op'")
    shown = app(store, "timeline")
    assert "damaged" in shown.words
    assert "monitor trace" in shown.words


def test_what_the_trace_warns_of_is_shown_as_text(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    update = "UPDATE trace SET header = json_set(header, '$.answer.warnings', json_array('{}'))"
    changed(store, update.format(f"truncated {timelines.HOSTILE}"))
    shown = app(store, "timeline")
    assert f"⚠ truncated {timelines.HOSTILE}" in shown.words
    assert "<img" not in shown.markup


def test_a_file_that_is_gone_is_named_instead_of_offered(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    (tmp_path / "train.json").unlink()
    words = app(store, "timeline").words
    assert "Perfetto" in words
    assert f"{tmp_path / 'train.json'} is gone" in words


def test_the_share_of_compute_is_that_of_the_steps_as_on_all_pages(store: Path) -> None:
    words = app(store, "timeline").words
    answer = timelines.answer(store)
    steps = answer["step_budget"]["slices"]
    shown = share(steps["compute"], sum(steps.values()))
    assert f"{shown} compute of its 5 whole steps" in words


def test_a_trace_without_a_device_says_so_and_draws_nothing(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    changed(store, "UPDATE trace SET header = json_set(header, '$.answer.devices', json_array())")
    shown = app(store, "timeline")
    assert "this trace holds no device work" in shown.words
    assert "monitor attach PID" in shown.words
    assert not shown.charts


def test_the_sample_says_once_that_it_has_no_files(store: Path) -> None:
    shown = app(store, "timeline", is_sample=True)
    assert shown.words.count("which the sample lacks") == 1
    assert "is gone" not in shown.words
    assert not list(shown.test.get("download_button"))


def test_where_a_trace_names_no_line_that_of_the_runs_finding_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = timelines.make(tmp_path)
    changed(store, "UPDATE trace SET header = json_set(header, '$.answer.where', json_array())")
    place = SimpleNamespace(file="load.py", line=7, function="read<b>", share=0.4)
    finding = SimpleNamespace(
        rule="input_starved", title="It waits", slice="idle_input", where=[place]
    )
    monkeypatch.setattr(job, "diagnosis", lambda *_: SimpleNamespace(findings=[finding]))
    shown = app(store, "timeline", at=GAP)
    assert "Lines that the run's finding names It waits" in shown.words
    assert "load.py:7 in read<b> 40%" in shown.words
    assert "finding=input_starved" in shown.markup
    assert "read<b>" not in shown.markup
