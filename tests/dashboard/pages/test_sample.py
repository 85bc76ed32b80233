"""The Fix and Compare pages of the recorded jobs that come with the program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.pages.asked import drawn, text
from whyidle.dashboard import sample
from whyidle.monitor.store import Reader


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    with sample.copied() as path:
        yield path


def test_every_run_is_shown_in_full_and_the_code_of_its_faults_is_there(store: Path) -> None:
    with Reader.open(store) as reader:
        runs = reader.runs()
    said = [text(drawn("fix", store, str(run.id), is_sample=True)) for run in runs]
    faulty = [page for page in said if "x faster" in page]
    assert faulty
    assert [page for page in faulty if 'class="here"' not in page] == []
    assert [page for page in said if "is not at this line" in page] == []


def test_one_pair_became_faster_and_another_slower(store: Path) -> None:
    with Reader.open(store) as reader:
        runs = reader.runs()
    said = [text(drawn("compare", store, str(run.id), is_sample=True)) for run in runs]
    said.append(text(drawn("compare", store, is_sample=True, a="3", b="4")))
    for word in ("faster", "slower", "gone"):
        assert any(f">{word}</span>" in page for page in said), word


def test_the_newest_run_is_what_its_mended_one_is_compared_with(store: Path) -> None:
    app = drawn("compare", store, is_sample=True)
    assert [app.selectbox(key=which).value for which in ("run", "a", "b")] == ["4", "4", "3"]
    assert ">faster</span>" in text(app)
