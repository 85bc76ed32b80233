"""Real traces of real GPUs against figures that were computed independently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.traces.kineto_text import plain
from tests.traces.real import KINETO, TRUTHS, path_of
from whyidle.monitor.traces import kineto
from whyidle.monitor.traces.causes import COPIES, Cause
from whyidle.monitor.traces.model import Ops
from whyidle.monitor.traces.opening import identify


def busy(ops: Ops) -> int:
    """Return the length of the union; the operations are sorted by start."""
    reached = np.maximum.accumulate(np.r_[ops.start[0], ops.end[:-1]])
    return int(np.maximum(ops.end - np.maximum(ops.start, reached), 0).sum())


@pytest.mark.parametrize("name", KINETO)
def test_counts_and_unions_are_the_truth(name: str) -> None:
    truth: dict[str, Any] = TRUTHS[name]
    trace = kineto.read(identify(path_of(name)))
    assert trace.events == truth["events"]
    assert trace.warnings == []
    assert [d.index for d in trace.devices] == list(truth["devices"])
    for device, wanted in zip(trace.devices, truth["devices"].values(), strict=True):
        ops = device.ops
        kinds = ops.kind
        assert int(ops.end.max() - ops.start.min()) == wanted["span_ns"]
        assert busy(ops) == wanted["busy_ns"]
        assert int((kinds == Cause.COMM).sum()) == wanted["n_comm"]
        assert (
            int((kinds < COPIES.start).sum() - (kinds == Cause.COMM).sum()) == (wanted["n_kernels"])
        )
        assert int((kinds == Cause.MEMSET).sum()) == wanted["n_memset"]
        copies = ops.take((kinds >= COPIES.start) & (kinds != Cause.MEMSET))
        assert len(copies) == wanted["n_memcpy"]


@pytest.mark.parametrize("name", KINETO)
def test_steps_are_where_the_file_has_them(name: str) -> None:
    truth: dict[str, Any] = TRUTHS[name]
    trace = kineto.read(identify(path_of(name)))
    wanted = truth.get("profiler_steps", [])
    assert (trace.marks.end - trace.marks.start).tolist() == [w["dur_ns"] for w in wanted]
    assert [trace.names[i] for i in trace.marks.name] == [w["name"] for w in wanted]


@pytest.mark.parametrize("chunk", [30_011, 400_000])
def test_a_real_trace_is_the_same_however_it_is_cut(chunk: int) -> None:
    source = identify(path_of("h100_qwen05b"))
    assert plain(kineto.read(source, chunk=chunk)) == plain(kineto.read(source))
