"""The Compare page: which two runs, which is better, and what was promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.dashboard.pages.asked import drawn, text
from tests.dashboard.pairs import AFTER, BEFORE, HOSTILE, make
from whyidle.monitor.store import NewRun, Writer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pair") / "whyidle.db"
    make(path)
    return path


def test_the_run_before_it_stands_beside_the_chosen_one(store: Path) -> None:
    app = drawn("compare", store)
    assert [app.selectbox(key=which).value for which in "ab"] == ["1", "2"]
    said = text(app)
    assert ">faster</span>" in said
    assert "B is 2.2" in said
    assert "▼ better" in said
    assert ">gone</span>" in said
    assert "monitor compare 1 2" in said


def test_a_finding_leads_to_its_page_in_the_run_that_has_it(store: Path) -> None:
    assert 'href="fix?run=1&amp;finding=input_starved"' in text(drawn("compare", store))
    swapped = text(drawn("compare", store, a="2", b="1"))
    assert 'href="fix?run=1&amp;finding=input_starved"' in swapped


def test_a_link_chooses_both(store: Path) -> None:
    app = drawn("compare", store, a="2", b="1")
    assert ">slower</span>" in text(app)
    assert "▲ worse" in text(app)
    assert ">new</span>" in text(app)


def test_both_can_be_swapped(store: Path) -> None:
    app = drawn("compare", store)
    app.button[0].click().run()
    assert ">slower</span>" in text(app)


def test_another_run_beside_the_page_brings_its_own_pair(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    make(store, BEFORE, AFTER, replace(AFTER, step_ms=17.0))
    app = drawn("compare", store)
    assert [app.selectbox(key=which).value for which in "ab"] == ["2", "3"]
    app.selectbox(key="run").set_value("2").run()
    assert [app.selectbox(key=which).value for which in "ab"] == ["1", "2"]


def test_what_was_predicted_stands_beside_what_was_measured(store: Path) -> None:
    said = text(drawn("compare", store))
    assert "2.61x to 3.33x faster predicted for input_starved; measured 2.2" in said
    assert "less than predicted" in said


def test_the_same_run_twice_is_no_comparison(store: Path) -> None:
    assert "A and B are the same recording" in text(drawn("compare", store, a="1", b="1"))


def test_a_single_run_says_how_to_get_another(tmp_path: Path) -> None:
    make(tmp_path / "whyidle.db", BEFORE)
    said = text(drawn("compare", tmp_path / "whyidle.db"))
    assert "this is the only recording" in said
    assert "monitor run --label" in said


def test_programs_that_have_nothing_to_do_with_each_other_are_for_the_reader_to_choose(
    tmp_path: Path,
) -> None:
    store = tmp_path / "whyidle.db"
    make(store, BEFORE)
    make(store, AFTER, script="elsewhere/train.py")
    app = drawn("compare", store)
    assert app.selectbox(key="a").value is None
    assert "choose both" in text(app)
    app.selectbox(key="a").set_value("1").run()
    assert "B is 2.2" in text(app)


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    make(store, BEFORE)
    with Writer.open(store) as writer:
        writer.end_run(writer.begin_run(NewRun(label="empty", script="x.py")), "the job ended")
    said = text(drawn("compare", store, a="1", b="2"))
    assert "Which of them is faster is not known" in said
    assert "run 2 (empty)" in said


def test_names_from_a_job_are_no_markup(tmp_path: Path) -> None:
    store = tmp_path / "whyidle.db"
    make(store, replace(BEFORE, label=HOSTILE), replace(AFTER, label=f"{HOSTILE}2"), script="x.py")
    said = text(drawn("compare", store))
    assert "<img" not in said
    assert "&lt;img" in said
