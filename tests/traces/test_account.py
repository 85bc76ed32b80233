"""Where the time of a device goes: shown by hand-made traces, and proved by generated ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from tests.traces import placing
from tests.traces.building import Op, Span, a_trace
from whyidle.monitor.traces.analysis import analyse_trace
from whyidle.monitor.traces.budgets.budget import Budget, Segments
from whyidle.monitor.traces.budgets.totals import totals
from whyidle.monitor.traces.causes import COPIES, DEVICE_CAUSES, HOST_CAUSES, Cause
from whyidle.monitor.traces.corrections import correct
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.warnings import trace_warnings

MS = 1_000_000


def budget_of(trace: Trace, window: tuple[int, int] | None = None) -> Budget:
    correct(trace)
    return placing.budget_of(trace, window=window)


def ticks_by_cause(budget: Budget) -> dict[str, int]:
    s = budget.segments
    sums = budget.sums(s.start[:1], s.end[-1:])
    return {cause.name: ticks for cause, ticks in sums.items() if ticks}


def story(segments: Segments) -> list[tuple[int, int, str]]:
    return [
        (a, b, Cause(c).name)
        for a, b, c in zip(
            segments.start.tolist(), segments.end.tolist(), segments.cause.tolist(), strict=True
        )
    ]


def test_a_late_launch_is_the_hosts_and_what_follows_is_the_queues() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (50, 60, Cause.KERNEL, 2)],
        spans=[
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (10, 48, Cause.OP, 0, None),
            (40, 45, Cause.DRIVER_CALL, 0, 2),
        ],
    )
    assert story(budget_of(trace).segments) == [
        (0, 10, "KERNEL"),
        (10, 40, "OP"),
        (40, 45, "DRIVER_CALL"),
        (45, 50, "LAUNCH_LATENCY"),
        (50, 60, "KERNEL"),
    ]


def test_several_causes_share_a_gap_by_time() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (100, 110, Cause.KERNEL, 2)],
        spans=[
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (10, 40, Cause.INPUT, 0, None),
            (20, 30, Cause.OP, 0, None),
            (40, 70, Cause.OPTIMIZER, 0, None),
            (45, 55, Cause.GC, 0, None),
            (95, 100, Cause.DRIVER_CALL, 0, 2),
        ],
    )
    assert ticks_by_cause(budget_of(trace)) == {
        "KERNEL": 20,
        "INPUT": 30,
        "OPTIMIZER": 20,
        "GC": 10,
        "HOLE": 25,
        "DRIVER_CALL": 5,
    }


def test_copies_are_no_idle_time_and_compute_owns_what_they_share() -> None:
    trace = a_trace(
        ops=[
            (0, 10, Cause.KERNEL, None),
            (5, 30, Cause.H2D, None),
            (20, 40, Cause.COMM, None),
            (40, 44, Cause.MEMSET, None),
        ],
        spans=[],
    )
    assert ticks_by_cause(budget_of(trace)) == {"KERNEL": 10, "H2D": 10, "COMM": 20, "MEMSET": 4}


def test_a_graph_launch_makes_no_host_idle_of_the_pauses_inside_it() -> None:
    inside = [(20 + 10 * i, 25 + 10 * i, Cause.KERNEL, 2) for i in range(5)]
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), *inside],
        spans=[(-5, -1, Cause.DRIVER_CALL, 0, 1), (-1, 4, Cause.DRIVER_CALL, 0, 2)],
    )
    assert ticks_by_cause(budget_of(trace)) == {"KERNEL": 35, "QUEUED": 30}


def test_a_long_wait_after_the_launch_is_not_explained_away() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (5 * MS, 5 * MS + 1, Cause.KERNEL, 2)],
        spans=[(-5, -1, Cause.DRIVER_CALL, 0, 1), (0, 4, Cause.DRIVER_CALL, 0, 2)],
    )
    assert ticks_by_cause(budget_of(trace))["LONG_QUEUE"] == 5 * MS - 10


def test_a_long_silence_of_the_host_is_unknown_and_a_short_one_is_dispatch() -> None:
    for pause, cause in ((MS // 2, "HOLE"), (2 * MS, "SILENT")):
        trace = a_trace(
            ops=[(0, 10, Cause.KERNEL, 1), (pause + 20, pause + 30, Cause.KERNEL, 2)],
            spans=[
                (-5, 10, Cause.DRIVER_CALL, 0, 1),
                (pause + 10, pause + 20, Cause.DRIVER_CALL, 0, 2),
            ],
        )
        assert ticks_by_cause(budget_of(trace))[cause] == pause


def test_another_thread_explains_the_silence_of_the_one_that_launches() -> None:
    spans: list[Span] = [
        (-5, -1, Cause.DRIVER_CALL, 0, 1),
        (100, 110, Cause.DRIVER_CALL, 0, 2),
        (10, 60, Cause.COMPILE, 1, None),
        (60, 90, Cause.SYNC, 1, None),
    ]
    trace = a_trace([(0, 10, Cause.KERNEL, 1), (110, 120, Cause.KERNEL, 2)], spans)
    # A bystander that waits for the device is an effect, no cause.
    assert ticks_by_cause(budget_of(trace)) == {
        "KERNEL": 20,
        "COMPILE": 50,
        "BLOCKED": 30,
        "HOLE": 10,
        "DRIVER_CALL": 10,
    }


def test_what_refills_the_device_after_a_sync_is_named() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (60, 70, Cause.KERNEL, 2)],
        spans=[
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (5, 20, Cause.SYNC, 0, None),
            (20, 50, Cause.OP, 0, None),
            (50, 60, Cause.DRIVER_CALL, 0, 2),
        ],
    )
    assert ticks_by_cause(budget_of(trace)) == {"KERNEL": 20, "SYNC": 10, "REFILL": 40}


def test_a_call_that_copies_pageable_memory_blocks() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (30, 40, Cause.H2D_PAGEABLE, 2)],
        spans=[(-5, -1, Cause.DRIVER_CALL, 0, 1), (12, 41, Cause.DRIVER_CALL, 0, 2)],
    )
    trace.names[Cause.DRIVER_CALL] = "cudaMemcpyAsync"
    assert ticks_by_cause(budget_of(trace)) == {
        "KERNEL": 10,
        "HOLE": 2,
        "SYNC": 18,
        "H2D_PAGEABLE": 10,
    }


def test_a_short_hole_is_dispatch_wherever_others_were_busy_before() -> None:
    """Thread 0 has been silent for long, and thread 1 until just before the gap was not."""
    trace = a_trace(
        ops=[(0, 3 * MS, Cause.KERNEL, 1), (4 * MS, 4 * MS + 10, Cause.KERNEL, 2)],
        spans=[
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (0, 3 * MS + MS // 2, Cause.COMPILE, 1, None),
            (4 * MS - 10, 4 * MS, Cause.DRIVER_CALL, 0, 2),
        ],
    )
    assert ticks_by_cause(budget_of(trace)) == {
        "KERNEL": 3 * MS + 10,
        "COMPILE": MS // 2,
        "HOLE": MS // 2 - 10,
        "DRIVER_CALL": 10,
    }


def test_work_of_another_thread_is_no_refill() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (60, 70, Cause.KERNEL, 2)],
        spans=[
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (5, 20, Cause.SYNC, 0, None),
            (20, 50, Cause.OP, 1, None),
            (50, 60, Cause.DRIVER_CALL, 0, 2),
        ],
    )
    assert ticks_by_cause(budget_of(trace)) == {"KERNEL": 20, "SYNC": 10, "OP": 30, "REFILL": 10}


def test_what_the_profiler_costs_explains_the_call_it_held_up() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (6 * MS, 6 * MS + 5, Cause.KERNEL, 2)],
        spans=[
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (10, 6 * MS, Cause.DRIVER_CALL, 0, 2),
            (20, 5 * MS, Cause.PROFILER, 1, None),
        ],
    )
    assert ticks_by_cause(budget_of(trace))["PROFILER"] == 5 * MS - 20


def test_a_slow_driver_call_is_no_launch() -> None:
    trace = a_trace(
        ops=[(0, 10, Cause.KERNEL, 1), (3 * MS, 3 * MS + 5, Cause.KERNEL, 2)],
        spans=[(-5, -1, Cause.DRIVER_CALL, 0, 1), (10, 3 * MS, Cause.DRIVER_CALL, 0, 2)],
    )
    assert ticks_by_cause(budget_of(trace))["SLOW_CALL"] == 3 * MS - 10


def test_without_any_launch_nothing_is_proved() -> None:
    trace = a_trace(
        [(0, 10, Cause.KERNEL, None), (60, 70, Cause.KERNEL, None)], [(0, 70, Cause.OP, 0, None)]
    )
    assert ticks_by_cause(budget_of(trace)) == {"KERNEL": 20, "NO_LAUNCH": 50}


def test_work_launched_before_the_trace_waited_in_the_queue() -> None:
    trace = a_trace(
        ops=[
            (0, 10, Cause.KERNEL, None),
            (15, 20, Cause.KERNEL, None),
            (30, 40, Cause.KERNEL, 7),
        ],
        spans=[(22, 25, Cause.DRIVER_CALL, 0, 7)],
    )
    assert ticks_by_cause(budget_of(trace)) == {
        "KERNEL": 25,
        "BEFORE_TRACE": 5,
        "HOLE": 2,
        "DRIVER_CALL": 3,
        "LAUNCH_LATENCY": 5,
    }


def test_two_clocks_are_brought_together() -> None:
    ops: list[Op] = []
    spans: list[Span] = []
    for i in range(200):
        begin = 1000 * i
        ops.append((begin, begin + 600, Cause.KERNEL, i))
        # The host's clock runs 300 ahead of the device's.
        spans.append((begin - 50 + 300, begin - 20 + 300, Cause.DRIVER_CALL, 0, i))
        spans.append((begin - 400 + 300, begin - 20 + 300, Cause.INPUT, 0, None))
    budget = budget_of(a_trace(ops, spans))
    assert budget.skew == 250
    # What the skew does not prove (the launch cannot have followed the start) stays uncorrected.
    assert ticks_by_cause(budget)["INPUT"] == 199 * 350


def test_after_the_last_operation_only_a_telling_cause_is_believed() -> None:
    trace = a_trace(
        [(0, 10, Cause.KERNEL, 1)],
        [
            (-5, -1, Cause.DRIVER_CALL, 0, 1),
            (10, 30, Cause.OP, 0, None),
            (30, 50, Cause.CHECKPOINT, 0, None),
        ],
    )
    assert ticks_by_cause(budget_of(trace, (-10, 50))) == {
        "HOLE": 5,
        "DRIVER_CALL": 4,
        "LAUNCH_LATENCY": 1,
        "KERNEL": 10,
        "TAIL": 20,
        "CHECKPOINT": 20,
    }


def test_a_job_without_a_gpu_computes_where_operators_run() -> None:
    trace = a_trace(
        ops=[],
        spans=[
            (0, 100, Cause.AROUND, 0, None),
            (10, 40, Cause.OP, 0, None),
            (20, 30, Cause.OP, 0, None),
            (40, 50, Cause.OP, 0, None),
            (60, 90, Cause.INPUT, 0, None),
            (70, 80, Cause.OP, 0, None),
            (85, 95, Cause.OP, 1, None),
            (92, 100, Cause.OP, 0, None),
        ],
    )
    budget = budget_of(trace)
    device = trace.devices[0]
    assert (device.kind, device.index, device.pid) == ("cpu", "0", 1)
    assert device.ops.start.tolist() == [10, 40, 85, 92]
    assert ticks_by_cause(budget) == {"HOST_WORK": 55, "AROUND": 10, "INPUT": 25}


def test_a_program_of_xla_works_also_where_none_of_its_operators_has_a_name() -> None:
    trace = a_trace(
        ops=[],
        spans=[
            (0, 100, Cause.GC, 0, None),
            (10, 40, Cause.AROUND, 1, None),
            (15, 20, Cause.OP, 1, None),
            (30, 60, Cause.AROUND, 1, None),
            (90, 100, Cause.OP, 1, None),
        ],
    )
    trace.names.append("ThunkExecutor::Execute (wait for completion)")
    runs = trace.host.kind == Cause.AROUND
    trace.host.name[runs] = len(trace.names) - 1
    budget = budget_of(trace)
    assert ticks_by_cause(budget) == {"EXECUTION": 45, "HOST_WORK": 15, "GC": 30}


def test_a_gpu_is_never_mixed_with_the_cpu() -> None:
    trace = a_trace([(0, 10, Cause.KERNEL, None)], [(0, 50, Cause.OP, 0, None)])
    correct(trace)
    assert [device.kind for device in trace.devices] == ["gpu"]


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel",
        "cuLaunchKernelEx",
        "cudaGraphLaunch",
        "hipModuleLaunchKernel",
        "~cudaLaunchHostFunc",
        "~customLaunch",
        "~cu_modelLaunch",
    ],
)
def test_what_was_launched_and_did_not_run_is_no_work_of_the_cpu(call: str) -> None:
    spans: list[Span] = [(0, 50, Cause.OP, 0, None), (10, 20, Cause.DRIVER_CALL, 0, None)]
    trace = a_trace([], spans)
    trace.names.append(call.removeprefix("~"))
    trace.host.name[1] = len(trace.names) - 1
    trace.events = 2
    correct(trace)
    found = analyse_trace(Path("x.json"), trace)
    said = [warning for warning in trace_warnings(found) if "1 launches" in warning]
    assert (len(trace.devices), len(said)) == ((1, 0) if call.startswith("~") else (0, 1))


def test_a_region_that_is_called_like_a_launch_is_none() -> None:
    trace = a_trace([], [(0, 50, Cause.OP, 0, None), (60, 70, Cause.AROUND, 0, None)])
    trace.names.append("cudaLaunchKernel")
    trace.host.name[1] = len(trace.names) - 1
    correct(trace)
    assert [device.kind for device in trace.devices] == ["cpu"]


TIMES = st.integers(0, 60)
OPS = st.lists(
    st.tuples(TIMES, TIMES, st.sampled_from(list(map(Cause, DEVICE_CAUSES))), st.integers(0, 8)),
    min_size=1,
    max_size=12,
)
SPANS = st.lists(
    st.tuples(
        st.integers(-20, 80),
        st.integers(0, 60),
        st.sampled_from(list(map(Cause, HOST_CAUSES))),
        st.integers(0, 2),
        st.none() | st.integers(0, 8),
    ),
    max_size=16,
)


@examples(300)
@given(OPS, SPANS, st.integers(0, 30), st.integers(0, 30))
def test_the_parts_always_add_up(
    ops: list[tuple[int, int, Cause, int]], spans: list[Span], before: int, after: int
) -> None:
    trace = a_trace(
        [(a, a + d, c, i) for a, d, c, i in ops],
        [(a, a + d, c, t, i) for a, d, c, t, i in spans],
        threads=3,
    )
    first = min(o[0] for o in ops)
    last = max(o[0] + o[1] for o in ops)
    budget = budget_of(trace, (first - before, last + after))
    s = budget.segments
    total = last + after - (first - before)
    assert sum(ticks_by_cause(budget).values()) == total
    if total:
        assert (s.end > s.start).all()
        assert (s.start[0], s.end[-1]) == (first - before, last + after)
        assert (s.start[1:] == s.end[:-1]).all()
    assert_same_as_counting(trace, budget)


def assert_same_as_counting(trace: Trace, budget: Budget) -> None:
    """The figures of the device, counted instant by instant."""
    ops = trace.devices[0].ops
    first, last = int(ops.start[0]), int(ops.end.max())
    time = np.arange(first, last)[:, None]
    running = (ops.start <= time) & (time < ops.end)
    comm = running[:, ops.kind == Cause.COMM].any(axis=1)
    copy = running[:, np.isin(ops.kind, COPIES)].any(axis=1)
    compute = running[:, ~np.isin(ops.kind, [Cause.COMM, *COPIES])].any(axis=1)
    found = totals(ops, first, last, np.ones(len(ops), np.bool_))
    assert found.busy == running.any(axis=1).sum() == found.span - found.idle
    assert (found.compute, found.comm, found.copy) == (compute.sum(), comm.sum(), copy.sum())
    assert found.exposed_comm == (comm & ~compute).sum()
    assert found.exposed_copy == (copy & ~compute & ~comm).sum()
    slices = dict.fromkeys(("compute", "exposed_comm", "exposed_copy"), 0)
    for cause, ticks in budget.sums(np.array([first]), np.array([last])).items():
        if cause in DEVICE_CAUSES:
            slices[cause.slice] += ticks
    assert tuple(slices.values()) == (found.compute, found.exposed_comm, found.exposed_copy)


@examples(100)
@given(OPS, SPANS, st.lists(st.integers(-40, 160), min_size=2, max_size=8, unique=True))
def test_what_steps_sum_to_is_what_their_parts_sum_to(
    ops: list[tuple[int, int, Cause, int]], spans: list[Span], bounds: list[int]
) -> None:
    trace = a_trace(
        [(a, a + d, c, i) for a, d, c, i in ops],
        [(a, a + d, c, t, i) for a, d, c, t, i in spans],
        threads=3,
    )
    budget = budget_of(trace)
    edges = np.sort(np.array(bounds))
    whole = budget.sums(edges[:1], edges[-1:])
    parts = budget.sums(edges[:-1], edges[1:])
    assert parts == whole
