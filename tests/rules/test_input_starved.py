"""The rule input_starved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    stacks,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Found, Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import CodeLine

NAME = "input_starved"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (
        """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset
dataset, batch_size = TensorDataset(torch.zeros(256, 4)), 32
""",
        "assert loader.num_workers >= 1 and len(loader) == 8",
    ),
    "jax": (
        """
import collections
from concurrent.futures import ThreadPoolExecutor
import jax
import numpy as np
""",
        """
got = list(ahead(lambda rows: np.full(3, rows), range(9)))
assert [int(g[0]) for g in got] == list(range(9))
assert isinstance(got[0], jax.Array)
""",
    ),
}


def test_a_trace_with_waits_for_the_loader() -> None:
    bad = answer({Slice.COMPUTE: 0.5, Slice.IDLE_INPUT: 0.4, Slice.IDLE_DISPATCH: 0.1})
    finding = found(NAME, window(bad))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(0.4 - 0.67 * 0.1)
    assert finding.gain.high == pytest.approx(0.5)
    assert finding.slice is Slice.IDLE_INPUT


def test_waits_that_only_the_agent_saw() -> None:
    finding = found(NAME, window(means={m.JOB_LOADER_WAIT: 0.5}, inside=True))
    assert finding.gain is not None
    assert 0.25 < finding.gain.low < finding.gain.high <= 0.51
    assert finding.evidence[0].source == "agent"


def test_a_job_that_waits_for_nothing() -> None:
    good = answer({Slice.COMPUTE: 0.95, Slice.IDLE_DISPATCH: 0.05})
    assert is_silent(NAME, window(good, means={m.JOB_LOADER_WAIT: 0.001}))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())


# What came back when the workers were turned on, in shares of the step (notes/budget.md).
@pytest.mark.parametrize(
    ("trace", "realised"),
    [("v100_resnet50_workers0", 0.282), ("resnet50_b_workers0", 0.218)],
)
def test_the_range_holds_what_came_back(trace: str, realised: float) -> None:
    finding = found(NAME, traced(trace))
    assert finding.gain is not None
    assert finding.gain.low <= realised <= finding.gain.high


@pytest.mark.parametrize("trace", ["h100_qwen05b", "mi300_ddp_resnet18"])
def test_traces_that_wait_for_something_else(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def loader(workers: int) -> dict[str, object]:
    """Return what PyTorch's probe says of a loader."""
    return {"torch": {"loaders": [{"workers": workers}]}}


def test_no_more_is_promised_than_the_cores_can_load() -> None:
    means = {m.JOB_LOADER_WAIT: 0.8, m.HOST_CORES: 2.0}
    finding = found(NAME, window(means=means, inside=True, facts=loader(0)))
    assert finding.gain is not None
    # Two workers at best need 0.4 of the step for what took 0.8 of it.
    assert finding.gain.high == pytest.approx(0.6)
    assert finding.gain.low == pytest.approx(0.46)


def test_as_many_workers_as_cores() -> None:
    means = {m.JOB_LOADER_WAIT: 0.8, m.HOST_CORES: 2.0}
    finding = found(NAME, window(means=means, inside=True, facts=loader(2)))
    assert finding.gain is None
    assert finding.severity is Severity.LOW


