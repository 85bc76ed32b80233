"""Every recording of a real GPU, replayed; the tape itself is played in test_gpu_record.py."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.gpu import kept

every_model = pytest.mark.parametrize("model", kept.MODELS, ids=lambda path: path.name)
TRACES = [path for model in kept.MODELS for path in sorted(model.glob("traces/*.gz"))]
pytestmark = pytest.mark.skipif(not kept.MODELS, reason=kept.NONE_YET)


@every_model
def test_the_index_tells_every_file_and_where_it_comes_from(model: Path) -> None:
    kept.check_files(model)
    runs = kept.index(model)["runs"]
    assert all(run["date"] and run["driver"] and run["command"] for run in runs)


@every_model
def test_the_rules_still_say_what_they_said(model: Path) -> None:
    kept.check_findings(model)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_a_trace_of_a_gpu_is_read_and_adds_up(trace: Path) -> None:
    answer = kept.check_trace(trace)
    assert {device["kind"] for device in answer["devices"]} == {"gpu"}


@every_model
def test_a_recording_names_nobody(model: Path) -> None:
    for path in model.rglob("*.gz"):
        text = gzip.decompress(path.read_bytes()).decode(errors="replace")
        assert not kept.NAMING.search(text), path.name
