"""The page Now: what it says of a run, of one GPU and of many, and what its buttons do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.dashboard import stores
from tests.dashboard.apps import app
from tests.dashboard.gpu_jobs import job
from whyidle.dashboard import settings
from whyidle.dashboard.pages import _now_parts, now
from whyidle.dashboard.views.job import ONLY_A_TRACE
from whyidle.dashboard.views.newest import Known, Newest
from whyidle.monitor.app import report
from whyidle.monitor.control import client
from whyidle.monitor.control.client import Asked, State
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.ranks import SeenRankJson, SeenRanksJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import numbers
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import Reader


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A finished run on three GPUs, of which two are the job's."""
    made = job(tmp_path / DATABASE, gpus=2, others=1, seconds=200)
    made.end()
    return tmp_path / DATABASE


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """A run that goes on: its recorder is this process."""
    made = job(tmp_path / "live" / DATABASE, gpus=8, seconds=200)
    yield made.writer.path
    made.end()


def test_it_answers_in_order_what_a_person_asks(store: Path) -> None:
    words = app(store).words
    places = [words.index(each) for each in (
        "train.py", "Show the fix", "Where the time goes", "GPU in use", "Steps",
        "GPU time lost", "What happened",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "A step by cause" in words
    assert "2 x NVIDIA H200; 1 more in the machine (the driver lists the job on them)" in words


def test_the_top_finding_leads_to_its_fix_of_the_same_run(store: Path) -> None:
    markup = app(store).markup
    assert 'href="/fix?run=1&amp;finding=' in markup


def test_behind_a_proxy_the_link_keeps_to_its_part_of_the_path(store: Path) -> None:
    shown = app(store)
    settings.use(settings.Settings(store=store, base="gpu/1"))
    assert 'href="/gpu/1/fix?run=1' in shown.again().markup


def test_all_gpus_are_shown_where_that_is_wanted(store: Path) -> None:
    shown = app(store)
    assert "GPUs in use, on average" in shown.words
    shown.test.sidebar.toggle(key="all").set_value(True).run()
    assert "3 x NVIDIA H200 (all of the machine)" in shown.words


def test_one_gpu_alone_by_a_link(store: Path) -> None:
    assert "GPUs in use, on average" not in app(store, gpu="1").words


def test_each_gpu_by_itself(live: Path) -> None:
    words = app(live, gpu="each").words
    assert all(f"GPU {i} " in words for i in range(8))


def test_gpus_side_by_side_have_one_scale(live: Path) -> None:
    shown = app(live, gpu="each")
    figures = [b["figure"] for b in shown._blocks() if b.get("name", "").startswith("activity-")]
    assert len(figures) == 8
    assert len({tuple(each["layout"]["yaxis"]["range"]) for each in figures}) == 1


def test_memory_of_gpus_is_no_sum_where_one_of_them_is_unknown(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Newest.get

    def lacking(self: Newest, metric: Metric, subject: int) -> Known:
        known = get(self, metric, subject)
        is_it = metric is m.GPU_MEMORY_USED and subject == max(
            key.subject for key in self.values if key.metric is m.GPU_MEMORY_USED
        )
        return Known(None, "it was lost") if is_it else known

    assert f"GPU memory {numbers.DASH}" not in app(live).words
    monkeypatch.setattr(Newest, "get", lacking)
    assert f"GPU memory {numbers.DASH} it was lost" in app(live).words


def test_numbers_of_a_live_run_are_those_of_now(live: Path) -> None:
    words = app(live).words
    assert "on average /" not in words
    assert "the last 5m" in words


@pytest.mark.parametrize("peak", ["activity", "memory", "power", "step"])
def test_a_peak_is_zoomed_to_and_back(store: Path, peak: str) -> None:
    shown = app(store)
    assert "Compiled train_step" in shown.words
    shown = app(store, peak=peak)
    at = shown.test.session_state["peak_at"][1]
    with Reader.open(store) as reader:
        run = reader.find("last")
    # A moment stands for the seconds after it.
    assert run.started_ms - 10_000 <= at <= (run.ended_ms or 0)


def test_what_is_downloaded_is_what_is_shown(store: Path) -> None:
    settings.use(settings.Settings(store=store))
    from whyidle.dashboard.frame import PageState  # noqa: PLC0415

    with Reader.open(store) as reader:
        shown = PageState(reader, reader.find("last"), "all", everything=False)
        head, *rows = now._csv(shown, "together", None).splitlines()
    assert head.split(",")[0] == "time"
    assert "GPU 1: memory used (bytes)" in head
    assert len(rows) > 100


def test_a_report_is_one_page_about_this_run(store: Path) -> None:
    page = report.page(store, "1")
    assert page.lower().startswith("<!doctype html>")
    assert "train.py" in page


def test_a_paused_page_stands_still(live: Path) -> None:
    shown = app(live)
    shown.test.sidebar.toggle(key="paused").set_value(True).run()
    stopped = shown.test.session_state["paused_ms"]
    assert stopped <= time.time() * 1000
    assert shown.again().test.session_state["paused_ms"] == stopped
    shown.test.sidebar.toggle(key="paused").set_value(False).run()
    assert "paused_ms" not in shown.test.session_state


# A trace on demand -------------------------------------------------------------------------------
@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What the recorder answers, one after the other; the last again and again."""
    answers: list[Asked] = []

    def answer(_store: Path, run: int) -> Asked:
        assert run == 1
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(client, "ask_trace", answer)
    monkeypatch.setattr(client, "state", answer)
    return answers


def test_a_trace_is_asked_for_and_waited_for_until_it_is_kept(
    live: Path, asked: list[Asked]
) -> None:
    asked += [Asked(State.WAITING, "It waits."), Asked(State.TAKING, "It is being taken."),
              Asked(State.KEPT, "Trace 5 is kept.", trace=5)]  # fmt: skip
    shown = app(live)
    shown.test.button(key="trace").click().run()
    assert "It is being taken." in shown.words
    assert shown.test.button(key="trace").disabled
    assert "Trace 5 is kept." in shown.again().words
    assert 'href="/timeline?run=1&amp;trace=5"' in shown.markup
    assert not shown.test.button(key="trace").disabled


def test_a_trace_that_is_refused_says_what_to_do(live: Path, asked: list[Asked]) -> None:
    asked += [
        Asked(State.WAITING, "It waits."),
        Asked(State.REFUSED, "A profiler is on.", "End it."),
    ]
    shown = app(live)
    shown.test.button(key="trace").click().run()
    assert "A profiler is on. End it." in shown.again().words


def test_a_recorder_that_cannot_be_asked_says_why(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Asked:
        raise Problem("The recorder is stopped <b>.", "kill -CONT 7")

    monkeypatch.setattr(client, "ask_trace", fail)
    shown = app(live)
    shown.test.button(key="trace").click().run()
    assert "The recorder is stopped <b>. kill -CONT 7" in shown.words
    assert "stopped <b>" not in shown.markup


def test_a_finished_run_has_no_button_for_a_trace(store: Path) -> None:
    assert [button.key for button in app(store).test.button if button.key == "trace"] == []


# Labels ------------------------------------------------------------------------------------------
def test_a_label_goes_to_the_recorder(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[int, str]] = []

    def label(_store: Path, run: int, wanted: str) -> str:
        said.append((run, wanted))
        return wanted

    monkeypatch.setattr(client, "set_label", label)
    shown = app(live)
    shown.test.sidebar.text_input[0].set_value(" fast ")
    _save(shown.test)
    assert said == [(1, "fast")]


def test_the_label_of_a_finished_run_says_what_to_type(store: Path) -> None:
    shown = app(store)
    assert "monitor runs 1 --label NAME" in [each.value for each in shown.test.sidebar.code]
    assert not shown.test.sidebar.text_input


def _save(test: Any) -> None:
    next(button for button in test.sidebar.button if button.label == "Save").click().run()


def test_the_verdict_is_said_first_and_what_costs_time_beside_a_risk(tmp_path: Path) -> None:
    job(tmp_path / DATABASE, seconds=300).end()
    words = app(tmp_path / DATABASE).words
    starved, grows = "The device waits for the next batch", "Memory grows with every step"
    assert words.index(grows) < words.index(starved)


def test_where_no_counter_says_how_busy_the_device_is_nothing_is_said_of_computing(
    tmp_path: Path,
) -> None:
    stores.make(tmp_path / DATABASE, seconds=60).end()
    assert f"GPU time lost {numbers.DASH} {ONLY_A_TRACE}" in app(tmp_path / DATABASE).words


def test_of_many_ranks_the_latest_are_shown_and_who_comes_last() -> None:
    def rank(number: int, late: float) -> SeenRankJson:
        return SeenRankJson(
            rank=number, pid=7 + number, host=None, last=0.0, late=[late, late],
            waits=[0.0, 0.0], host_shares={"waits": 0.4 - late}, steps=10,
        )  # fmt: skip

    each = [rank(number, 0.3 if number == 9 else 0.0) for number in range(12)]
    known = SeenRanksJson(
        each=each, world_size=12, straggler=each[9], alike=[], kinds={}, chance=0.001, reason=""
    )
    answer = as_json(diagnose(Window("run 7", "run")))
    drawn = _now_parts.ranks(structs.replace(answer, ranks=known))
    assert "4 more wait alike" in drawn
    assert drawn.count("comes last") == 1
    assert "<td>rank 9</td>" in drawn
    assert _now_parts.ranks(structs.replace(answer, ranks=None)) == ""
