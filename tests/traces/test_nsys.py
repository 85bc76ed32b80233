"""Exports of Nsight Systems: the same story gives the same account as Kineto's file of it."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.kineto_text import load as load_kineto
from tests.traces.nsys_file import (
    EPOCH_NS,
    GENERATIONS,
    PID,
    Export,
    Generation,
    Op,
    Span,
    Story,
    as_kineto,
    put_op,
    put_span,
    story_of,
    write,
)
from tests.traces.real import KINETO, TRUTHS, path_of
from tests.traces.test_truth import COLUMNS, expected
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.signals.opening import of_answer
from whyidle.monitor.traces import spill, stretches
from whyidle.monitor.traces.analysis import analyse, analyse_trace
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.corrections import correct
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.nsys import database, distinct

US, MS = 1_000, 1_000_000
STEPS, STEP = 20, 2 * MS


def training(*, step: str = "ProfilerStep#{}") -> tuple[Story, dict[str, int]]:
    """A job of known shape, and its truth in nanoseconds, counted beside it.

    Each step: 400 µs in the loader; a copy of pageable memory, waited for; two kernels of 300 µs,
    the second 50 µs after the first; an all-reduce of 200 µs of which 100 µs are hidden; a sync.
    """
    story, truth = Story(), dict.fromkeys(("compute", "comm", "copy"), 0)
    ids = iter(range(1, 10_000))
    for number in range(STEPS):
        at = 10 * MS + number * STEP
        story.spans.append(Span("step", step.format(number), at, at + STEP))
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        story.spans.append(Span("operator", loader, at, at + 400 * US))
        copy, one, two, reduce = (next(ids) for _ in range(4))
        call = Span("call", "cudaMemcpyAsync", at + 400 * US, at + 520 * US, correlation=copy)
        story.spans.append(call)
        way = ("HtoD", "Pageable", "Device")
        story.ops.append(Op("", at + 410 * US, at + 510 * US, copy, bytes=1 << 20, way=way))
        for kernel, begin in ((one, 530), (two, 880)):
            story.spans.append(Span("operator", "aten::mm", at + (begin - 8) * US, at + begin * US))
            story.spans.append(Span("call", "cudaLaunchKernel", at + (begin - 6) * US,
                                    at + (begin - 1) * US, correlation=kernel))  # fmt: skip
            story.ops.append(Op("ampere_sgemm_128x64_tn", at + begin * US,
                                at + (begin + 300) * US, kernel))  # fmt: skip
        story.spans.append(Span("call", "cudaLaunchKernel", at + 900 * US, at + 904 * US,
                                correlation=reduce))  # fmt: skip
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        story.ops.append(Op(name, at + 1080 * US, at + 1280 * US, reduce, stream=20))
        story.spans.append(Span("call", "cudaStreamSynchronize", at + 910 * US, at + 1290 * US))
        truth["compute"] += 600 * US
        truth["comm"] += 100 * US
        truth["copy"] += 100 * US
    return story, truth


def of_kineto(story: Story, folder: Path) -> dict[str, Any]:
    trace = load_kineto(folder / "story.json", as_kineto(story))
    correct(trace)
    return dict(contract(analyse_trace(folder / "story.json", trace)))


def of_export(story: Story, folder: Path, generation: Generation) -> dict[str, Any]:
    return dict(contract(analyse(write(story, folder / "story.sqlite", generation))))


def figures(answer: dict[str, Any]) -> dict[str, Any]:
    """What an answer says of time, without the words for where it was read."""
    devices = [
        {key: value for key, value in device.items() if key not in ("host", "unknown")}
        for device in answer["devices"]
    ]
    same = ("budget", "step_budget", "top_kernels", "copies", "collectives", "calls", "launching")
    return {"devices": devices, "steps": answer["steps"]} | {key: answer[key] for key in same}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_planted_story_has_its_planted_budget(tmp_path: Path, generation: Generation) -> None:
    story, truth = training()
    answer = of_export(story, tmp_path, generation)
    assert (answer["format"], answer["warnings"]) == ("nsys", [])
    assert answer["steps"]["count"] == STEPS
    assert answer["steps"]["median_ns"] == STEP
    slices = answer["budget"]["slices"]
    assert slices["compute"] == truth["compute"]
    assert slices["exposed_comm"] == truth["comm"]
    assert slices["exposed_copy"] == truth["copy"]
    assert sum(slices.values()) == (STEPS - 1) * STEP + (1280 - 410) * US
    # The first loader comes before the first operation.
    assert slices["idle_input"] == (STEPS - 1) * 400 * US
    (copy,) = answer["copies"]
    assert (copy["direction"], copy["memory"]) == ("host to device", "pageable")
    assert copy["bytes"] == STEPS << 20
    (device,) = answer["devices"]
    assert (device["pid"], device["index"], device["comm_kernels"]) == (PID, "0", STEPS)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_account_is_that_of_the_same_story_as_kineto(
    tmp_path: Path, generation: Generation
) -> None:
    story, _ = training()
    export = figures(of_export(story, tmp_path, generation))
    assert export == figures(of_kineto(story, tmp_path))


@pytest.mark.parametrize("name", KINETO)
def test_a_real_job_has_the_same_account_as_an_export(name: str, tmp_path: Path) -> None:
    story = story_of(path_of(name))
    answer = of_export(story, tmp_path, 2026)
    wanted = expected(TRUTHS[name])
    found = {device["index"]: device for device in answer["devices"]}
    assert found.keys() == wanted.keys()
    for index, truth in wanted.items():
        assert {key: found[index][key] for key in COLUMNS} == {key: truth[key] for key in COLUMNS}
    kineto = of_kineto(story, tmp_path)
    assert answer["budget"]["slices"] == kineto["budget"]["slices"]
    assert answer["steps"] == kineto["steps"]


def test_the_machine_is_what_the_file_says(tmp_path: Path) -> None:
    story, _ = training()
    path = write(story, tmp_path / "a.sqlite", 2024)
    trace = load(path)
    assert trace.origin_ns == EPOCH_NS + 10 * MS
    assert [d.model for d in trace.devices] == ["NVIDIA H100 80GB HBM3"]
    assert [d.host for d in trace.devices] == ["node7"]
    assert [(t.label, t.pid, t.main) for t in trace.threads] == [(f"python {PID}", PID, True)]
    # An export of 2021 has no session start, and says nothing of its machine.
    old = load(write(story, tmp_path / "b.sqlite", 2021))
    assert old.origin_ns is None
    assert "host" in old.unknown


def test_gzip_makes_no_difference(tmp_path: Path) -> None:
    story, _ = training()
    plain = write(story, tmp_path / "a.sqlite")
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    both = [figures(dict(contract(analyse(path)))) for path in (plain, packed)]
    assert both[0] == both[1]


def test_ranks_of_one_file_launch_their_own_work(tmp_path: Path) -> None:
    """Two processes count their calls alike; the second is 300 µs late."""
    one, _ = training()
    late = 300 * US
    two = Story(
        [Op(o.name, o.start + late, o.end + late, o.correlation, 0, o.stream, 77, o.bytes, o.way)
         for o in one.ops],
        [Span(s.what, s.name, s.start + late, s.end + late, 77, 77, s.correlation)
         for s in one.spans],
    )  # fmt: skip
    export = Export(tmp_path / "ranks.sqlite", 2026)
    for gpu, pid in ((0, PID), (1, 77)):
        export.put("TARGET_INFO_GPU", id=gpu, name=f"GPU of {pid}")
        # Each process sees one GPU only, which is its number 0.
        export.put("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    export.close()
    both = write_more(tmp_path / "ranks.sqlite", one, two)
    answer = dict(contract(analyse(both)))
    devices = {d["index"]: d for d in answer["devices"]}
    assert [(i, d["pid"], d["model"]) for i, d in devices.items()] == [
        ("0", PID, f"GPU of {PID}"), ("1", 77, "GPU of 77"),
    ]  # fmt: skip
    assert devices["0"]["budget"] == devices["1"]["budget"]
    assert answer["launching"]["launched"] == answer["launching"]["operations"]


def write_more(path: Path, *stories: Story) -> Path:
    export = Export(path.with_suffix(".tmp"), 2026)
    export.db.close()
    export.db = sqlite3.connect(path)
    export._made = {row[0] for row in export.db.execute("SELECT name FROM sqlite_master")}
    for story in stories:
        for op in story.ops:
            put_op(export, op)
        for number, span in enumerate(story.spans, 1):
            put_span(export, span, number)
    export.close()
    return path


def test_two_processes_on_one_gpu_are_told_apart(tmp_path: Path) -> None:
    story = Story([Op("k", i * MS, i * MS + 500, i + 1, pid=pid)
                   for i in range(1, 9) for pid in (1, 2)])  # fmt: skip
    trace = load(write(story, tmp_path / "a.sqlite"))
    assert [(d.index, d.pid, len(d.ops)) for d in trace.devices] == [("0", 1, 8), ("0", 2, 8)]
    assert any("2 processes have work on GPU 0" in warning for warning in trace.warnings)


# ---------------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    "step",
    ["step {}", "Iteration {}/20", "iter_{}", "train_step", "[pl][profile]run_training_batch",
     "TrainStep #{}", "epoch 3, batch {}", "Step: {} loss"],
)  # fmt: skip
def test_ranges_of_many_spellings_are_steps(tmp_path: Path, step: str) -> None:
    story, _ = training(step=step)
    # The range ends before the next begins, as one around the body of a loop does.
    story.spans = [
        Span(s.what, s.name, s.start + 400 * US, s.end) if s.what == "step" else s
        for s in story.spans
    ]
    answer = of_export(story, tmp_path, 2026)
    assert (answer["steps"]["source"], answer["steps"]["count"]) == ("markers", STEPS)
    assert answer["steps"]["median_ns"] == STEP


@pytest.mark.parametrize("name", ["optimizer_step", "validation_step {}", "batch_to_device",
                                  "micro_batch {}", "forward", "lr_scheduler.step"])  # fmt: skip
def test_other_ranges_are_no_steps(tmp_path: Path, name: str) -> None:
    story, _ = training(step=name)
    answer = of_export(story, tmp_path, 2026)
    # What repeats in the kernels says it then.
    assert (answer["steps"]["source"], answer["steps"]["count"]) == ("repetition", STEPS)


def test_a_range_says_where_the_program_is_and_owns_no_time(tmp_path: Path) -> None:
    story, _ = training()
    bare = of_export(story, tmp_path, 2026)
    last = max(op.end for op in story.ops)
    story.spans.append(Span("place", "training", 0, last))
    story.spans += [Span("place", "forward", s.start, s.end) for s in story.spans
                    if s.what == "step"]  # fmt: skip
    ranged = of_export(story, tmp_path, 2026)
    assert ranged["budget"] == bare["budget"]
    assert {"forward", "training"} <= {call["name"] for call in ranged["calls"]}


@pytest.mark.parametrize(
    ("name", "part"),
    [("data loading", "idle_input"), ("next_batch", "idle_input"), ("Data", "idle_input"),
     ("save_checkpoint", "idle_io"), ("forward", "idle_unknown")],
)  # fmt: skip
def test_a_range_that_names_its_work_owns_the_wait(tmp_path: Path, name: str, part: str) -> None:
    story = Story()
    for i in range(1, 11):
        at = i * 10 * MS
        story.spans.append(Span("place", name, at, at + 8 * MS))
        story.spans.append(Span("call", "cudaLaunchKernel", at + 8 * MS, at + 8 * MS + 5 * US,
                                correlation=i))  # fmt: skip
        story.ops.append(Op("gemm", at + 8 * MS + 10 * US, at + 10 * MS, i))
    slices = of_export(story, tmp_path, 2026)["budget"]["slices"]
    assert slices[part] >= 9 * 8 * MS


def test_waits_of_other_threads_explain_nothing(tmp_path: Path) -> None:
    """Pools of threads wait all day; what the launching thread waits for is known."""
    story, _ = training()
    bare = of_export(story, tmp_path, 2026)
    last = max(op.end for op in story.ops)
    for tid in range(5000, 5008):
        story.spans.append(Span("wait", "pthread_cond_wait", 0, last, tid=tid))
    assert of_export(story, tmp_path, 2026)["budget"] == bare["budget"]
    own = Story([Op("k", i * 10 * MS, i * 10 * MS + MS, i) for i in range(1, 9)])
    for i in range(1, 9):
        at = i * 10 * MS
        own.spans.append(Span("call", "cudaLaunchKernel", at - 20 * US, at - 5 * US, correlation=i))
        own.spans.append(Span("wait", "sem_timedwait", at + 2 * MS, at + 9 * MS))
    details = of_export(own, tmp_path, 2026)["budget"]["details"]
    assert details["idle_unknown"]["Python waits"] == 7 * 7 * MS


def test_a_job_of_jax_is_known_by_its_ranges(tmp_path: Path) -> None:
    story = Story()
    for i in range(1, 21):
        at = i * MS
        module = f"XlaModule:#hlo_module=jit_train_step,program_id={i % 3}#"
        story.spans.append(Span("place", module, at, at + 100 * US))
        story.spans.append(Span("place", "Thunk:#hlo_op=fusion.3#", at + 5 * US, at + 30 * US))
        story.spans.append(Span("call", "cuLaunchKernel", at + 10 * US, at + 14 * US,
                                correlation=i))  # fmt: skip
        story.ops.append(Op("loop_fusion_3", at + 20 * US, at + 600 * US, i))
    story.spans.append(Span("place", "XlaCompile:#module=jit_train_step#", 0, 900 * US))
    answer = of_export(story, tmp_path, 2026)
    counted = {call["name"]: call["count"] for call in answer["calls"]}
    assert (counted["XlaModule:jit_train_step"], counted["Thunk:fusion.3"]) == (20, 20)
    assert of_answer(answer, "a.sqlite").frameworks == ("jax",)  # type: ignore[arg-type]
    assert answer["steps"]["count"] >= 19


def test_the_findings_are_those_of_the_same_story_as_kineto(tmp_path: Path) -> None:
    story, _ = training()
    both = [
        as_json(diagnose(of_answer(answer, "trace"))).findings  # type: ignore[arg-type]
        for answer in (of_export(story, tmp_path, 2024), of_kineto(story, tmp_path))
    ]
    assert both[0] == both[1]
    assert "pageable_copies" in {finding.rule for finding in both[0]}


# ---------------------------------------------------------------------- graphs, overhead


def test_a_graph_recorded_as_a_whole_is_work(tmp_path: Path) -> None:
    story = Story()
    for i in range(1, 11):
        at = i * MS
        story.spans.append(Span("call", "cudaGraphLaunch", at, at + 20 * US, correlation=i))
        story.ops.append(Op("", at + 30 * US, at + 800 * US, i, way=("graph",)))
    answer = of_export(story, tmp_path, 2026)
    assert answer["budget"]["slices"]["compute"] == 10 * 770 * US
    assert answer["missing"]["graph_launches"] == answer["missing"]["graph_launches_shown"] == 10
    assert any("--cuda-graph-trace=node" in warning for warning in answer["warnings"])
    assert answer["top_kernels"][0]["name"] == "CUDA graph 3"


def test_what_the_profiler_costs_is_told(tmp_path: Path) -> None:
    story, _ = training()
    story.spans += [
        Span("overhead", "CUDA profiling data flush overhead", s.start + 1400 * US,
             s.start + 1900 * US)
        for s in story.spans if s.what == "step"
    ]  # fmt: skip
    details = of_export(story, tmp_path, 2026)["budget"]["details"]
    assert details["idle_unknown"]["the profiler itself"] == (STEPS - 1) * 500 * US


def test_kinds_of_copies(tmp_path: Path) -> None:
    ways = [("HtoD", "Pinned", "Device"), ("DtoH", "Device", "Pageable"),
            ("DtoH", "Device", "Pinned"), ("DtoD", "Device", "Device"),
            ("PtoP", "Device", "Device"), ("set", "Device")]  # fmt: skip
    ops = [Op("", i * MS, i * MS + 10, i + 1, bytes=8, way=way) for i, way in enumerate(ways, 1)]
    trace = load(write(Story(ops), tmp_path / "a.sqlite", 2021))
    assert trace.devices[0].ops.kind.tolist() == [
        Cause.H2D, Cause.D2H_PAGEABLE, Cause.D2H, Cause.D2D, Cause.P2P, Cause.MEMSET,
    ]  # fmt: skip


def test_counters_of_gpus_are_averaged(tmp_path: Path) -> None:
    story, _ = training()
    path = write(story, tmp_path / "a.sqlite")
    assert contract(analyse(path))["gpu_metrics"] == []
    export = Export(tmp_path / "b.sqlite", 2026)
    for metric, name in ((1, "SMs Active [Throughput %]"), (2, "Tensor Active [Throughput %]")):
        export.put("TARGET_INFO_GPU_METRICS", typeId=9, metricId=metric, metricName=name,
                   typeName="GPU 0")  # fmt: skip
    for at in range(100):
        export.put("GPU_METRICS", timestamp=at, typeId=9, metricId=1, value=at % 2 * 50)
        export.put("GPU_METRICS", timestamp=at, typeId=9, metricId=3, value=7)
    export.put("GPU_METRICS", timestamp=5, typeId=9, metricId=1, value="much")
    export.close()
    answer = contract(analyse(write_more(tmp_path / "b.sqlite", story)))
    assert answer["gpu_metrics"] == [
        {"gpu": "GPU 0", "name": "SMs Active [Throughput %]", "mean": 25.0, "samples": 100}
    ]


def in_parts(patch: pytest.MonkeyPatch) -> None:
    """Let a small file be too long for memory."""
    for module in (spill, stretches):
        patch.setattr(module, "MOST_ROWS", 300)
    patch.setattr(stretches, "_AFTER", 128)
    patch.setattr(database, "ROWS", 40)


@pytest.mark.parametrize("step", ["ProfilerStep#{}", "train_step {}"])
def test_of_a_long_file_the_account_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Steps are joined up over all parts; two processes on one GPU stay two devices."""
    story, _ = training(step=step)
    others = [replace(op, pid=PID + 1, start=op.start + 7, correlation=0) for op in story.ops[1::2]]
    story.ops += others
    story.spans = [
        replace(span, end=span.end - MS) if span.what == "step" else span for span in story.spans
    ]
    path = write(story, tmp_path / "a.sqlite")
    whole = figures(contract(analyse(path)))
    in_parts(monkeypatch)
    assert len(list(load(path).stretches or ())) > 1
    parts = contract(analyse(path))
    assert any("it was read part by part" in said for said in parts["warnings"])
    assert any("2 processes have work on GPU 0" in said for said in parts["warnings"])
    assert figures(parts) == whole


