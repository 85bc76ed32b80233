"""What the devices ran: exact sums, and of names only what they say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from tests.traces.repeating import Job
from whyidle.monitor.traces import launches
from whyidle.monitor.traces.activity import activity
from whyidle.monitor.traces.analysis import analyse_trace
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.kernels.summary import Kernels, operators
from whyidle.monitor.traces.kernels.tallies import tally
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Device, Ops, Spans, Thread, Trace

OURS = Path(__file__).parents[1] / "data" / "traces" / "kineto"


def summary(trace: Trace) -> Kernels:
    return analyse_trace(Path("trace"), trace).kernels


def a_gpu(*ops: tuple[str, int, Cause, int], ticks_per_ns: int = 1) -> Trace:
    """One operation after another: name, ticks, cause, bytes."""
    ends = np.cumsum([ticks for _, ticks, _, _ in ops]) if ops else np.zeros(0, np.int64)
    names = list(dict.fromkeys(name for name, _, _, _ in ops))
    table = Ops.of(
        start=ends - [ticks for _, ticks, _, _ in ops],
        end=ends,
        kind=[cause for _, _, cause, _ in ops],
        name=[names.index(name) for name, _, _, _ in ops],
        bytes=[size for _, _, _, size in ops],
    )
    return Trace("kineto", ticks_per_ns, names=names, devices=[Device("gpu", "0", table)])


def test_a_trace_without_work_has_a_valid_summary() -> None:
    for trace in (Trace("kineto", 1), a_gpu()):
        found = summary(trace)
        assert (found.count, found.total, found.kernels, found.copies) == (0, 0, [], [])
        assert found.tensor_share() is None
        assert found.launching.calls_per_second is None
        assert found.launching.delay_median is None
        answer = activity(found)
        assert answer["top_kernels"] == []
        assert json.loads(json.dumps(answer)) == answer


def test_a_cpu_has_operators_and_no_kernels() -> None:
    found = summary(load(OURS / "cpu_plain.json.gz"))
    assert (found.count, found.kernels) == (0, [])
    assert found.operators[0].name.startswith("aten::")
    assert sum(one.share for one in found.operators) == pytest.approx(1)


def test_a_loop_of_a_tpu_has_not_the_time_of_its_body() -> None:
    ops = Ops.of(
        start=[0, 0, 500, 2000, 2000],
        end=[400, 1000, 900, 2000, 2100],
        kind=[Cause.KERNEL, Cause.KERNEL, Cause.COMM, Cause.KERNEL, Cause.KERNEL],
        name=[1, 0, 2, 1, 1],
        stream=[3] * 5,
        hlo_op=[1, 0, 2, 1, 1],
        hlo_module=[4] * 5,
    )
    names = ["while.1", "fusion.2", "all-reduce.3", "XLA Ops", "jit_step"]
    totals = {"tpu": (200, 500, 400), "gpu": (1000, 500, 400)}
    for kind in ("tpu", "gpu"):
        found = summary(Trace("xplane", 1, names=names, devices=[Device(kind, "0", ops)]))
        assert (found.count, found.total) == (5, sum(totals[kind]))
        totals_by_name = {kernel.runs.name: kernel.runs.total for kernel in found.kernels}
        assert totals_by_name == dict(zip(names, totals[kind], strict=False))
        assert {op.name: op.total for _, op in found.hlo_ops} == totals_by_name
        assert found.hlo_modules[0].total == found.total
        assert found.families()["communication"] == 400


def test_times_are_told_in_nanoseconds() -> None:
    trace = a_gpu(("volta_sgemm_32x32_nn", 2_000_500, Cause.KERNEL, -1), ticks_per_ns=1000)
    found = summary(trace)
    assert found.short_count == 1
    (kernel,) = activity(found)["top_kernels"]
    assert kernel["total_ns"] == 2000  # half to even
    assert (kernel["dtype"], kernel["tensor_cores"], kernel["share"]) == ("f32", False, 1.0)


def test_unknown_names_claim_nothing() -> None:
    assert summary(a_gpu(("my_kernel", 10, Cause.KERNEL, -1))).tensor_share() is None
    both = summary(
        a_gpu(
            ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 30, Cause.KERNEL, -1),
            ("my_kernel", 10, Cause.KERNEL, -1),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 60, Cause.COMM, -1),
        )
    )
    assert both.tensor_share() == (0.3, 0.4)
    assert both.dtypes() == {"bf16": 30, "unknown": 10}
    assert both.families() == {"communication": 60, "matmul": 30, "unknown": 10}


def test_copies_by_direction_and_memory() -> None:
    found = summary(
        a_gpu(
            ("Memcpy HtoD (Pageable -> Device)", 100, Cause.H2D_PAGEABLE, 1000),
            ("Memcpy HtoD (Pinned -> Device)", 10, Cause.H2D, 1000),
            ("Memcpy HtoD (Unknown -> Device)", 5, Cause.H2D, 10),
            ("MemcpyD2H", 7, Cause.D2H, -1),
            ("Memset (Device)", 2, Cause.MEMSET, 4),
        )
    ).copies
    by_kind = {
        (one.direction, one.memory): (one.total, one.bytes, one.gb_per_s(1)) for one in found
    }
    assert by_kind == {
        ("host to device", "pageable"): (100, 1000, 10.0),
        ("host to device", "pinned"): (10, 1000, 100.0),
        ("host to device", "unknown"): (5, 10, 2.0),
        ("device to host", "unknown"): (7, None, None),
        ("memset", "device"): (2, 4, 2.0),
    }
    (silent,) = (one for one in found if one.bytes is None)
    assert silent.unknown == "1 of 1 do not say how many bytes they move"


def test_launches_of_a_job() -> None:
    job = Job(queue=1000)
    for number in range(4):
        job.wait(5000)
        begin = job.now
        job.launch(range(10), ticks=5)
        job.mark(f"ProfilerStep#{number}", begin)
    launching = summary(job.trace(hidden=False)).launching
    assert (
        launching.operations,
        launching.launched,
        launching.calls,
        launching.calls_per_step,
    ) == (40, 40, 40, 10)
    assert (launching.call_median, launching.skewed, launching.graph_operations) == (10, 0, 0)
    # The device begins 1,000 ticks after the call, and 3 that the host takes in between.
    assert (launching.delay_median, launching.delay_p95) == (1003, 1003)


def test_a_graph_is_one_call() -> None:
    job = Job(names={"cudaGraphLaunch": 0})
    job.call("cudaGraphLaunch", Cause.DRIVER_CALL)
    trace = job.trace()
    ops = Ops.of(
        start=[20, 30, 40], end=[25, 35, 45], kind=[0, 0, 0], name=[0] * 3, correlation=[7] * 3
    )
    trace.devices.append(Device("gpu", "0", ops))
    trace.calls = type(trace.calls).of(row=[0], id=[7])
    launching = summary(trace).launching
    assert (launching.operations, launching.calls, launching.graph_operations) == (3, 1, 3)
    assert launching.delay_median is None


@pytest.mark.parametrize(
    ("ran", "shown"),
    [
        # Each of three launches has kernels; only the last one has; none has.
        ([7, 7, 8, 9], 3),
        ([9, 9], 1),
        ([4], 0),
        # Kernels without a launch may be theirs: some profilers do not say so.
        ([-1, -1, -1], 3),
    ],
)
def test_graphs_whose_kernels_are_not_shown_are_counted(ran: list[int], shown: int) -> None:
    job = Job(names={"cudaGraphLaunch": 0, "cudaLaunchKernel": 1})
    for name in ("cudaGraphLaunch",) * 3 + ("cudaLaunchKernel",):
        job.call(name, Cause.DRIVER_CALL)
    trace = job.trace()
    starts = [10 * (i + 1) for i in range(len(ran))]
    ops = Ops.of(start=starts, end=[s + 5 for s in starts], kind=[0] * len(ran),
                 name=[0] * len(ran), correlation=ran)  # fmt: skip
    trace.devices.append(Device("gpu", "0", ops))
    trace.calls = type(trace.calls).of(row=[0, 1, 2, 3], id=[7, 8, 9, 4])
    found = launches.graph_launches(trace, [launches.match(trace, ops)])
    assert (found.count, found.shown, found.hidden) == (3, shown, 3 - shown)


def test_clocks_that_disagree_are_noted() -> None:
    job = Job(queue=-100)
    job.launch(range(5))
    trace = job.trace()
    trace.devices[0].ops.start[:] -= 50
    assert summary(trace).launching.skewed > 0


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 2**60)), max_size=30))
@examples(100)
def test_tallies_are_exact(rows: list[tuple[int, int]]) -> None:
    ids = np.array([i for i, _ in rows], np.int32)
    ticks = np.array([t for _, t in rows], np.int64) // 32
    found = tally(ids, ticks)
    sums: Counter[int] = Counter()
    for i, t in zip(ids.tolist(), ticks.tolist(), strict=True):
        sums[i] += t
    assert dict(zip(found.id.tolist(), found.total.tolist(), strict=True)) == {
        i: t for i, t in sums.items() if i >= 0
    }
    assert found.count.sum() == np.sum(ids >= 0)


nested = st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=25)


@given(st.lists(nested, max_size=5))
@examples(100)
def test_an_operator_has_not_the_time_of_those_it_calls(tree: list[object]) -> None:
    spans: list[tuple[int, int]] = []
    own: Counter[int] = Counter()

    def lay(children: list[object], now: int, depth: int) -> int:
        for child in children:
            row, begin = len(spans), now
            spans.append((begin, begin))
            assert isinstance(child, list)
            now = lay(child, now + 1, depth + 1) + 2
            spans[row] = (begin, now)
            own[depth] += 3
        return now

    lay(tree, 0, 0)
    # Depth is what a span is named by; each takes three ticks of its own.
    depth = [sum(a <= s and e <= b for a, b in spans) - 1 for s, e in spans]
    order = sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1]))
    host = Spans.of(
        start=[spans[i][0] for i in order],
        end=[spans[i][1] for i in order],
        thread=[0] * len(spans),
        kind=[Cause.OP] * len(spans),
        name=[depth[i] for i in order],
    )
    found = operators(Trace("kineto", 1, threads=[Thread("main")], host=host))
    assert dict(zip(found.id.tolist(), found.total.tolist(), strict=True)) == dict(own)
