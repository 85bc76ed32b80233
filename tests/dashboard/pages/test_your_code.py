"""The page Your code."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from tests.dashboard import chains
from tests.dashboard.apps import app
from tests.dashboard.gpu_jobs import Job, job
from whyidle.dashboard import sample
from whyidle.monitor.core.paths import DATABASE


@pytest.fixture
def made(tmp_path: Path) -> Job:
    return job(tmp_path / DATABASE, gpus=2, seconds=60, user=getpass.getuser())


@pytest.fixture
def store(made: Job, tmp_path: Path) -> Path:
    file = chains.script(tmp_path)
    chains.keep(made, chains.packed(chains.samples(file)))
    chains.keep(made, chains.packed(chains.samples(file, 3, waits=False)), rank=1)
    made.end()
    return made.writer.path


def test_it_names_the_hottest_line_shows_its_code_and_says_how_sure_it_is(store: Path) -> None:
    shown = app(store, "code")
    assert shown.charts == ["your-code"]
    assert "100 samples of rank 0, the whole run; shares are ± 10% at most" in shown.words
    assert "40% ± 9.8% train.py:13 in tokens" in shown.words
    assert '<div class="here"><b>  13</b>        found.append' in shown.markup
    assert "data loader 20%" in shown.words


def test_another_process_by_a_link(store: Path) -> None:
    words = app(store, "code", process="rank 1").words
    assert "300 samples of rank 1" in words
    assert "The samples do not say whether the thread waited" in words


def test_a_process_that_is_not_there_is_not_shown(store: Path) -> None:
    assert "100 samples of rank 0" in app(store, "code", process="rank 7").words


def test_now_names_the_hottest_line_once(store: Path) -> None:
    shown = app(store, range="1m")
    assert shown.words.count("Your hottest line: train.py:13 in tokens , 40% ± 9.8%") == 1
    assert "/code?run=1&amp;range=1m" in shown.markup


def test_without_samples_it_says_why_and_now_says_nothing(made: Job) -> None:
    made.end()
    store = made.writer.path
    assert "the agent kept no samples in this run" in app(store, "code").words
    assert "hottest" not in app(store).words


def test_names_from_a_job_are_no_markup(made: Job) -> None:
    chains.keep(made, chains.packed(chains.samples("/job/<img src=x>.py")))
    made.end()
    shown = app(made.writer.path, "code")
    assert "<img src=x>.py:13 in tokens" in shown.words
    assert "<img" not in shown.markup


def test_the_sample_is_shown_with_its_chains_and_the_code_of_its_lines() -> None:
    with sample.copied() as path:
        shown = app(path, "code", is_sample=True, run="1")
    assert shown.charts == ["your-code"]
    assert "before_jax.py:25 in network" in shown.words
    assert 'class="here"' in shown.markup
