"""Whose line a slice is, in recorded traces."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from tests.traces.placing import budget_of, hotspots, of_slices
from tests.traces.real import path_of
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Site, Trace
from whyidle.monitor.traces.where.hotspots import Hotspot, why_none

RECORDED = Path(__file__).parent.parent / "data" / "traces" / "kineto"


def read(path: Path) -> tuple[Trace, list[Hotspot]]:
    trace = load(path)
    budgets = [budget_of(trace, at) for at in range(len(trace.devices))]
    found = hotspots(trace, budgets)
    total = sum((of_slices(budget) for budget in budgets), Counter[Slice]())
    owned: Counter[Slice] = Counter()
    for hotspot in found:
        owned[hotspot.slice] += hotspot.ticks
    assert owned <= total
    return trace, found


def top(found: list[Hotspot], which: Slice) -> Hotspot:
    return next(p for p in found if p.slice == which)


class TestRecorded:
    def test_the_loader_of_a_training_loop_is_found_down_to_its_samples(self) -> None:
        _, found = read(RECORDED / "cpu_steps_stacks.json.gz")
        of_input = {p.site.function for p in found if p.slice == Slice.IDLE_INPUT}
        assert {"__getitem__", "augment"} <= of_input
        assert {p.site.file for p in found} == {"make_kineto.py"}
        step = top(found, Slice.IDLE_DISPATCH)
        assert step.site.function == "train_step"
        assert any("backward" in call.name for call in step.calls)

    def test_a_frame_has_the_first_line_of_its_function(self) -> None:
        _, found = read(RECORDED / "cpu_steps_stacks.json.gz")
        code = (RECORDED.parent / "make_kineto.py").read_text().splitlines()
        for site in {p.site for p in found if p.site.function not in ("train", "main", "<module>")}:
            assert f"def {site.function}(" in code[site.line - 1]
        # It ran already when the profiler began, within this line.
        (train,) = {p.site.line for p in found if p.site.function == "train"}
        assert code[train - 1].strip() == "profiler.step()"

    def test_without_frames_there_is_a_reason(self) -> None:
        trace, found = read(RECORDED / "cpu_plain.json.gz")
        assert found == []
        assert "with_stack=True" in why_none(trace)

    @pytest.mark.parametrize("name", ["cpu_steps_stacks", "cpu_plain"])
    def test_nothing_of_the_machine_is_in_it(self, name: str) -> None:
        text = gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes())
        assert len((RECORDED / f"{name}.json.gz").read_bytes()) < 60_000
        assert not any(b'"' + folder in text for folder in (b"/work", b"/root", b"/tmp", b"/home"))


class TestReal:
    def test_a_script_in_one_function_is_told_apart_by_its_calls(self) -> None:
        _, found = read(path_of("mi300_ddp_resnet18"))
        hotspot = top(found, Slice.IDLE_ALLOC)
        assert hotspot.site == Site("train_single_gpu.py", 41, "main")
        assert hotspot.share > 0.99
        assert [call.name.split(": ")[-1] for call in hotspot.calls[:2]] == ["backward", "ResNet_0"]

    def test_a_package_of_the_users_is_found_below_its_frameworks(self) -> None:
        _, found = read(path_of("h100_owlv2"))
        assert {p.site.function for p in found} == {"run_on_input"}

    def test_call_stacks_tell_the_very_line(self) -> None:
        _, found = read(path_of("v100_resnet50_workers0"))
        assert all(p.exact_line and p.source == "call stack" for p in found)
        # The loop over the loader, the forward pass, the copy, and what autograd does for backward.
        assert top(found, Slice.IDLE_INPUT).site.line == 42
        assert top(found, Slice.IDLE_DISPATCH).site.line == 46
        assert top(found, Slice.EXPOSED_COPY).site.line == 44
        assert top(found, Slice.COMPUTE).site.line == 50

    def test_a_compiled_program_tells_the_very_line_and_python_the_function(self) -> None:
        _, found = read(path_of("jax_gemm_mi300"))
        file = "/workspace/traces/generate_gemm_trace.py"
        matmul = top(found, Slice.COMPUTE)
        assert (matmul.site, matmul.source) == (Site(file, 37, "run_gemms"), "hlo")
        assert matmul.exact_line
        dispatch = top(found, Slice.IDLE_DISPATCH)
        assert (dispatch.site, dispatch.source) == (Site(file, 31, "run_gemms"), "frames")
        assert not dispatch.exact_line

    def test_frames_of_jax_alone_are_nobodys(self) -> None:
        _, found = read(path_of("jax_conv_8gpu_mi300"))
        assert {p.source for p in found} == {"hlo"}
