"""A file too long for memory: the account that it would have if there were room."""

from __future__ import annotations

import copy
import errno
import gzip
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import kineto_file
from tests.longer import many
from tests.traces import nsys_file
from tests.traces.kineto_text import document, event, kernel
from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.traces import spill, stretches
from whyidle.monitor.traces.analysis import Analysis, analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.kineto import reading
from whyidle.monitor.traces.kineto.rows import HostRows, WorkRows
from whyidle.monitor.traces.nsys import database
from whyidle.monitor.traces.ranks.member import members
from whyidle.monitor.traces.stream import ahead

REAL = Path(__file__).parents[1] / "data" / "traces" / "real" / "kineto"
# Steps that nothing marks are counted within each part: those of these files have markers.
MARKED = [
    "a100_nccl_small", "h100_owlv2", "resnet50_b_workers0", "resnet50_b_workers4",
    "v100_2rank_nccl", "v100_resnet50_workers0", "v100_resnet50_workers4",
]  # fmt: skip


def in_parts(path: Path, rows: int, block: int = 1 << 16) -> Analysis:
    """Analyse a file as if memory had room for so many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "MOST_ROWS", rows)
        patch.setattr(stretches, "MOST_ROWS", rows)
        patch.setattr(reading, "ahead", lambda stream, _: ahead(stream, block))
        patch.setattr(database, "ROWS", block >> 8)
        patch.setattr(stretches, "_AFTER", 512)
        analysis = analyse(path)
    assert analysis.trace.stretches is not None
    return analysis


def answers(path: Path, rows: int, block: int = 1 << 16) -> tuple[Any, Any]:
    whole, parts = contract(analyse(path)), contract(in_parts(path, rows, block))
    assert parts["warnings"][0].startswith("The file has ")
    return whole, parts


def nearly(one: dict[str, int], other: dict[str, int], part: float, all_: int) -> None:
    """The same sums, but for what an edge may move from one to the other."""
    assert sum(one.values()) == sum(other.values())
    for name in {*one, *other}:
        assert abs(one.get(name, 0) - other.get(name, 0)) <= part * all_, name


@pytest.mark.parametrize("name", MARKED)
def test_a_recorded_file_has_the_same_answer(name: str) -> None:
    whole, parts = answers(REAL / f"{name}.json.gz", 12_000)
    the_same(whole, parts)
    for one, other in zip(whole["where"][:3], parts["where"][:3], strict=True):
        assert (one["file"], one["line"], one["slice"]) == (
            other["file"], other["line"], other["slice"],
        )  # fmt: skip
        assert other["ns"] == pytest.approx(one["ns"], rel=0.05)


@pytest.mark.parametrize("name", MARKED)
def test_an_export_has_the_same_answer(tmp_path: Path, name: str) -> None:
    story = nsys_file.story_of(REAL / f"{name}.json.gz")
    the_same(*answers(nsys_file.write(story, tmp_path / "a.sqlite"), 12_000))


def the_same(whole: Any, parts: Any) -> None:
    """The same answer, but for a gap that an edge cuts."""
    for one, other in zip(whole["devices"], parts["devices"], strict=True):
        for budget in ("budget", "step_budget"):
            a, b = one.pop(budget), other.pop(budget)
            nearly(a["slices"], b["slices"], 1e-5, a["total_ns"])
            assert a["steps"] == b["steps"]
        assert one == other
    for part in ("kernels", "collectives", "copies", "steps", "events", "missing", "unknown"):
        assert whole[part] == parts[part], part
    assert {k["name"]: k["total_ns"] for k in whole["top_kernels"]} == {
        k["name"]: k["total_ns"] for k in parts["top_kernels"]
    }
    assert whole["calls"] == parts["calls"]
    assert whole["launching"] == parts["launching"]


@pytest.mark.parametrize("name", ["cpu_plain", "cpu_steps_stacks"])
def test_a_cpu_has_the_same_account(name: str) -> None:
    whole, parts = answers(REAL.parents[1] / "kineto" / f"{name}.json.gz", 600, 1 << 15)
    ((one,), (other,)) = whole["devices"], parts["devices"]
    nearly(one["budget"]["slices"], other["budget"]["slices"], 1e-3, one["budget"]["total_ns"])
    assert {n: one[n] for n in ("busy_ns", "span_ns", "kind")} == {
        n: other[n] for n in ("busy_ns", "span_ns", "kind")
    }


def test_launches_in_one_part_say_what_the_device_is(tmp_path: Path) -> None:
    file = REAL.parents[1] / "kineto" / "cpu_plain.json.gz"
    document = json.loads(gzip.decompress(file.read_bytes()))
    events = [e for e in document["traceEvents"] if e.get("cat") == "cpu_op"]
    document["traceEvents"] += [
        {**e, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": at}}
        for at, e in enumerate(sorted(events, key=lambda e: e["ts"])[:50])
    ]
    path = tmp_path / "launches.json"
    path.write_text(json.dumps(document))
    for found in (analyse(path), in_parts(path, 600)):
        answer = contract(found)
        assert answer["devices"] == []
        assert any("50 launches" in said for said in answer["warnings"])


def test_its_communication_stays_for_the_other_ranks() -> None:
    path = REAL / "v100_2rank_nccl.json.gz"
    (whole,), (parts,) = members(analyse(path)), members(in_parts(path, 6_000))
    assert len(parts) > 0
    for name in ("start", "end", "what", "group", "bytes", "step_start", "step_number"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist(), name
    assert np.allclose(whole.covered, parts.covered)


def invented(rng: random.Random) -> list[dict[str, Any]]:
    """Two devices and three threads; the second device works now and then only."""
    found: list[dict[str, Any]] = []
    now = 1_000
    for i in range(rng.randrange(300, 600)):
        now += rng.choice((3, 10, 10, 40, 3_000))
        thread = rng.choice((7, 71, 72))
        found.append(event("cpu_op", rng.choice(("aten::add", "aten::mm")), now, 9, tid=thread))
        name = rng.choice(("cudaLaunchKernel", "cudaLaunchKernel", "cudaDeviceSynchronize"))
        found.append(event("cuda_runtime", name, now + 1, 5, correlation=i, tid=thread))
        if "Launch" in name:
            device = int(250 < i < 280 and rng.random() < 0.3)
            late = now + 7 + rng.choice((0, 2, 900))
            found.append(kernel("gemm", late, rng.randrange(1, 60), correlation=i, device=device))
        if i % 40 == 0:
            found.append(event("user_annotation", f"ProfilerStep#{i // 40}", now, 1_500, tid=7))
    found.append(event("python_function", "train.py(3): train", 900, now, tid=7))
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("seed", range(many(60)))
def test_invented_files_have_the_same_account(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "trace.json"
    path.write_text(document(invented(random.Random(seed))))
    whole, parts = answers(path, random.Random(seed).choice((200, 500)), 4_096)
    for one, other in zip(whole["devices"], parts["devices"], strict=True):
        total = one["budget"]["total_ns"]
        # A gap that an edge cuts is judged in two parts, and here each has a share of the time.
        nearly(one["budget"]["slices"], other["budget"]["slices"], 0.02, total)
        nearly(one["step_budget"]["slices"], other["step_budget"]["slices"], 0.02, total)
        for name in ("busy_ns", "idle_ns", "compute_ns", "kernels", "span_ns"):
            assert one[name] == other[name], name
    assert whole["kernels"] == parts["kernels"]
    assert whole["calls"] == parts["calls"]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """What remains of an operation is how long its launch and the wait for it took: eight bytes."""
    peaks, counts = [], (150_000, 450_000)
    for events in counts:
        path = tmp_path / f"{events}.json.gz"
        kineto_file.write(path, events)
        tracemalloc.start()
        in_parts(path, 20_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Parts as small as these also cost what each of them keeps of names.
    assert peaks[1] - peaks[0] < 8 * (counts[1] - counts[0])


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill, "_write", full)
    with pytest.raises(StorageProblem, match="no room for its rows: No space left") as told:
        in_parts(REAL / "v100_2rank_nccl.json.gz", 6_000)
    assert "TMPDIR=" in told.value.next_step


def test_rows_come_back_from_disk_by_their_starts() -> None:
    rng, kept = np.random.default_rng(5), spill.Spill(HostRows, WorkRows)
    rows = WorkRows.of(start=rng.integers(0, 10_000, 5_000), end=np.arange(5_000))
    for first in range(0, 5_000, 900):
        part = rows.take(slice(first, first + 900))
        kept.take(HostRows.of(), copy.copy(part))
    for a, b in ((0, 10_000), (17, 18), (4_000, 6_500), (9_999, 20_000), (50, 50)):
        wanted = np.flatnonzero((rows.start >= a) & (rows.start < b))
        found = kept.work.between(a, b)
        assert sorted(found["place"].tolist()) == wanted.tolist()
        assert (rows.start[found["place"]] == found["start"]).all()
