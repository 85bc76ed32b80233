"""The rule many_small_copies; those of a GPU are windows by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, judge, stacks, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Found
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.window import Window

NAME = "many_small_copies"
FIXES = {
    "jax": (
        "import jax\nimport numpy as np\nsamples = [np.full(2, float(i)) for i in range(4)]",
        "assert batch.shape == (4, 2)",
    ),
    "pytorch": (
        "import torch\ndevice = 'cpu'\nsamples = [torch.full((2,), float(i)) for i in range(4)]",
        "assert batch.shape == (4, 2)",
    ),
}
JAX: dict[str, Any] = {"jax": {"backend": "cpu"}}


def on_gpu(number: int, size: int, exposed: float = 0.2, **more: Any) -> dict[str, Any]:
    """Return a trace in which each of ten steps copies so many times so many bytes."""
    copy = {"direction": "host to device", "memory": "pageable", "count": 10 * number,
            "bytes": 10 * number * size, "total_ns": 20_000_000}  # fmt: skip
    calls = [{"name": "cudaMemcpyAsync", "count": 10 * number, "total_ns": 15_000_000,
              "per_step": float(number)}]  # fmt: skip
    slices = {Slice.COMPUTE: 0.4, Slice.EXPOSED_COPY: exposed, Slice.IDLE_DISPATCH: 0.6 - exposed}
    details = {Slice.EXPOSED_COPY: {"host to device, pageable": exposed}}
    found = answer(slices, kind="gpu", details=details, **more)
    return found | {"copies": [copy], "calls": calls}


def test_samples_that_go_to_the_gpu_one_by_one() -> None:
    finding = found(NAME, window(on_gpu(64, 3 << 10), kind="file"))
    assert finding.gain is not None
    # Half of what only copies take, and at most that and the calls for them.
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.098, 0.344), abs=0.002)
    assert finding.evidence[0].value == 64


def test_columns_of_a_table_that_go_to_the_gpu_one_by_one() -> None:
    assert found(NAME, window(on_gpu(26, 64 << 10), kind="file")).slice is Slice.EXPOSED_COPY


@pytest.mark.parametrize(
    "trace",
    [
        # A batch of a transformer: ids, mask, types, positions, labels.
        on_gpu(5, 32 << 10),
        # Many, and each worth its call.
        on_gpu(32, 4 << 20),
        on_gpu(64, 3 << 10, exposed=0.0) | {"calls": []},
    ],
)
def test_copies_that_are_as_they_should_be(trace: dict[str, Any]) -> None:
    assert judge(NAME, window(trace, kind="file")) is None


@pytest.mark.parametrize("trace", ["v100_resnet50_workers4", "h100_qwen05b", "a100_nccl_small"])
def test_real_jobs_without_them(trace: str) -> None:
    assert not isinstance(judge(NAME, traced(trace)), Found)


PUT = CodeLine(
    "/v/lib/python3.11/site-packages/jax/_src/dispatch.py", 9, "_batched_device_put_impl"
)
PUTS = CodeLine("/job/train.py", 30, "load")
WORK = CodeLine("/job/train.py", 34, "main")


def of_jax(
    puts: float, share: float, step_s: float = 0.01, call_s: float = 8e-6, works: float = 0.3
) -> Window:
    """Return a window with so many copies a step, and so much of the main thread at them."""
    calls = [{"name": "DevicePut", "count": int(10 * puts), "per_step": puts,
              "total_ns": int(10 * puts * call_s * 1e9)}]  # fmt: skip
    trace = answer({Slice.COMPUTE: works, Slice.IDLE_DISPATCH: 1 - works}, fmt="xplane",
                   step_ms=1000 * step_s)  # fmt: skip
    samples = stacks((PUT, (PUTS,), 1000 * share), (WORK, (), 1000 * (1 - share)))
    more = {"stacks": samples} if share else {}
    return window(trace | {"calls": calls}, facts=JAX, inside=True, **more)


def test_arrays_of_jax_that_are_put_one_by_one() -> None:
    finding = found(NAME, of_jax(64, 0.8, works=0.1))
    assert finding.gain is not None
    assert 0.2 < finding.gain.low < finding.gain.high < 0.85
    assert finding.confidence is Confidence.INFERRED
    assert [(place.line, place.function) for place in finding.where] == [(30, "load")]


def test_beside_a_device_that_works_meanwhile_little_comes_back() -> None:
    finding = found(NAME, of_jax(64, 0.4, works=0.9))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.1)


def test_without_samples_the_trace_bounds_it() -> None:
    finding = found(NAME, of_jax(64, 0.0))
    assert finding.gain is not None
    # Their calls take 5% of the step, and Python around them 22%.
    assert (finding.gain.low, finding.gain.high) == pytest.approx((0.0, 0.265), abs=0.002)


def test_the_agents_count_where_there_is_no_trace() -> None:
    samples = stacks((PUT, (PUTS,), 400), (WORK, (), 600))
    means = {m.PROCESS_DEVICE_PUTS: 5000.0, m.JOB_STEPS: 100.0}
    assert found(NAME, window(means=means, facts=JAX, stacks=samples, inside=True)).gain is not None


@pytest.mark.parametrize(
    "job",
    [
        # Images and labels.
        of_jax(2, 0.1),
        # Large arrays: another fault, or none.
        of_jax(20, 0.3, call_s=1e-3),
        # Many in a step of two seconds.
        of_jax(64, 0.0, step_s=2.0),
    ],
)
def test_jobs_of_jax_that_copy_what_they_need(job: Window) -> None:
    assert judge(NAME, job) is None


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(facts=JAX))
    assert cannot_judge(NAME, window(facts={"torch": {"backend": "cuda"}}))
    assert cannot_judge(NAME, window(facts={"torch": {"backend": "cuda"}}, inside=True))
