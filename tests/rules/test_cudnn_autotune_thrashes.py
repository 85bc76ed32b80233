"""The rule cudnn_autotune_thrashes: no GPU was there to record it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, window
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

NAME = "cudnn_autotune_thrashes"
FIXES = {"pytorch": ("import torch", "assert not torch.backends.cudnn.benchmark")}
MS = 1_000_000


def of(
    *, each_ms: float = 20.0, waits: float = 40.0, waited_ms: float = 15.0, benchmark: bool = True,
    kind: str = "gpu",
) -> Window:  # fmt: skip
    """Return ten steps of 100 ms with two convolutions each, and the events waited for."""
    calls: list[dict[str, Any]] = [
        {"name": "aten::cudnn_convolution", "count": 10, "per_step": 1.0},
        {"name": "aten::convolution_backward", "count": 10, "per_step": 1.0},
    ]
    for call in calls:
        call["total_ns"] = int(10 * each_ms * MS)
    waited = {"name": "cudaEventSynchronize", "count": int(10 * waits), "per_step": waits}
    calls += [waited | {"total_ns": int(10 * waited_ms * MS)}, {
        "name": "aten::relu", "count": 10, "per_step": 1.0, "total_ns": MS
    }]  # fmt: skip
    trace = answer({Slice.COMPUTE: 0.6}, step_ms=100, kind=kind) | {"calls": calls}
    return window(trace, facts={"torch": {"cudnn_benchmark": benchmark, "backend": "cuda"}})


def test_the_host_tries_convolutions_in_each_step() -> None:
    finding = found(NAME, of())
    assert finding.gain is not None
    # The waits of 15 ms surely; 40 ms in convolutions but for their launches at most.
    assert finding.gain.low == pytest.approx(0.15)
    assert finding.gain.high == pytest.approx(0.398)


@pytest.mark.parametrize(
    "job",
    [
        # Launched as ever; or the host waits in a launch, and for no event.
        of(each_ms=0.05),
        of(waits=1.0),
        of(benchmark=False),
        of(kind="cpu"),
    ],
)
def test_jobs_without_the_fault(job: Window) -> None:
    assert judge(NAME, job) is None


def test_what_cannot_be_judged() -> None:
    assert cannot_judge(NAME, window())
    said = {"torch": {"cudnn_benchmark": True, "backend": "cuda"}}
    assert cannot_judge(NAME, window(facts=said))
    short = answer({Slice.COMPUTE: 0.6}, steps=2, kind="gpu", calls={"aten::cudnn_convolution": 1})
    assert cannot_judge(NAME, window(short, facts=said))
    assert judge(NAME, window(facts={"jax": {"version": "0.10"}})) is None