def test_of_a_long_file_the_steps_are_of_the_process_that_launches_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, _ = training()
    # Another process marks steps for longer, and launches nothing.
    story.spans += [
        Span("step", f"ProfilerStep#{i}", at := 2 * i * STEP, at + 2 * STEP, PID + 1, PID + 1)
        for i in range(2 * STEPS)
    ]
    path = write(story, tmp_path / "a.sqlite")
    whole = contract(analyse(path))["steps"]
    assert whole["count"] == STEPS
    in_parts(monkeypatch)
    assert contract(analyse(path))["steps"] == whole


def test_a_long_file_may_be_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(training()[0], tmp_path / "a.sqlite")
    whole = contract(analyse(path))
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType) VALUES ('soon', 7, 59)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end) VALUES (0, 0)")
        db.execute("DROP TABLE StringIds")
        db.commit()
    in_parts(monkeypatch)
    parts = contract(analyse(path))
    assert "2 events could not be read: no time that can be." in parts["warnings"]
    assert {kernel["name"] for kernel in parts["top_kernels"]} == {"(no name)"}
    assert parts["devices"][0]["busy_ns"] == whole["devices"][0]["busy_ns"]


def test_many_numbers_are_each_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "_MOST_WAITING", 10)
    found, rng = distinct.Distinct(), np.random.default_rng(3)
    blocks = [rng.integers(-5, 90, 20) for _ in range(50)]
    for block in blocks:
        found.add(block)
    assert found.values().tolist() == np.unique(np.concatenate(blocks)).tolist()
