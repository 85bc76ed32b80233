"""The rule allocation_churn."""

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
from whyidle.monitor.core.finding import Found, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.recorded import SeenGpu, Trend
from whyidle.monitor.signals.window import Window

NAME = "allocation_churn"
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    **dict.fromkeys(
        ("pytorch", "jax"),
        (
            """
import numpy as np
batch_size, longest, batches, sums = 2, 3, [1, 2], []
def train(rows, mask):
    sums.append((mask.sum(), mask.ctypes.data))
    mask[:] = 0
""",
            "assert [s for s, _ in sums] == [6.0, 6.0] and len({at for _, at in sums}) == 1",
        ),
    ),
    "flux": (
        """
weights, seen = [1.0 -1.0; 0.0 2.0], Any[]
batches = [[1.0 2.0; 3.0 4.0], [5.0 6.0; 7.0 8.0]]
train(x) = push!(seen, (sum(x), pointer(x)))
""",
        "@assert first.(seen) == [14.0, 30.0] && seen[1][2] == seen[2][2]",
    ),
}
TORCH = {"torch": {"backend": "cpu"}}


# What a tenth of the CPU time goes into, at the least that a page costs.
PAGES = 0.1 / 0.8e-6


def on_cpu(pages: float, cores: float = 1.0, facts=TORCH, **job: object):  # type: ignore[no-untyped-def]
    return window(means={m.JOB_MINOR_FAULTS: pages, m.JOB_CPU: cores}, facts=facts, **job)


def at(file: Path, *shares: float) -> tuple[SourceLine, ...]:
    return tuple(SourceLine(str(file), n, "train", each) for n, each in enumerate(shares, 1))


def in_julia(allocated: float | None, pages: float, cores: float = 1.0) -> Window:
    means = {m.JOB_MINOR_FAULTS: pages, m.JOB_CPU: cores}
    if allocated is not None:
        means[m.PROCESS_ALLOCATED] = allocated
    return window(means=means, facts={"julia": {"backend": "cpu"}})


def test_pages_take_no_more_than_the_time_in_the_kernel() -> None:
    pages = {m.JOB_MINOR_FAULTS: 500_000.0, m.JOB_CPU: 2.0}
    torch = {"facts": TORCH}
    by_pages = found(NAME, window(means=pages, **torch)).gain
    by_kernel = found(NAME, window(means=pages | {m.JOB_KERNEL: 0.9}, **torch)).gain
    assert by_pages is not None
    assert by_kernel is not None
    assert (by_pages.low, by_pages.high) == pytest.approx((0.2, 0.625))
    assert (by_kernel.low, by_kernel.high) == pytest.approx((0.2, 0.45))
    # Pages that stay mapped from a file are not cleared.
    assert is_silent(NAME, window(means=pages | {m.JOB_KERNEL: 0.05}, **torch))


def test_a_julia_that_takes_new_memory_all_the_time() -> None:
    finding = found(NAME, in_julia(1e9, 200_000))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(200_000 * 0.8e-6)
    assert finding.evidence[0].source == "procfs"


def test_a_julia_that_reuses_its_memory() -> None:
    # Small objects come out of pages that it has, whatever their number.
    assert judge(NAME, in_julia(2e9, 5_000)) is None
    # Pages of a file that is read are none of the collector's.
    assert judge(NAME, in_julia(1e6, 200_000)) is None
    # Spread over many cores the same costs the step less.
    assert judge(NAME, in_julia(1e9, 200_000, cores=8.0)) is None


def test_a_julia_whose_version_is_not_known_is_not_judged() -> None:
    assert cannot_judge(NAME, in_julia(None, 200_000))


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", None])
def test_pages_that_the_kernel_hands_out_anew(framework: str | None) -> None:
    facts = {} if framework is None else {framework: {"backend": "cpu"}}
    for cores in (1.0, 1.6):
        finding = found(NAME, on_cpu(PAGES * cores, cores, facts))
        assert finding.gain is not None
        assert finding.gain.low == pytest.approx(0.1)
        assert finding.gain.high == pytest.approx(0.1 * 2.5 / 0.8)
        assert finding.fixes is not None
        assert all(
            "MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0" in x.text for x in finding.fixes.values()
        )


# Pages and cores, as this machine counted them: kernel time over CPU time before, and what the
# advice gave back of it.
@pytest.mark.parametrize(
    ("pages", "cores", "gave"),
    [
        pytest.param(121_752, 1.0, 1 - 122.0 / 161.6, id="objax: a ResNet in one compiled step"),
        pytest.param(236_790, 1.0, 1 - 62.4 / 121.3, id="Keras on JAX: convolutions"),
        pytest.param(429_400, 1.0, 1 - 5.2 / 37.3, id="JAX: one large array"),
        pytest.param(270_600, 1.0, 1 - 71.9 / 115.8, id="JAX: a scan over 200 steps"),
        pytest.param(260_900, 1.0, 1 - 7.3 / 14.9, id="NumPy: arrays of 4 MB"),
    ],
)
def test_the_range_holds_what_was_measured(pages: float, cores: float, gave: float) -> None:
    gain = found(NAME, on_cpu(pages, cores)).gain
    assert gain is not None
    assert gain.low <= gave <= gain.high


