"""What an XPlane means: devices, threads, launches, steps; by hand and from jax itself."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.traces.test_account import budget_of
from tests.traces.xplane_bytes import EPOCH, Plane, block, load, number, space
from whyidle.monitor.traces import launches, xplane
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Site, Trace
from whyidle.monitor.traces.opening import identify
from whyidle.monitor.traces.xplane import chunks

RECORDED = Path(__file__).parents[1] / "data" / "traces" / "xplane"
US = 1_000_000
NS = 1_000
COPY = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"


def cuda() -> list[Plane]:
    """Two launches, a graph of two kernels, and copies, on one GPU of two."""
    gpu, idle, host = Plane("/device:GPU:3"), Plane("/device:GPU:0"), Plane("/host:CPU")
    calls = Plane("/host:CUPTI")
    gpu.facts = {"device_vendor": "Nvidia", "gpu_device_name": "NVIDIA H100 80GB HBM3"}
    hlo = {"hlo_op": ("ref", "fusion.1"), "hlo_module": ("ref", "jit_step")}
    details = {"kernel_details": ("ref", "regs:32 grid:1,1,1"), "context_id": "$$1"}
    gpu.line(
        "Stream #14(Kernel,Memset)",
        gpu.event("loop_fusion_1", 50 * US, 9 * US, correlation_id=7, **details, **hlo),
        gpu.event("ncclDevKernel_AllReduce_Sum_bf16", 70 * US, 5 * US, correlation_id=9),
        gpu.event("gemm", 76 * US, US, correlation_id=9, cuda_graph_id=4),
        gpu.event(
            "Memset", 80 * US, US, correlation_id=11, memset_details=("ref", "num_bytes:64 async:1")
        ),
        gpu.event("MemoryResidency", 200 * US, 0),
        key=14,
    )
    gpu.line(
        "Stream #15(MemcpyH2D)",
        gpu.event("MemcpyH2D", 30 * US, 10 * US, correlation_id=5, memcpy_details=("ref", COPY)),
        gpu.event("MemcpyD2H", 90 * US, US, correlation_id=13, memcpy_details="size:8 async:1"),
        key=15,
        at=EPOCH + 1,
    )
    gpu.line("XLA Modules", gpu.event("jit_step", 30 * US, 60 * US), key=99)
    gpu.line("_counters_", gpu.event("power_mw", 0, 0), key=98)
    host.line("python", host.event("PjitFunction(step)", 0, 60 * US), key=4711, shown="main")
    calls.line(
        "Host Threads/4711",
        calls.event("cuMemcpyHtoDAsync_v2", 10 * US, 2 * US, device_id=3, correlation_id=5),
        calls.event("cuLaunchKernelEx", 20 * US, 2 * US, device_id=3, correlation_id=7),
        calls.event("cuGraphLaunch (CudaGraph:4)", 30 * US, 2 * US, correlation_id=9),
        calls.event("cuStreamSynchronize", 40 * US, 9 * US),
        key=4711,
    )
    return [gpu, idle, host, calls]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return load(tmp_path, space(*cuda(), warnings=("3 events were dropped",), hosts=("node-7",)))


def names(trace: Trace, ids: np.ndarray) -> list[str | None]:
    return [trace.names[i] if i >= 0 else None for i in ids.tolist()]


def test_only_the_streams_of_a_gpu_count(trace: Trace) -> None:
    [gpu] = trace.devices
    assert (gpu.kind, gpu.index, gpu.host, gpu.model) == (
        "gpu",
        "3",
        "node-7",
        "NVIDIA H100 80GB HBM3",
    )
    assert names(trace, gpu.ops.name) == [
        "MemcpyH2D",
        "loop_fusion_1",
        "ncclDevKernel_AllReduce_Sum_bf16",
        "gemm",
        "Memset",
        "MemcpyD2H",
    ]
    assert names(trace, gpu.ops.stream)[:2] == [
        "Stream #15(MemcpyH2D)",
        "Stream #14(Kernel,Memset)",
    ]
    assert trace.events == 14


def test_times_are_ps_since_the_earliest_line(trace: Trace) -> None:
    ops = trace.devices[0].ops
    assert trace.origin_ns == EPOCH
    assert trace.ticks_per_ns == NS
    assert ops.start.tolist()[:2] == [30 * US + NS, 50 * US]
    assert (ops.end - ops.start).tolist() == [10 * US, 9 * US, 5 * US, US, US, US]


def test_kinds_and_sizes_of_operations(trace: Trace) -> None:
    ops = trace.devices[0].ops
    assert [Cause(k) for k in ops.kind.tolist()] == [
        Cause.H2D_PAGEABLE,
        Cause.KERNEL,
        Cause.COMM,
        Cause.KERNEL,
        Cause.MEMSET,
        Cause.D2H,
    ]
    assert ops.bytes.tolist() == [4096, -1, -1, -1, 64, 8]


def test_operations_know_their_hlo(trace: Trace) -> None:
    ops = trace.devices[0].ops
    assert names(trace, ops.hlo_op) == [None, "fusion.1", None, None, None, None]
    assert names(trace, ops.hlo_module)[1] == "jit_step"


def test_launches_are_found_and_graphs_known(trace: Trace) -> None:
    found = launches.match(trace, trace.devices[0].ops)
    assert found.start.tolist() == [10 * US, 20 * US, 30 * US, 30 * US, -1, -1]
    assert found.graph.tolist() == [False, False, True, True, False, False]


def test_lines_of_one_id_are_one_thread(trace: Trace) -> None:
    assert [(t.label, t.tid) for t in trace.threads] == [("main", "4711")]
    assert set(trace.host.thread.tolist()) == {0}


def test_driver_calls_are_told_without_a_correlation_id(trace: Trace) -> None:
    kinds = dict(zip(names(trace, trace.host.name), trace.host.kind.tolist(), strict=True))
    assert kinds == {
        "PjitFunction(step)": Cause.AROUND,
        "cuMemcpyHtoDAsync_v2": Cause.DRIVER_CALL,
        "cuLaunchKernelEx": Cause.DRIVER_CALL,
        "cuGraphLaunch (CudaGraph:4)": Cause.DRIVER_CALL,
        "cuStreamSynchronize": Cause.SYNC,
    }


def test_what_the_profiler_warned_of_is_kept(trace: Trace) -> None:
    assert trace.warnings == ["profiler warning: 3 events were dropped"]
    assert trace.dropped == 3


def test_what_the_file_does_not_tell_has_a_reason(trace: Trace) -> None:
    assert trace.devices[0].pid is None
    assert trace.unknown.keys() == {"pid", "rank"}


def test_a_process_that_is_told(tmp_path: Path) -> None:
    host = Plane("/host:CPU", facts={"process_id": 4473})
    host.line("python", host.event("f", 0, US), key=5)
    trace = load(tmp_path, space(host, hosts=("a", "b")))
    assert trace.threads[0].pid == 4473
    assert trace.unknown.keys() == {"rank", "host"}


def test_a_tpu(tmp_path: Path) -> None:
    tpu = Plane("/device:TPU:0", facts={"device_type_string": "TPU v5p"})
    text = "%all-reduce.1 = f32[8]{0} all-reduce(f32[8]{0} %p), channel_id=1"
    tpu.shown = {text: "all-reduce.1"}
    tpu.line("Steps", tpu.event("7", 0, 90 * US), key=1)
    tpu.line("XLA Modules", tpu.event("jit_step(123)", 5 * US, 40 * US), key=2)
    tpu.line(
        "XLA Ops",
        tpu.event("fusion.3", 10 * US, 5 * US),
        tpu.event(text, 20 * US, 5 * US),
        tpu.event("copy.9", 60 * US, 5 * US),
        key=3,
    )
    tpu.line("Async XLA Ops", tpu.event("copy-start.2", 0, 99 * US), key=4)
    sparse = Plane("/device:TPU:0 SparseCore 1")
    sparse.line("Sparse Core Ops", sparse.event("gather", 0, 99 * US))
    trace = load(tmp_path, space(tpu, sparse))
    [device] = trace.devices
    assert (device.kind, device.model) == ("tpu", "TPU v5p")
    assert names(trace, device.ops.name) == ["fusion.3", "all-reduce.1", "copy.9"]
    assert device.ops.kind.tolist() == [Cause.KERNEL, Cause.COMM, Cause.KERNEL]
    assert names(trace, device.ops.hlo_module) == ["jit_step", "jit_step", None]
    assert names(trace, device.ops.hlo_op) == names(trace, device.ops.name)
    assert (trace.marks.start.tolist(), trace.marks.end.tolist()) == ([0], [90 * US])


def test_steps_are_marks_and_no_spans(tmp_path: Path) -> None:
    host = Plane("/host:CPU")
    host.line(
        "python",
        host.event("train", 50 * US, 40 * US, _r=1, step_num=1),
        host.event("train", 0, 40 * US, _r=1, step_num=0),
        host.event("$train.py:12 main", 0, 99 * US),
        host.event("other", 5 * US, US, _r=0),
    )
    trace = load(tmp_path, space(host))
    assert trace.marks.start.tolist() == [0, 50 * US]
    assert names(trace, trace.marks.name) == ["train", "train"]
    assert names(trace, trace.host.name) == ["$train.py:12 main", "other"]
    assert trace.host.kind[0] == Cause.PYTHON


def test_operations_of_the_cpu_backend(tmp_path: Path) -> None:
    host = Plane("/host:CPU")
    hlo = {"hlo_op": ("ref", "dot.1"), "hlo_module": ("ref", "jit_f"), "run_id": -5}
    host.line(
        "tf_XLAEigen/1",
        host.event("dot.1", 0, 9 * US, **hlo),
        host.event("end: dot.1", 9 * US, US),
        host.event("MemoryAllocation", 9 * US, 0, bytes_allocated=1 << 40),
    )
    trace = load(tmp_path, space(host))
    assert not trace.devices
    assert names(trace, trace.host.name) == ["dot.1"]
    assert trace.host.kind.tolist() == [Cause.OP]
    assert trace.events == 3


def on_the_cpu(**stats: tuple[str, str]) -> Plane:
    host = Plane("/host:CPU")
    host.line("tf_Compute/1", host.event("dot", 0, 9 * US, **stats), host.event("f", 9 * US, US))
    return host


OF_XLA = {"hlo_op": ("ref", "dot.1"), "hlo_module": ("ref", "jit_f")}


def kinds(trace: Trace) -> dict[str | None, int]:
    return dict(zip(names(trace, trace.host.name), trace.host.kind.tolist(), strict=True))


@pytest.mark.parametrize("line", ["Steps", "Stream #1(Kernel)", "XLA Modules"])
@pytest.mark.parametrize("kind", ["GPU", "TPU"])
@pytest.mark.parametrize("events", [0, 1])
def test_a_device_without_work_does_not_hide_the_cpu(
    tmp_path: Path, line: str, kind: str, events: int
) -> None:
    device = Plane(f"/device:{kind}:0")
    device.line(line, *[device.event("MemoryResidency", 0, US)] * events, key=1)
    for planes in ([device, on_the_cpu(**OF_XLA)], [on_the_cpu(**OF_XLA), device]):
        trace = load(tmp_path, space(*planes))
        assert not trace.devices
        assert kinds(trace) == {"dot": Cause.OP, "f": Cause.AROUND}
        assert trace.events == 2 + events


def test_operators_of_tensorflow_on_the_cpu(tmp_path: Path) -> None:
    operator = {"tf_op": ("ref", "dense/MatMul:MatMul")}
    assert kinds(load(tmp_path, space(on_the_cpu(**operator))))["dot"] == Cause.OP
    gpu = Plane("/device:GPU:0")
    gpu.line("Stream #1", gpu.event("k", 0, US))
    assert kinds(load(tmp_path, space(gpu, on_the_cpu(**operator))))["dot"] == Cause.AROUND


@pytest.mark.parametrize(
    ("asked", "cause"), [(True, Cause.INPUT), (False, Cause.AROUND)], ids=["waits", "is ahead"]
)
def test_a_graph_waits_for_a_pipeline_where_it_asks_and_not_where_that_works_ahead(
    tmp_path: Path, asked: bool, cause: Cause
) -> None:
    """As `fit` of Keras runs: the graph takes its batches, and Python only waits for the graph."""
    gpu, host, calls = Plane("/device:GPU:0"), Plane("/host:CPU"), Plane("/host:CUPTI")
    gpu.line(
        "Stream #1(Kernel)",
        gpu.event("gemm", 10 * US, 10 * US, correlation_id=1),
        gpu.event("gemm", 100 * US, 10 * US, correlation_id=2),
        key=1,
    )
    host.line("python", host.event("EagerExecute", 0, 120 * US), key=10)
    ahead = host.event("Iterator::Root::Prefetch::ParallelMapV2", 0, 120 * US)
    host.line("tf_data_iterator_resource/3", ahead, key=12)
    if asked:
        waits = host.event("IteratorGetNextOp::DoCompute", 20 * US, 75 * US)
        host.line("tf_data_iterator_get_next/2", waits, key=11)
    calls.line(
        "Host Threads/13",
        *(
            calls.event("cuLaunchKernel", at * US, US, device_id=0, correlation_id=n)
            for n, at in ((1, 5), (2, 98))
        ),
        key=13,
    )
    trace = load(tmp_path, space(gpu, host, calls))
    segments = budget_of(trace).segments
    gap = np.searchsorted(segments.start, 50 * US, "right") - 1
    assert segments.cause[gap] == cause


def test_hosts_that_were_joined_are_kept_apart(tmp_path: Path) -> None:
    planes = []
    for i in range(2):
        gpu, host, calls = Plane("/device:GPU:0"), Plane("/host:CPU"), Plane("/host:CUPTI")
        gpu.line("Stream #1", gpu.event("k", 0, US, correlation_id=1), key=1)
        host.line(f"main {i}", host.event("f", 0, US), key=77)
        calls.line("Host Threads/77", calls.event("cuLaunchKernel", 0, US), key=77)
        planes += [gpu, host, calls]
    trace = load(tmp_path, space(*planes, hosts=("a", "b")))
    assert [thread.label for thread in trace.threads] == ["main 0", "main 1"]
    assert np.bincount(trace.host.thread).tolist() == [2, 2]
    hosts, devices = trace.warnings
    assert hosts.startswith("The file is of 2 hosts, and does not say which plane")
    assert devices == "The file holds 2 devices GPU 0: nothing says which is which."


@pytest.mark.parametrize("other", [0, EPOCH // 2, EPOCH * 3])
def test_a_line_of_another_time_is_left_out(tmp_path: Path, other: int) -> None:
    host = Plane("/host:CPU")
    host.line("other", host.event("f", 0, US), key=1, at=other)
    host.line("one", host.event("g", 0, US), key=2)
    host.line("more", key=3)
    trace = load(tmp_path, space(host))
    assert trace.origin_ns == EPOCH
    assert names(trace, trace.host.name) == ["g"]
    assert trace.warnings == ["1 event with times that cannot be, and left out."]


def test_what_only_counts_has_no_place_in_time(tmp_path: Path) -> None:
    host = Plane("/host:CPU", events={"f": 1})
    counted = block(4, number(1, 1) + number(3, 7) + number(5, 12))
    host.line("python", counted, host.event("f", 0, US))
    trace = load(tmp_path, space(host))
    assert (len(trace.host), trace.events, trace.warnings) == (1, 2, [])


def test_a_file_without_events(tmp_path: Path) -> None:
    trace = load(tmp_path, space(Plane("/host:CPU"), Plane("Task Environment")))
    assert (trace.events, trace.devices, trace.threads) == (0, [], [])


@pytest.mark.parametrize(
    ("name", "events", "steps"),
    [("cpu_marked_frames", 2063, 12), ("cpu_plain", 816, 0), ("cpu_retraced", 1723, 0)],
)
def test_profiles_of_jax(name: str, events: int, steps: int) -> None:
    trace = xplane.read(identify(RECORDED / f"{name}.xplane.pb.gz"))
    assert (trace.events, len(trace.marks), trace.warnings) == (events, steps, [])
    assert (trace.host.kind == Cause.OP).sum() > 50
    assert (trace.host.kind == Cause.PYTHON).any() == (name == "cpu_marked_frames")
    assert (trace.host.kind == Cause.COMPILE).any() == (name == "cpu_retraced")
    assert trace.threads[0].label == "python"
    assert trace.threads[0].pid is not None


@pytest.mark.parametrize("compressed", [True, False])
def test_progress_goes_forward_to_the_end(tmp_path: Path, compressed: bool) -> None:
    host = Plane("/host:CPU")
    for i in range(4):
        host.line(f"t{i}", host.event("f", 0, US) * 60_000, key=i)
    data = space(host)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(gzip.compress(data, 1) if compressed else data)
    progress: list[tuple[int, int]] = []
    xplane.read(identify(path), lambda *both: progress.append(both))
    parts = [part for part, _ in progress]
    assert len(set(parts)) > 2
    assert parts == sorted(parts)
    assert {size for _, size in progress} == {path.stat().st_size}
    assert 0.9 * path.stat().st_size < parts[-1] <= path.stat().st_size


def test_lines_of_code_of_jax() -> None:
    trace = xplane.read(identify(RECORDED / "cpu_plain.xplane.pb.gz"))
    ops = {trace.names[op]: site for (_, op), site in trace.sources.items()}
    assert {trace.names[module] for module, _ in trace.sources} == {"jit_train_step"}
    assert ops["wrapped_tanh"] == Site("make_xplane.py", 26, "loss")
    assert ops["multiply_subtract_fusion"].function == "train_step.<locals>.<lambda>"
    source = (RECORDED.parent / "make_xplane.py").read_text().splitlines()
    assert "jnp.tanh" in source[ops["wrapped_tanh"].line - 1]


def test_a_buffer_that_is_still_read_is_not_filled(tmp_path: Path) -> None:
    """A plane without events between two large ones hands nothing over, and takes no turn."""
    gpu, idle, host = Plane("/device:GPU:0"), Plane("/host:idle"), Plane("/host:CPU")
    copies = (
        gpu.event(
            "MemcpyH2D", at * 1000, 500, memcpy_details=f"kind_src:pinned size:{1000 + at % 7}"
        )
        for at in range(9000)
    )
    gpu.line("Stream #1", *copies)
    idle.line("nothing")
    calls = (host.event(f"op{at % 50}", at * 1000, 500, tf_op="text" * 20) for at in range(20_000))
    host.line("python", *calls, key=1)
    data = space(gpu, idle, host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK", 64 << 10)
        found = load(tmp_path, data)
    (device,) = found.devices
    assert sorted({*device.ops.bytes.tolist()}) == [*range(1000, 1007)]
    assert len(found.host) == 20_000
    assert not any("\\x00" in name or not name.isprintable() for name in found.names)


def test_programs_of_several_tpus_keep_their_names(tmp_path: Path) -> None:
    planes = []
    for index in range(3):
        tpu = Plane(f"/device:TPU:{index}")
        programs = (tpu.event(f"jit_{index}_{at}({at})", at * 1000, 900) for at in range(1500))
        tpu.line("XLA Modules", *programs)
        tpu.line("XLA Ops", *(tpu.event("fusion", at * 1000 + 10, 500) for at in range(1500)))
        planes.append(tpu)
    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = load(tmp_path, space(*planes))
    finally:
        sys.setswitchinterval(every)
    for device in found.devices:
        names = [found.names[module] for module in device.ops.hlo_module.tolist()]
        assert names == [f"jit_{device.index}_{at}" for at in range(1500)]


def test_a_plane_without_lines_counts_among_those_of_its_name(tmp_path: Path) -> None:
    """The driver calls of a second host are not those of the first one's threads."""
    planes = [Plane("/host:CPU"), Plane("/host:CUPTI"), Plane("/host:CPU"), Plane("/host:CUPTI")]
    for plane in (planes[0], planes[2]):
        plane.line("python", plane.event("work", 0, 10), key=7)
    call = planes[3].event("cudaLaunchKernel", 2, 5, correlation_id=1)
    planes[3].line("Host Threads/7", call, key=7)
    found = load(tmp_path, space(*planes, hosts=("A", "B")))
    threads = dict(zip((found.names[n] for n in found.host.name), found.host.thread, strict=True))
    assert threads["cudaLaunchKernel"] == 1