def test_a_main_thread_that_reads_files_itself(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = np.load(path)\ny = step(x)\n")
    lines = (SourceLine(str(file), 1, "train", 0.8), SourceLine(str(file), 2, "train", 0.2))
    taken = answer({Slice.COMPUTE: 0.1, Slice.IDLE_UNKNOWN: 0.9}, fmt="xplane")
    means = {m.HOST_CORES: 8.0}
    finding = found(NAME, window(taken, means=means, inside=True, lines=lines, looks=10**9))
    assert finding.gain is not None
    assert finding.gain.high <= 0.8001
    assert finding.where[0].line == 1
    busy = answer({Slice.COMPUTE: 1.0}, fmt="xplane")
    assert is_silent(NAME, window(busy, means=means, inside=True, lines=lines))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.gain is not None
    assert finding.gain.middle >= 0.3
    after = judge(NAME, recorded(f"{NAME}/after_{framework}"))
    assert not isinstance(after, Found) or after.severity is Severity.LOW


def test_a_gpu_gets_no_whole_wait_back() -> None:
    gain = found(NAME, traced("h100_owlv2")).gain
    assert gain is not None
    # Measured of others: 60-73% of the wait comes back.
    assert gain.low <= 0.6 * 0.511 + 0.001
    assert gain.high >= 0.511


def test_only_lines_at_the_loader_are_named(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "for x in loader:\n    loss.backward()\nx = next(it)\nfor i in range(9):\n    z\n"
    )
    lines = tuple(SourceLine(str(file), line, "train", 0.2) for line in (2, 4, 5, 1, 3))
    generated = SourceLine("/tmp/torchinductor_me/ab/cab.py", 9, "__next__", 0.1)
    library = SourceLine(
        "/v/lib/python3.11/site-packages/torch/utils/data/x.py", 9, "__next__", 0.1
    )
    means = {m.JOB_LOADER_WAIT: 0.5}
    finding = found(NAME, window(means=means, inside=True, lines=(generated, library, *lines)))
    assert [place.line for place in finding.where] == [1, 3]


PREPARES = """\
import jax.numpy as jnp
def augment(images):
    images = images[:, ::-1] * 0.5
    return jnp.asarray(images)
def train(images):
    step(augment(images))
"""


@pytest.mark.parametrize(
    ("line", "leaf", "unknown", "fires"),
    [
        (3, "train.py", 0.6, True),
        (3, "/v/lib/python3.11/site-packages/numpy/lib/stride_tricks.py", 0.6, True),
        (4, "train.py", 0.6, False),  # a call of JAX
        (6, "train.py", 0.6, False),  # not a function that prepares
        (3, "/v/lib/python3.11/site-packages/torch/_tensor.py", 0.6, False),
        (3, "train.py", 0.1, False),  # the device is busy meanwhile
    ],
)
def test_batches_that_the_main_thread_prepares(
    tmp_path: Path, line: int, leaf: str, unknown: float, *, fires: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PREPARES)
    taken = answer({Slice.COMPUTE: 1 - unknown, Slice.IDLE_UNKNOWN: unknown}, kind="gpu")
    function = "augment" if line < 5 else "train"
    lines = (SourceLine(str(file), line, function, 0.5),)
    at = str(file) if leaf == "train.py" else leaf
    result = judge(
        NAME, window(taken, inside=True, lines=lines, leaves=(SourceLine(at, line, function, 0.5),))
    )
    assert isinstance(result, Found) is fires
    if isinstance(result, Found):
        assert result.where[0].line == 3
        assert result.gain is not None
        assert result.gain.high <= 0.5


def test_a_library_that_reads_puts_no_other_line_to_blame(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def images():\n    return decoded(path)\n\nloss.backward()\n")
    pil = SourceLine("/v/lib/python3.11/site-packages/PIL/Image.py", 9, "load", 0.6)
    lines = (SourceLine(str(file), 4, "train", 0.3), SourceLine(str(file), 2, "load_images", 0.6))
    taken = answer({Slice.COMPUTE: 0.4, Slice.IDLE_UNKNOWN: 0.6}, fmt="xplane")
    means = {m.HOST_CORES: 8.0}
    finding = found(NAME, window(taken, means=means, inside=True, lines=lines, leaves=(pil,)))
    assert [place.line for place in finding.where] == [2]


def test_a_loader_of_keras_is_known_by_the_samples() -> None:
    adapter = "/env/lib/python3.11/site-packages/keras/src/trainers/data_adapters"
    get = CodeLine(f"{adapter}/py_dataset_adapter.py", 669, "get")
    trains = CodeLine(
        "/env/lib/python3.11/site-packages/keras/src/backend/jax/trainer.py", 9, "fit"
    )
    fit = CodeLine("/me/train.py", 150, "main")
    facts = {"jax": {"backend": "cpu"}}
    waits = stacks((get, (fit,), 80), (trains, (fit,), 20), waited=1)
    finding = found(NAME, window(facts=facts, stacks=waits, inside=True))
    assert finding.gain is not None
    assert finding.evidence[0].value == pytest.approx(0.8)
    fed = stacks((get, (fit,), 4), (trains, (fit,), 96), waited=1)
    assert not isinstance(judge(NAME, window(facts=facts, stacks=fed, inside=True)), Found)
