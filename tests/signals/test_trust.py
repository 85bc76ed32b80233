"""What is believed of a trace beside the counters of the GPU: windows by hand, none recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.windows import answer, traced, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.signals.gain import busy
from whyidle.monitor.signals.portable import dump, load
from whyidle.monitor.signals.recorded import GpuUser, SeenGpu
from whyidle.monitor.signals.trust import HIDDEN, NOT_IN_TRACE, OUTSIDE
from whyidle.monitor.signals.window import Window

# 26% idle in the trace, against 99% that the counters see: a report of CUDA graphs.
FALSE_IDLE = {Slice.COMPUTE: 0.74, Slice.IDLE_DISPATCH: 0.20, Slice.IDLE_SYNC: 0.06}
GRAPHS = {"graph_launches": 1200, "graph_launches_shown": 0, "dropped": 0}
NAMES = {"util": m.GPU_UTILISATION, "engine": m.GPU_ENGINE_ACTIVITY, "sm": m.GPU_SM_ACTIVITY}


def gpu(*users: GpuUser, owned: bool = True, **counted: float) -> SeenGpu:
    means = {NAMES[name]: value for name, value in counted.items()}
    return SeenGpu("0", "NVIDIA H100", owned=owned, means=means, users=users)


def of(
    slices: dict[Slice, float], *gpus: SeenGpu, missing: dict[str, int] | None = None, **more: Any
) -> Window:
    extra = {} if missing is None else {"missing": missing}
    means = {m.JOB_STEPS: 10.0}
    return window(answer(slices, kind="gpu", **extra, **more), gpus=gpus, means=means)


def shares(found: Window) -> dict[Slice, int]:
    assert found.budget is not None
    total = sum(found.budget["slices"].values())
    percent = {part: round(100 * found.budget["slices"][part] / total) for part in Slice}
    return {part: share for part, share in percent.items() if share}


def test_false_idle_under_cuda_graphs_goes_by_the_counters() -> None:
    found = of(FALSE_IDLE, gpu(engine=0.99, sm=0.61, util=1.0), missing=GRAPHS)
    assert shares(found) == {Slice.COMPUTE: 99, Slice.IDLE_DISPATCH: 1}
    assert found.budget is not None
    assert found.budget["details"][Slice.COMPUTE][NOT_IN_TRACE] == pytest.approx(25_000_000)
    (said,) = found.warnings
    assert "idle for 26% of the time" in said
    assert "at work for 99%" in said
    assert "1,200 of 1,200 launches of CUDA graphs" in said


def test_no_finding_rests_on_idle_time_that_is_none() -> None:
    launching = {
        "operations": 4000, "launched": 4000, "calls": 4000, "graph_operations": 0,
        "started_before_launch": 0, "calls_per_second": 4e4, "calls_per_step": 400.0,
        "call_median_ns": 5000, "delay_median_ns": 1000, "delay_p95_ns": 2000, "unknown": {},
    }  # fmt: skip
    kernels = {
        "count": 4000, "total_ns": 70_000_000, "tensor_core_share": None, "dtypes_ns": {},
        "short": {"below_ns": 10_000, "count": 100, "total_ns": 1}, "families_ns": {},
    }  # fmt: skip
    idle = {Slice.COMPUTE: 0.5, Slice.IDLE_DISPATCH: 0.5}
    more = {"launching": launching, "kernels": kernels}
    believed = diagnose(of(idle, gpu(engine=0.5, util=0.6), **more))
    assert "eager_launch_bound" in [each.rule.id for each in believed.findings]
    doubted = diagnose(of(idle, gpu(engine=0.97, util=1.0), **more))
    assert [each.rule.id for each in doubted.findings] == []
    assert as_json(doubted).warnings == doubted.window.warnings != []


def test_what_is_left_of_the_idle_time_keeps_its_causes() -> None:
    found = of({Slice.COMPUTE: 0.2, Slice.IDLE_INPUT: 0.6, Slice.IDLE_GC: 0.2}, gpu(engine=0.6))
    assert shares(found) == {Slice.COMPUTE: 60, Slice.IDLE_INPUT: 30, Slice.IDLE_GC: 10}


def test_a_trace_that_agrees_is_left_as_it_is() -> None:
    for some in (gpu(engine=0.70, util=1.0), gpu(sm=0.4, util=0.8), gpu(util=0.9)):
        found = of(FALSE_IDLE, some)
        assert shares(found)[Slice.COMPUTE] == 74
        assert found.warnings == []


def test_multiprocessors_at_work_prove_more_work_than_a_trace_shows() -> None:
    # An older recording has no counter of the engine: what cannot be less is believed.
    found = of({Slice.COMPUTE: 0.3, Slice.IDLE_DISPATCH: 0.7}, gpu(sm=0.8, util=1.0))
    assert shares(found)[Slice.COMPUTE] == 80


def test_the_utilisation_alone_is_too_coarse_to_overrule_a_trace() -> None:
    # A loop that launches small kernels reads 100%, and its gaps are real.
    eager = {Slice.COMPUTE: 0.4, Slice.IDLE_DISPATCH: 0.6}
    found = of(eager, gpu(util=1.0))
    assert shares(found)[Slice.COMPUTE] == 40
    assert "coarse" in found.warnings[0]


@pytest.mark.parametrize(
    ("missing", "why"),
    [(GRAPHS, "CUDA graphs"), ({**GRAPHS, "graph_launches": 0, "dropped": 9000}, "9,000 records")],
)
def test_the_utilisation_decides_where_the_trace_lacks_work(
    missing: dict[str, int], why: str
) -> None:
    found = of(FALSE_IDLE, gpu(util=0.99), missing=missing, events=20_000)
    assert shares(found)[Slice.COMPUTE] == 99
    assert why in found.warnings[0]


def test_graphs_whose_kernels_are_there_raise_no_doubt() -> None:
    shown = {"graph_launches": 1200, "graph_launches_shown": 1190, "dropped": 0}
    found = of(FALSE_IDLE, gpu(util=0.99), missing=shown)
    assert shares(found)[Slice.COMPUTE] == 74


@pytest.mark.parametrize("name", ["v100_2rank_nccl", "h100_qwen05b", "jax_gemm_mi300"])
def test_real_traces_beside_counters_that_say_the_same_and_more(name: str) -> None:
    shown = traced(name)
    assert shown.trace is not None
    works = busy(shown.trace)
    for engine, is_doubted in ((works, False), (max(0.0, works - 0.1), False), (1.0, works < 0.9)):
        found = replace(shown, job=replace(shown.job, seconds=60.0, gpus=(gpu(engine=engine),)))
        assert (found.warnings != shown.warnings) == is_doubted
        assert (found.budget != shown.budget) == is_doubted


def test_without_counters_a_trace_that_lacks_work_says_nothing_of_idle_time() -> None:
    trace = answer(FALSE_IDLE, kind="gpu", missing=GRAPHS)
    found = window(trace, kind="file")
    assert shares(found) == {Slice.COMPUTE: 74, Slice.IDLE_UNKNOWN: 26}
    assert found.budget is not None
    assert list(found.budget["details"][Slice.IDLE_UNKNOWN]) == [HIDDEN]


def test_jax_runs_no_graphs_while_it_is_profiled() -> None:
    found = of(FALSE_IDLE, gpu(engine=0.97, util=1.0), fmt="xplane")
    assert "CUDA graphs" in found.warnings[0]


@pytest.mark.parametrize(
    ("then", "said"),
    [(0.96, "they say 96%, it lacks work"), (0.75, "they say 75%, they see that idle time, too")],
)
def test_the_counters_of_its_own_seconds_tell_a_lack_from_an_unusual_moment(
    then: float, said: str
) -> None:
    found = of(FALSE_IDLE, gpu(engine=0.97, util=1.0))
    (trace,) = found.traces
    found = replace(found, traces=(replace(trace, then=({m.GPU_ENGINE_ACTIVITY: then},)),))
    assert f"in its own seconds {said}" in found.warnings[0]
    assert load(dump(found)).warnings == found.warnings


def test_a_trace_of_a_busier_moment() -> None:
    found = of({Slice.COMPUTE: 0.9, Slice.IDLE_GC: 0.1}, gpu(engine=0.07, util=0.1))
    assert shares(found) == {Slice.COMPUTE: 7, Slice.IDLE_GC: 10, Slice.IDLE_UNKNOWN: 83}
    assert found.budget is not None
    assert OUTSIDE in found.budget["details"][Slice.IDLE_UNKNOWN]
    assert "busier moment" in found.warnings[0]


def test_what_neighbours_do_is_no_work_of_the_jobs() -> None:
    ours, theirs = GpuUser(1, "train.py", True, sm_share=0.7), GpuUser(2, "x", False, sm_share=0.25)
    found = of(FALSE_IDLE, gpu(ours, theirs, engine=0.97))
    assert shares(found)[Slice.COMPUTE] == 74
    unknown = GpuUser(2, "x", False)
    assert of(FALSE_IDLE, gpu(ours, unknown, engine=0.97)).warnings == []


def test_of_several_gpus_the_trace_may_be_of_any() -> None:
    found = of(FALSE_IDLE, gpu(engine=0.99), gpu(engine=0.70))
    assert found.warnings == []
    # Another job's GPU says nothing of this one.
    assert of(FALSE_IDLE, gpu(engine=0.99, owned=False)).warnings == []


def test_a_trace_of_a_cpu_is_none_of_the_gpus_business() -> None:
    found = window(answer(FALSE_IDLE), gpus=(gpu(engine=0.99),))
    assert shares(found)[Slice.COMPUTE] == 74


def test_lines_of_code_shrink_with_their_slice() -> None:
    place = {
        "slice": "idle_dispatch", "file": "/job/train.py", "line": 3, "function": "f", "ns": 1,
        "share": 0.2, "source": "frame", "exact_line": True, "calls": [],
    }  # fmt: skip
    found = of(FALSE_IDLE, gpu(engine=0.987), where=[place])
    assert found.trace is not None
    (left,) = found.trace.places(Slice.IDLE_DISPATCH)
    assert left["share"] == pytest.approx(0.2 * 0.05, rel=0.01)


def test_the_parts_still_add_up() -> None:
    for works in (0.0, 0.33, 0.99, 1.0):
        found = of(FALSE_IDLE, gpu(engine=works), details={Slice.IDLE_SYNC: {"a": 0.05, "b": 0.01}})
        assert found.budget is not None
        assert sum(found.budget["slices"].values()) == found.budget["total_ns"]
        for name, labels in found.budget["details"].items():
            assert sum(labels.values()) <= found.budget["slices"][name] + 1
