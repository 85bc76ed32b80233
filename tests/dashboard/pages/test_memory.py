"""The page Memory & transfers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.apps import app
from tests.dashboard.gpu_jobs import job
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Writer

ENDED_MS = 1_790_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    # What is made goes in waves: how steeply it grows hangs on the hour.
    made = job(tmp_path / DATABASE, gpus=2, seconds=300, end_ms=ENDED_MS)
    made.end()
    return tmp_path / DATABASE


def test_it_says_who_holds_the_memory_and_when_it_is_full(store: Path) -> None:
    words = app(store, "memory").words
    assert "of 282 GiB, 2 GPUs" in words
    assert "keeps growing: full in about 3 hours" in words
    assert "GPU 0 100 train.py this job 40.0 GiB 10%" in words


def test_it_says_how_fast_the_link_is_and_could_be(store: Path) -> None:
    words = app(store, "memory").words
    assert "The link runs at PCIe 4 x16, though it supports PCIe 5 x16" in words


def test_one_gpu_alone_by_a_link(store: Path) -> None:
    words = app(store, "memory", gpu="1").words
    assert "of 141 GiB" in words
    assert "GPU 1 101 train.py" in words
    assert "GPU 0 100" not in words


def test_without_a_trace_it_says_how_to_have_one(store: Path) -> None:
    assert "no GPU trace is stored with this run" in app(store, "memory").words


def test_without_a_gpu_it_shows_the_main_memory(tmp_path: Path) -> None:
    with Writer.open(tmp_path / DATABASE) as writer:
        info = {"gpu_problem": "There is no driver <b>.", "gpus": []}
        writer.end_run(writer.begin_run(NewRun(info=info)), "stopped")
    shown = app(tmp_path / DATABASE, "memory")
    assert "There is no driver <b>." in shown.words
    assert "<b>." not in shown.markup.replace("</b>", "")
    assert "Main memory of the job" in shown.words
    assert "PCIe" not in shown.words


def test_what_does_not_grow_has_no_pace(store: Path) -> None:
    words = app(store, "memory").words
    assert "main memory of the job 5.0 GiB none" in words
    assert "no longer grows" not in words


def test_a_limit_far_above_is_given_in_words_and_does_not_flatten_the_line(store: Path) -> None:
    assert "Main memory of the job (machine 512 GiB)" in app(store, "memory").words


def test_without_a_gpu_nobody_is_told_to_attach_for_its_copies(tmp_path: Path) -> None:
    with Writer.open(tmp_path / DATABASE) as writer:
        info = {"gpu_problem": "There is no driver.", "gpus": []}
        writer.end_run(writer.begin_run(NewRun(info=info)), "stopped")
    words = app(tmp_path / DATABASE, "memory").words
    assert "Copies : There is no driver." in words


def test_a_run_that_is_over_is_not_told_to_be_attached_to(store: Path) -> None:
    words = app(store, "memory").words
    assert "and it is over: only a running job can be traced" in words
