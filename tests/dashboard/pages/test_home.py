"""The page of all runs: what runs now, what was recorded, and what can be done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.apps import App, settings
from tests.dashboard.pairs import AFTER, BEFORE, make
from whyidle.dashboard.views import jobs
from whyidle.dashboard.views.jobs import RunningJob
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Reader


def _script() -> None:
    from whyidle.dashboard.pages import home  # noqa: PLC0415

    home.page()


def opened(
    store: Path, ticked: list[int] | None = None, *, is_sample: bool = False, may: bool = True
) -> App:
    from streamlit.testing.v1 import AppTest  # noqa: PLC0415

    settings.use(settings.Settings(store=store, is_sample=is_sample, allow_actions=may))
    test = AppTest.from_function(_script, default_timeout=30)
    if ticked is not None:
        test.session_state["runs"] = {"selection": {"rows": ticked, "columns": [], "cells": []}}
    test.run()
    return App(test)


@pytest.fixture
def none_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "found", lambda: ([], None))


def test_a_job_that_runs_is_shown_with_the_line_that_attaches_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = [RunningJob(4711, "<b>train.py</b>", "pid 4711 · 7% idle", None),
               RunningJob(4712, "other.py", "pid 4712", 3)]  # fmt: skip
    monkeypatch.setattr(jobs, "found", lambda: (running, "Not as this user."))
    shown = opened(tmp_path / DATABASE)
    assert [each.value for each in shown.test.code] == ["monitor attach 4711"]
    assert "<b>train.py</b>" in shown.words
    assert "<b>train.py" not in shown.markup
    assert 'href="/?run=3"' in shown.markup
    assert "Not as this user." in shown.words


@pytest.mark.usefixtures("none_run")
def test_without_runs_it_says_how_to_begin_and_where_a_sample_is(tmp_path: Path) -> None:
    words = opened(tmp_path / DATABASE).words
    assert "monitor attach PID" in words
    assert "monitor dashboard --sample" in words


@pytest.mark.usefixtures("none_run")
def test_runs_are_listed_and_filtered_by_any_word(tmp_path: Path) -> None:
    make(tmp_path / DATABASE, BEFORE, AFTER)
    shown = opened(tmp_path / DATABASE)
    listed = shown.test.dataframe[0].value
    assert len(listed) == 2
    shown.test.text_input(key="filter").set_value("nothing is called so").run()
    assert len(shown.test.dataframe[0].value) == 0
    assert "0 of 2 runs" in shown.words


@pytest.mark.usefixtures("none_run")
def test_a_label_is_written_and_a_run_deleted(tmp_path: Path) -> None:
    make(tmp_path / DATABASE, BEFORE, AFTER)
    shown = opened(tmp_path / DATABASE, [0])
    shown.test.text_input(key="label-2").set_value("mine").run()
    shown.test.button(key="rename").click().run()
    assert _labels(tmp_path / DATABASE)[2] == "mine"
    shown = opened(tmp_path / DATABASE, [0])
    shown.test.button(key="delete").click().run()
    assert set(_labels(tmp_path / DATABASE)) == {1}


@pytest.mark.usefixtures("none_run")
def test_two_ticked_are_compared_the_earlier_one_first(tmp_path: Path) -> None:
    make(tmp_path / DATABASE, BEFORE, AFTER)
    assert 'href="/compare?run=2&amp;a=1&amp;b=2"' in opened(tmp_path / DATABASE, [0, 1]).markup


@pytest.mark.usefixtures("none_run")
def test_a_page_that_may_only_look_says_what_to_type(tmp_path: Path) -> None:
    make(tmp_path / DATABASE, BEFORE, AFTER)
    shown = opened(tmp_path / DATABASE, [0, 1], may=False)
    assert [each.value for each in shown.test.code] == [
        "monitor runs 2 --label NAME\nmonitor prune 2 1"
    ]
    assert not shown.test.button


@pytest.mark.usefixtures("none_run")
def test_nothing_of_the_sample_is_changed(tmp_path: Path) -> None:
    make(tmp_path / DATABASE, BEFORE, AFTER)
    shown = opened(tmp_path / DATABASE, [0], is_sample=True)
    keys = {each.key for each in shown.test.button}
    assert not keys & {"rename", "delete"}


def _labels(store: Path) -> dict[int, Any]:
    with Reader.open(store) as reader:
        return {run.id: run.label for run in reader.runs()}
