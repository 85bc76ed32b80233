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
    "pytorch": (
        """
import torch
batch_size, longest, device, sums = 2, 8, "cpu", []
batches = [[torch.ones(3), torch.ones(5)], [torch.ones(1), torch.ones(2)]]
def train(x): sums.append((x.sum().item(), x.data_ptr()))
""",
        "assert [s for s, _ in sums] == [8.0, 3.0] and len({at for _, at in sums}) == 1",
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


def on_cpu(pages_per_step: float, **job: object):  # type: ignore[no-untyped-def]
    means = {m.JOB_MINOR_FAULTS: pages_per_step * 20, m.JOB_STEPS: 20.0, m.JOB_CPU: 1.0}
    return window(means=means, facts=TORCH, **job)


def in_julia(allocated: float | None, pages: float, cores: float = 1.0) -> Window:
    means = {m.JOB_MINOR_FAULTS: pages, m.JOB_CPU: cores}
    if allocated is not None:
        means[m.PROCESS_ALLOCATED] = allocated
    return window(means=means, facts={"julia": {"backend": "cpu"}})


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


def test_a_step_that_takes_much_new_memory() -> None:
    finding = found(NAME, on_cpu(8_192))
    assert finding.gain is not None
    assert finding.gain.low == pytest.approx(8_192 * 20 * 0.8e-6)
    assert finding.gain.high == pytest.approx(8_192 * 20 * 2.0e-6)
    assert finding.evidence[0].value == 8_192 * 4096


def test_it_is_no_more_than_the_lines_that_make_tensors_take(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = torch.zeros(9)\nloss.backward()\n")
    lines = (SourceLine(str(file), 2, "train", 0.8), SourceLine(str(file), 1, "train", 0.2))
    finding = found(NAME, on_cpu(8_192, lines=lines, looks=10**9))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.2, abs=0.001)


def test_pages_of_ordinary_training() -> None:
    assert is_silent(NAME, on_cpu(1200))


def test_pages_that_are_kept_are_another_fault() -> None:
    rising = Trend(1e9, 60e9, 16_384 * 20 * 4096, 1.0)
    assert is_silent(NAME, on_cpu(16_384, trends={m.JOB_RSS: rising}))


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
    without_steps = {m.JOB_MINOR_FAULTS: 1e6, m.JOB_CPU: 1.0}
    assert cannot_judge(NAME, window(facts=TORCH, means=without_steps))


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


def test_only_lines_that_make_tensors_are_named(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = torch.zeros(9)\nloss.backward()\n")
    lines = (SourceLine(str(file), 2, "train", 0.5), SourceLine(str(file), 1, "train", 0.5))
    assert [place.line for place in found(NAME, on_cpu(16_384, lines=lines)).where] == [1]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_arrays_in_huge_pages_show_in_the_samples(tmp_path: Path, framework: str) -> None:
    file = tmp_path / "train.py"
    file.write_text("mask = np.ones((64, 100_000))\nloss = step(mask)\nn = np.zeros(3)\n")
    makes, steps = (CodeLine(str(file), line, "train") for line in (1, 2))
    ones = CodeLine("/env/lib/python3.11/site-packages/numpy/_core/numeric.py", 233, "ones")
    facts = {framework: {"backend": "cpu"}}
    much = stacks((ones, (makes,), 300), (steps, (steps,), 700))
    finding = found(NAME, window(facts=facts, stacks=much))
    assert [place.line for place in finding.where] == [1]
    assert finding.gain is not None
    assert finding.gain.low < 0.15
    assert finding.gain.high > 0.3
    little = stacks((ones, (makes,), 50), (steps, (steps,), 950))
    assert not isinstance(judge(NAME, window(facts=facts, stacks=little)), Found)


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
