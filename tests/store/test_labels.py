"""Labels that a person gives afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Reader, Writer
from whyidle.monitor.store.labels import MOST_LETTERS, label_run, new_label


def test_only_the_recording_that_is_meant_gets_the_label(tmp_path: Path) -> None:
    store = tmp_path / DATABASE
    with Writer.open(store) as writer:
        for name in ("one", "two"):
            writer.end_run(writer.begin_run(NewRun(label=name)), "done")
    label_run(store, 1, "first")
    label_run(store, 2, None)
    with Reader.open(store) as reader:
        assert [run.label for run in reader.runs()] == ["first", None]
        assert reader.find("first").id == 1


def test_a_store_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageProblem, match="no recordings"):
        label_run(tmp_path / DATABASE, 1, "x")
    assert not (tmp_path / DATABASE).exists()


def test_a_label_is_kept_without_the_space_around_it() -> None:
    assert new_label("  größer {} \u4e2d ") == "größer {} \u4e2d"
    assert new_label(" \t ") is None
    assert new_label("x" * MOST_LETTERS) == "x" * MOST_LETTERS


@pytest.mark.parametrize(
    "text", ["x" * (MOST_LETTERS + 1), "a\nb", "\x1b[2J", "\u202eabc", "\udcff", "last", " 12 "]
)
def test_a_label_that_cannot_be_shown_or_found_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        new_label(text)
    assert raised.value.next_step
