"""Steps of real traces: those that are marked, and the same with the markers hidden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.traces.agreeing import agree, well_formed
from tests.traces.looking import repeated, steps_of
from tests.traces.real import TRUTHS, path_of
from whyidle.monitor.traces.loading import load

MARKED = [name for name, truth in TRUTHS.items() if truth.get("profiler_steps")]
OURS = Path(__file__).parents[1] / "data" / "traces" / "kineto"


@pytest.mark.parametrize("name", MARKED)
def test_markers_of_real_traces(name: str) -> None:
    found = steps_of(load(path_of(name)))
    marks = TRUTHS[name]["profiler_steps"]
    assert (found.source, len(found)) == ("markers", len(marks))
    assert found.median == int(np.median([mark["dur_ns"] for mark in marks]))


@pytest.mark.parametrize("name", [n for n in MARKED if len(TRUTHS[n]["profiler_steps"]) > 1])
def test_real_traces_with_hidden_markers(name: str) -> None:
    trace = load(path_of(name))
    found = repeated(trace)
    well_formed(found)
    agree(found, steps_of(trace))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # One step, in which nothing, the layers or the images of a loader repeat.
        ("a100_event_sync", 0),
        ("h100_qwen05b", 0),
        ("h100_owlv2", 5),
        ("a100_alexnet", 0),
        ("mi300_ddp_resnet18", 5),
        ("jax_gemm_mi300", 6),
        ("jax_conv_8gpu_mi300", 5),
        ("tf_3gpu", 0),
    ],
)
def test_real_traces_without_markers(name: str, count: int) -> None:
    found = repeated(load(path_of(name)))
    well_formed(found)
    assert len(found) == count


def test_a_trace_of_our_own_with_hidden_markers() -> None:
    trace = load(OURS / "cpu_steps_stacks.json.gz")
    found, marked = repeated(trace), steps_of(trace)
    assert (marked.source, len(marked)) == ("markers", 4)
    # Steps of half a millisecond: the time between two markers is a part of them.
    assert len(found) == 4
    assert len(steps_of(load(OURS / "cpu_plain.json.gz"))) == 6
