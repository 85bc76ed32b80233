"""What pages remember: answers go with what they are about, and stand still where a page does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import streamlit as st

from tests.dashboard import pairs
from tests.dashboard.apps import app
from tests.dashboard.gpu_jobs import Job, job
from tests.dashboard.pages.asked import drawn, text
from whyidle.dashboard import frame, settings, store_reader
from whyidle.dashboard.frame import PageState
from whyidle.dashboard.pages import _now_parts
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import comparison, source
from whyidle.dashboard.views import job as jobs
from whyidle.dashboard.views.cache import _KEPT, forget_others
from whyidle.dashboard.views.newest import Newest
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Reader, Run
from whyidle.monitor.store.traces import NewTrace, put


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Job]:
    """A run that goes on: its recorder is this process."""
    made = job(tmp_path / DATABASE, gpus=1, seconds=60)
    settings.use(settings.Settings(store=made.writer.path))
    yield made
    made.writer.close()


@pytest.fixture
def reader(live: Job) -> Iterator[Reader]:
    with Reader.open(live.writer.path) as opened:
        yield opened


def asked(reader: Reader, run: Run, name: str = "all") -> PageData:
    return PageData.of(PageState(reader, run, name, everything=False), "together")


def a_trace(store: Path, run: int) -> None:
    put(store, NewTrace(run=run, format="kineto", path="/a/trace.json", header={}))


def test_an_answer_ends_with_its_run_and_when_a_trace_is_kept(live: Job, reader: Reader) -> None:
    before = asked(reader, reader.find("last"))
    assert before.seldom("what", lambda: 1) == 1
    assert before.seldom("what", lambda: 2) == 1
    assert live.writer.end_run(live.run, "stopped")
    # By the clock of the answers no time has gone by.
    over = replace(before, shown=replace(before.shown, run=reader.find("last")))
    assert over.seldom("what", lambda: 3) == 3
    a_trace(live.writer.path, live.run)
    assert over.seldom("what", lambda: 4) == 4


def test_the_share_that_computes_is_that_of_the_range_shown(
    live: Job, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {None: 25.0, 60: 75.0}

    def account(_store: Path, _run: int, seconds: float | None) -> Any:
        part = shares[seconds]  # type: ignore[index]
        return {"slices": {"compute": part, "idle_input": 100 - part}}, "trace 1"

    monkeypatch.setattr(jobs, "account", account)
    run = reader.find("last")
    assert _now_parts.computing(asked(reader, run, "all")) == (0.25, "by trace 1")
    assert _now_parts.computing(asked(reader, run, "1m")) == (0.75, "by trace 1")


def test_the_numbers_of_a_paused_page_stand_still(live: Job) -> None:
    shown = app(live.writer.path)
    shown.test.sidebar.toggle(key="paused").set_value(True).run()
    _, first = shown.test.session_state["newest_at"]
    live.more(5)
    forget_others(None)
    _, again = shown.again().test.session_state["newest_at"]
    assert again.values == first.values
    forget_others(None)
    shown.test.sidebar.toggle(key="paused").set_value(False).run()
    shown.test.sidebar.toggle(key="paused").set_value(True).run()
    _, later = shown.test.session_state["newest_at"]
    assert later.values != first.values


def test_numbers_of_a_run_whose_recorder_is_not_to_be_seen_go_on(
    live: Job, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10**9, 10**12, 10**9))
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    run = replace(reader.find("last"), recorder_start_ticks=1)
    assert not run.is_recording
    first = Newest.of(reader, run)
    live.more(5)
    assert Newest.of(reader, run).get(m.GPU_POWER, live.gpus[0]) != first.get(
        m.GPU_POWER, live.gpus[0]
    )


@pytest.mark.parametrize(("said", "every"), [((), 1.0), ((None,), None), ((10.0,), 10.0)])
def test_a_part_is_redrawn_as_often_as_the_page_unless_it_says_otherwise(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, said: tuple[Any, ...], every: float | None
) -> None:
    found = []

    def fragment(_part: Any, run_every: float | None = None) -> Any:
        found.append(run_every)
        return lambda: None

    monkeypatch.setattr(st, "fragment", fragment)
    shown = PageState(reader, reader.find("last"), "all", everything=False)
    monkeypatch.setattr(PageState, "every", 1.0)
    frame.live(lambda _: None, shown, *said)
    assert found == [every]


def test_code_that_is_changed_while_its_finding_is_shown_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.make(tmp_path / DATABASE)
    page = drawn("fix", tmp_path / DATABASE, "before")
    assert "time.sleep(READ_SECONDS)" in text(page)
    monkeypatch.setattr(source, "around", lambda *_: "it was moved away")
    page.run()
    assert "it was moved away" in text(page)


def test_pages_are_judged_again_when_a_trace_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / DATABASE
    pairs.make(store)
    asked: list[str] = []
    for module, name in ((jobs, "diagnosis"), (comparison, "compared")):
        _counted(monkeypatch, module, name, asked)
    pages = [drawn(name, store, "after") for name in ("fix", "compare")]
    assert sorted(asked) == ["compared", "diagnosis"]
    for page in pages:
        page.run()
    assert len(asked) == 2
    a_trace(store, 2)
    for page in pages:
        page.run()
    assert sorted(asked) == ["compared", "compared", "diagnosis", "diagnosis"]


def _counted(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, asked: list[str]
) -> None:
    answer = getattr(module, name)

    def counted(*arguments: Any) -> Any:
        asked.append(name)
        return answer(*arguments)

    monkeypatch.setattr(module, name, counted)


def test_a_store_that_takes_the_place_of_another_lets_its_answers_go(tmp_path: Path) -> None:
    store = tmp_path / DATABASE
    job(store, gpus=1, seconds=30).end()
    app(store)
    first = store_reader.reader()
    assert any(question[0] is first for question in _KEPT)
    store.rename(tmp_path / "old.db")
    job(store, gpus=1, seconds=30).end()
    assert store_reader.reader() is not first
    assert not any(question[0] is first for question in _KEPT)
