from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.longer import examples
from tests.traces.kineto_text import Record, document, event, kernel, load, plain
from whyidle.monitor.traces import kineto, launches
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.launches import BY_CORRELATION
from whyidle.monitor.traces.opening import identify

BASE = 1_700_000_000_000_000_000

JOB: list[Record] = [
    event("user_annotation", "ProfilerStep#3", 100, 60, External_id=1),
    event("user_annotation", "Optimizer.step#SGD.step", 140, 10, External_id=2),
    event("cpu_op", "aten::mm", 110, 20, External_id=3, Ev_Idx=4),
    event("python_function", "train.py(12): main", 100.5, 70, Python_id=5),
    event("cuda_runtime", "cudaLaunchKernel", 112, 3, correlation=41, cbid=211),
    event("cuda_runtime", "cudaMemcpyAsync", 120, 5, correlation=42),
    event("cuda_driver", "cuLaunchKernel", 126, 2, correlation=43, tid=71),
    event("overhead", "Instrumentation", 150, 1, tid=0),
    {"ph": "s", "id": 41, "pid": 7, "tid": 70, "ts": 112, "cat": "ac2g", "name": "ac2g"},
    kernel("ncclDevKernel_AllReduce", 150, 8, correlation=43, External_id=3),
    kernel("sgemm", 114.25, 10.125, correlation=41),
    event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 130, 4, device=0, stream=8, bytes=4096),
    event("gpu_memset", "Memset (Device)", 135, 1, device=0, stream=7, bytes="16", correlation=44),
    kernel("sgemm", 115, device=1),
    event("gpu_user_annotation", "ProfilerStep#3", 114, 40, device=0, stream=7),
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 71, "args": {"name": "pt_autograd_0"}},
    {"ph": "M", "name": "process_labels", "pid": 7, "tid": 0, "args": {"labels": "CPU"}},
    {"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "ts": 1, "args": {"Bytes": 5}},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "ts": 0, "dur": 9},
]
KEYS: dict[str, Any] = {
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": 5}, "odd"],
    "baseTimeNanoseconds": BASE,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def test_every_kind_of_event_comes_to_its_column(path: Path) -> None:
    trace = plain(load(path, document(JOB, **KEYS)))
    main, second = ("thread 70", 7, "70"), ("pt_autograd_0", 7, "71")
    assert trace["events"] == len(JOB)
    assert trace["origin"] == BASE + 100_000
    assert trace["marks"] == [(0, 60_000, "ProfilerStep#3")]
    assert trace["host"] == [
        (500, 70_500, main, Cause.PYTHON, "train.py(12): main"),
        (10_000, 30_000, main, Cause.OP, "aten::mm"),
        (12_000, 15_000, main, Cause.DRIVER_CALL, "cudaLaunchKernel"),
        (20_000, 25_000, main, Cause.DRIVER_CALL, "cudaMemcpyAsync"),
        (26_000, 28_000, second, Cause.DRIVER_CALL, "cuLaunchKernel"),
        (40_000, 50_000, main, Cause.OPTIMIZER, "Optimizer.step#SGD.step"),
        (50_000, 51_000, ("thread 0", 7, "0"), Cause.PROFILER, "Instrumentation"),
    ]
    assert trace["calls"] == [(2, 41), (3, 42), (4, 43)]
    assert trace["externals"] == [(5, 2), (1, 3)]
    first, other = trace["devices"]
    assert first[:5] == ("gpu", "0", 7, 1, "NVIDIA H200")
    assert first[5] == [
        ("sgemm", "7", 14_250, 24_375, Cause.KERNEL, 41, -1, -1),
        ("Memcpy HtoD (Pageable -> Device)", "8", 30_000, 34_000, Cause.H2D_PAGEABLE, -1, -1, 4096),
        ("Memset (Device)", "7", 35_000, 36_000, Cause.MEMSET, 44, -1, 16),
        ("ncclDevKernel_AllReduce", "7", 50_000, 58_000, Cause.COMM, 43, 3, -1),
    ]
    assert other[:5] == ("gpu", "1", 7, 1, None)
    assert set(trace["unknown"]) == {"host", "model"}
    assert trace["warnings"] == []


def test_links_lead_to_the_launch(path: Path) -> None:
    trace = load(path, document(JOB, **KEYS))
    found = launches.match(trace, trace.devices[0].ops)
    assert found.how.tolist() == [BY_CORRELATION, 0, 0, BY_CORRELATION]
    assert found.start.tolist() == [12_000, -1, -1, 26_000]
    assert trace.threads[found.thread[3]].label == "pt_autograd_0"


def test_old_names_of_torch_1_8_mean_the_same(path: Path) -> None:
    stack = "train.py(12): step\ntrain.py(40): main"
    events = [
        {**event("Operator", "ProfilerStep*", 10, 9), "tid": "88"},
        {**event("Operator", "aten::add", 10, 5, External_id=2, Call_stack=stack), "tid": "88"},
        {**event("Runtime", "cudaLaunchKernel", 11, 2, correlation=9, external_id=2), "tid": 88},
        {
            **event("Kernel", "add", 14, device=0, stream=7, correlation=9, external_id=2),
            "pid": 0,
            "tid": "stream 7",
        },
        {**event("Memcpy", "Memcpy DtoH (Device -> Pinned)", 16, device=0), "tid": "stream 7"},
        {**event("Memset", "Memset (Device)", 17), "pid": 3, "tid": "stream 9"},
    ]
    trace = load(path, document(events))
    found = plain(trace)
    assert found["marks"] == [(0, 9_000, "ProfilerStep*")]
    assert len(trace.threads) == 1
    assert [row[3] for row in found["host"]] == [Cause.OP, Cause.DRIVER_CALL]
    assert found["stacks"] == [(0, stack)]
    assert found["externals"] == [(0, 2)]
    assert found["devices"][0][5] == [
        ("add", "7", 4_000, 5_000, Cause.KERNEL, 9, 2, -1),
        ("Memcpy DtoH (Device -> Pinned)", "stream 7", 6_000, 7_000, Cause.D2H, -1, -1, -1),
    ]
    # A device goes by its own number, or else by the process that stands for it.
    assert [device[1] for device in found["devices"]] == ["0", "3"]


def test_an_operator_with_a_stream_is_no_work_of_a_device(path: Path) -> None:
    trace = load(path, document([event("cpu_op", "record_param_comms", 1, stream=7, device=0)]))
    assert trace.devices == []
    assert len(trace.host) == 1


def test_order_is_by_start_then_by_correlation_and_longer_spans_first(path: Path) -> None:
    events = [
        *(event("cpu_op", f"op{dur}", 5, dur) for dur in (1, 9, 4)),
        *(kernel(f"k{number}", 5, correlation=number) for number in (30, 10, 20)),
        event("cpu_op", "first", 1),
    ]
    trace = plain(load(path, document(events)))
    assert [row[4] for row in trace["host"]] == ["first", "op9", "op4", "op1"]
    assert [row[0] for row in trace["devices"][0][5]] == ["k10", "k20", "k30"]


def test_devices_are_sorted_as_numbers(path: Path) -> None:
    events = [kernel("k", 5, device=device) for device in (10, "MTIA", 9, "2")]
    trace = load(path, document(events))
    assert [device.index for device in trace.devices] == ["2", "9", "10", "MTIA"]
    assert [device.pid for device in trace.devices] == [None] * 4
    assert "pid" in trace.unknown


def test_the_process_is_the_one_that_launches(path: Path) -> None:
    others = [{**event("cpu_op", "collate", t), "pid": 9} for t in range(5)]
    calls = [{**event("cuda_runtime", "cudaLaunchKernel", 1, correlation=1), "pid": "7"}]
    trace = load(path, document([*others, *calls, kernel("k", 3)]))
    assert trace.devices[0].pid == 7


@pytest.mark.parametrize("odd", [None, 5, "x", [], {"rank": "?"}, {"rank": True}, [{"id": [0]}]])
def test_keys_of_another_type_are_unknown(path: Path, odd: Any) -> None:
    keys = {"distributedInfo": odd, "deviceProperties": odd, "baseTimeNanoseconds": odd}
    device = load(path, document([kernel("k", 3)], **keys)).devices[0]
    assert (device.rank, device.model) == (None, None)


def test_progress_is_told_up_to_the_end(path: Path) -> None:
    path.write_text(document(JOB))
    progress: list[tuple[int, int]] = []
    kineto.read(identify(path), lambda *at: progress.append(at), chunk=1000)
    size = path.stat().st_size
    assert progress[-1] == (size, size)
    assert len(progress) == -(-size // 1000)


# ------------------------------------------------- against a reader that is plain and slow

times = st.integers(0, 10**6) | st.decimals(0, 10**6, places=3).map(float)
records = st.lists(
    st.builds(
        event,
        st.sampled_from(
            ["cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "ac2g", "user_annotation"]
        ),
        st.text(max_size=8),
        times,
        times,
        tid=st.integers(0, 3),
        device=st.integers(0, 2),
        stream=st.integers(0, 2),
        correlation=st.integers(0, 9),
        External_id=st.integers(0, 9),
    ),
    max_size=12,
)


def slow_ns(value: float) -> int:
    return round(value) * 1000 if isinstance(value, int) else round(value * 1000)


@given(records, st.integers(1, 400), st.sampled_from([None, 1, 2]))
@examples(150)
def test_it_reads_what_a_plain_reader_reads(
    tmp_path_factory: pytest.TempPathFactory, events: list[Record], chunk: int, indent: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "plain.json"
    text = json.dumps({"traceEvents": events, "baseTimeNanoseconds": BASE}, indent=indent)
    found = plain(load(path, text, chunk))
    kept = [e for e in events if e["cat"] != "ac2g"]
    zero = min((slow_ns(e["ts"]) for e in kept), default=0)
    spans = [(slow_ns(e["ts"]) - zero, slow_ns(e["dur"]), e) for e in kept]
    work = [s for s in spans if s[2]["cat"] in ("kernel", "gpu_memcpy")]
    host = [s for s in spans if s[2]["cat"] not in ("kernel", "gpu_memcpy")]
    assert found["events"] == len(events)
    assert found["origin"] == BASE + zero
    assert sorted(r[:2] for r in found["host"]) == sorted((s, s + d) for s, d, _ in host)
    assert sorted(r[4] for r in found["host"]) == sorted(e["name"] for *_, e in host)
    for index in {str(e["args"]["device"]) for *_, e in work}:
        (ops,) = (d[5] for d in found["devices"] if d[1] == index)
        mine = [s for s in work if str(s[2]["args"]["device"]) == index]
        assert sorted((n, s, a, b) for n, s, a, b, *_ in ops) == sorted(
            (e["name"], str(e["args"]["stream"]), s, s + d) for s, d, e in mine
        )