@pytest.mark.parametrize(
    ("pages", "cores"),
    [
        pytest.param(24_000, 1.0, id="ordinary training"),
        pytest.param(5, 1.0, id="files read into one buffer, or threads that hand on a lock"),
        pytest.param(33_000, 1.0, id="a file that is mapped anew in each step"),
        pytest.param(PAGES, 8.0, id="spread over many cores"),
    ],
)
def test_healthy_jobs(pages: float, cores: float) -> None:
    assert is_silent(NAME, on_cpu(pages, cores))


def test_pages_that_are_kept_are_another_fault() -> None:
    rising = Trend(1e9, 60e9, PAGES * 4096, 1.0)
    assert is_silent(NAME, on_cpu(PAGES, trends={m.JOB_RSS: rising}))
    # As a job starts it takes pages that stay, and some that do not.
    assert is_silent(NAME, on_cpu(1.4 * PAGES, trends={m.JOB_RSS: rising}))
    assert found(NAME, on_cpu(2 * PAGES, trends={m.JOB_RSS: rising})).gain is not None


def test_a_gpu_that_waits_for_the_allocator() -> None:
    finding = found(NAME, traced("mi300_ddp_resnet18"))
    assert finding.gain is not None
    assert finding.slice is Slice.IDLE_ALLOC
    assert finding.gain.high > 0.8
    assert any("allocations" in each.name for each in finding.evidence)


def test_a_job_that_has_only_started() -> None:
    assert cannot_judge(NAME, traced("a100_alexnet"))


@pytest.mark.parametrize("trace", ["h100_qwen05b", "v100_resnet50_workers4", "a100_nccl_small"])
def test_traces_whose_memory_is_cached(trace: str) -> None:
    assert is_silent(NAME, traced(trace))


def test_nothing_measured() -> None:
    assert cannot_judge(NAME, window(facts=TORCH))
    assert cannot_judge(NAME, window(answer({Slice.COMPUTE: 1.0}), facts=TORCH))


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded(f"{NAME}/before_torch"))
    assert finding.gain is not None
    # Measured: 2.3 times as fast once, 3.9 times when this was recorded.
    low, high = finding.gain.speedup
    assert low < 2.3
    assert high > 3.9
    assert finding.where[0].function == "train"
    assert is_silent(NAME, recorded(f"{NAME}/after_torch"))


def test_on_a_gpu_the_advice_is_of_the_caching_allocator() -> None:
    finding = found(NAME, traced("mi300_ddp_resnet18"))
    assert finding.fixes is not None
    fix = finding.fixes["pytorch"]
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in fix.text
    torch = pytest.importorskip("torch")
    exec(fix.code, {"torch": torch, "batches": [1], "train": print})


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_arrays_in_huge_pages_show_in_the_samples(tmp_path: Path, framework: str) -> None:
    file = tmp_path / "train.py"
    file.write_text("mask = np.ones((64, 100_000))\nloss = step(mask)\nn = np.zeros(3)\n")
    facts = {framework: {"backend": "cpu"}}
    finding = found(NAME, window(facts=facts, lines=at(file, 0.3, 0.7), looks=1000))
    assert [place.line for place in finding.where] == [1]
    assert finding.gain is not None
    assert finding.gain.low < 0.15
    assert finding.gain.high > 0.3
    little = window(facts=facts, lines=at(file, 0.05, 0.95), looks=1000)
    assert not isinstance(judge(NAME, little), Found)


def test_lines_know_the_cure_of_what_they_take(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("mask = torch.ones(9)\nloss.backward()\n")
    lines = at(file, 0.3, 0.7)
    some = on_cpu(PAGES, lines=lines, looks=1000)
    assert [place.line for place in found(NAME, some).where] == [1]
    # All the rest is made by operators.
    assert not found(NAME, on_cpu(5 * PAGES, lines=lines, looks=1000)).where


@pytest.mark.parametrize(("used", "least"), [(0.1, 0.1), (1.0, 0.0)])
def test_without_a_trace_the_line_that_empties_the_cache_is_seen(
    used: float, least: float, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text("def train():\n    step()\n    torch.cuda.empty_cache()\n    model(x)\n")
    empties, steps = (CodeLine(str(file), line, "train") for line in (3, 4))
    torchs = CodeLine("/venv/lib/python3.11/site-packages/torch/cuda/memory.py", 5, "empty_cache")
    samples = stacks((torchs, (empties,), 300), (steps, (steps,), 700))
    gpu = SeenGpu("0", "NVIDIA H100", owned=True, means={m.GPU_UTILISATION: used})
    facts = {"torch": {"backend": "cuda"}}
    finding = found(NAME, window(stacks=samples, facts=facts, gpus=(gpu,), inside=True))
    assert [place.line for place in finding.where] == [3]
    assert finding.gain is not None
    assert finding.gain.low >= least
    assert 0.3 <= finding.gain.high < 0.4
    busy = window(stacks=stacks((steps, (steps,), 900)), facts=facts, gpus=(gpu,), inside=True)
    assert cannot_judge(NAME, busy)
