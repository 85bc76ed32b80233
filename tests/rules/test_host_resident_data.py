"""The rule host_resident_data."""

from __future__ import annotations

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
from whyidle.monitor.core.finding import Confidence, Found, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.runs.stacks import CodeLine

NAME = "host_resident_data"
FIXES = {
    "jax": (
        """
import jax
import numpy as np
images, labels, batch, params = np.ones((8, 2)), np.ones(8), 2, 0.0
seen = []
@jax.jit
def cut(images, first):
    return jax.lax.dynamic_slice_in_dim(images, first, 2).sum()
def step(params, images, labels, first):
    seen.append(images)
    return params + cut(images, first)
""",
        """
assert all(isinstance(each, jax.Array) for each in seen) and float(params) == 16
""",
    ),
}
PROGRAM = {"name": "jit_step", "argument_bytes": 24 << 20}
JAX = {"jax": {"backend": "cpu", "largest_executables": [PROGRAM]}}
TAKEN = answer(
    {Slice.COMPUTE: 0.4, Slice.IDLE_DISPATCH: 0.6},
    fmt="xplane",
    calls={"PjitFunction(step)": 1.0},
)


def test_a_large_array_is_copied_in_each_step() -> None:
    finding = found(NAME, window(TAKEN, means={m.PROCESS_LIVE_BYTES: 4 << 20}, facts=JAX))
    assert finding.gain is not None
    # The wait of 0.6 comes back for the most part, and some of the work beside it.
    assert 0.36 < finding.gain.low < 0.6 < finding.gain.high < 0.79
    assert finding.evidence[0].value == 20 << 20


def test_data_that_lie_on_the_device() -> None:
    assert judge(NAME, window(TAKEN, means={m.PROCESS_LIVE_BYTES: 24 << 20}, facts=JAX)) is None


def test_a_batch_is_copied_in_each_step() -> None:
    assert judge(NAME, window(TAKEN, means={m.PROCESS_LIVE_BYTES: 23 << 20}, facts=JAX)) is None


def test_a_gpu_that_waits_for_the_same_copy() -> None:
    taken = answer(
        {Slice.COMPUTE: 0.5, Slice.EXPOSED_COPY: 0.5},
        kind="gpu",
        fmt="xplane",
        details={Slice.EXPOSED_COPY: {"host to device, pageable": 0.5}},
        calls={"PjitFunction(step)": 1.0},
        copies=[
            {"direction": "host to device", "memory": "pageable", "count": 10, "bytes": 10 << 24}
        ],
    )
    finding = found(NAME, window(taken))
    assert finding.slice is Slice.EXPOSED_COPY
    assert finding.evidence[-1].value == 1 << 24


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(TAKEN))
    assert cannot_judge(NAME, window(TAKEN | {"steps": answer({}, steps=1)["steps"]}))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_jax"))
    assert finding.gain is not None
    assert finding.gain.expected > 0.2
    assert finding.where[0].function == "train"
    assert is_silent(NAME, recorded(f"{NAME}/after_jax"))


@pytest.mark.parametrize("trace", ["v100_resnet50_workers4", "h100_qwen05b", "jax_gemm_mi300"])
def test_other_traces(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


@pytest.mark.parametrize("once", ["prepare", "step"])
def test_a_large_program_that_is_called_once(once: str) -> None:
    # Also a first call of the step with a larger batch: which of the two goes on is not known.
    programs = [PROGRAM | {"name": f"jit_{once}"}, PROGRAM | {"argument_bytes": 4 << 20}]
    facts = {"jax": {"backend": "cpu", "largest_executables": programs}}
    calls = {"PjitFunction(step)": 1.0, "PjitFunction(prepare)": 0.1}
    taken = answer({Slice.COMPUTE: 0.4, Slice.IDLE_DISPATCH: 0.6}, fmt="xplane", calls=calls)
    assert judge(NAME, window(taken, means={m.PROCESS_LIVE_BYTES: 4 << 20}, facts=facts)) is None


def test_a_trace_that_does_not_show_the_calls() -> None:
    silent = TAKEN | {"calls": []}
    assert cannot_judge(NAME, window(silent, means={m.PROCESS_LIVE_BYTES: 4 << 20}, facts=JAX))


def test_the_line_that_calls_the_program_is_named() -> None:
    lines = (
        SourceLine("/me/train.py", 3, "load", 0.6),
        SourceLine("/me/train.py", 9, "train", 0.4),
    )
    row = Compiled("jax", "step", 1, 10**9, 0, None, "/me/train.py", 9)
    means = {m.PROCESS_LIVE_BYTES: 4 << 20}
    finding = found(NAME, window(TAKEN, means=means, facts=JAX, lines=lines, compiled=(row,)))
    assert [(place.line, place.share) for place in finding.where] == [(9, 0.4)]


def test_without_a_trace_the_samples_show_what_is_handed_over() -> None:
    packages = "/env/lib/python3.11/site-packages/jax/_src"
    puts = CodeLine(f"{packages}/dispatch.py", 598, "_batched_device_put_impl")
    waits = CodeLine(f"{packages}/array.py", 300, "block_until_ready")
    line, loop = (CodeLine("/me/train.py", number, "main") for number in (7, 9))
    facts = {"jax": {"backend": "cpu"}}
    seen = stacks((puts, (line,), 60), (waits, (loop,), 40))
    finding = found(NAME, window(facts=facts, stacks=seen))
    assert [place.line for place in finding.where] == [7]
    assert finding.confidence is Confidence.INFERRED
    assert finding.gain is not None
    # What it hands over meanwhile may be waited for less afterwards.
    assert finding.gain.low < 0.1
    assert finding.gain.high > 0.6
    batch = window(facts=facts, stacks=stacks((puts, (line,), 4), (waits, (loop,), 96)))
    assert not isinstance(judge(NAME, batch), Found)
