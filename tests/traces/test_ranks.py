"""A folder of ranks is one job: who is late is named with what it costs, or nobody is."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.traces.kineto_text import document, event
from tests.traces.ranks_folder import Job
from tests.traces.xplane_bytes import EPOCH, Plane, space
from whyidle.monitor.core.contracts.trace import RanksJson, TraceJson
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.ranks import job as reading
from whyidle.monitor.traces.ranks.answer import job_answer, of_one_file
from whyidle.monitor.traces.ranks.readers import in_processes

DATA = Path(__file__).parents[1] / "data" / "traces"


def answer(folder: Path, job: Job) -> TraceJson:
    return job_answer([str(job.write(folder))])


def ranks_of(folder: Path, job: Job) -> RanksJson:
    return of_ranks(answer(folder, job))


def of_ranks(whole: TraceJson) -> RanksJson:
    found = whole.get("ranks")
    assert found is not None
    return found


def late_of(found: RanksJson) -> tuple[int | None, float]:
    """Return who is late, and by how many microseconds a step."""
    late = found["straggler"]
    assert late is not None, found["unknown"]
    assert late["late_ns"][0] <= late["late_ns"][1]
    return late["rank"], sum(late["late_ns"]) / 2000


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("late", [0.05, 0.3])
@pytest.mark.parametrize("how", ["constant", "now and then", "one collective"])
def test_a_late_rank_is_named(tmp_path: Path, ranks: int, late: float, how: str) -> None:
    job = Job(ranks, 60 if ranks < 64 else 20, late=late, how=how, who=1)
    found = ranks_of(tmp_path, job)
    who, took = late_of(found)
    assert who == 1
    assert took == pytest.approx(late * job.step_us, rel=0.1)
    assert found["straggler"] is not None
    if how == "one collective":
        name, part = next(iter(found["straggler"]["collectives"].items()))
        assert name == f"AllReduce, {4 << 19} bytes"
        assert part > 0.9


@pytest.mark.parametrize(
    "job",
    [
        Job(8, late=0.1, skew_us=5e6, per_host=4),
        Job(8, late=0.1, skew_us=5e6, notes=False),
        Job(8, late=0.1, begins_later={0: 3, 2: 2}),
        Job(8, late=0.1, begins_later={1: 9}, notes=False),
        Job(8, late=0.1, sequence=True, begins_later={1: 5}),
        Job(8, late=0.2, pairs=True, who=3),
        Job(8, late=0.2, pairs=True, who=3, notes=False, skew_us=1e5),
    ],
    ids=[
        "clocks",
        "no notes",
        "begins later",
        "a step later",
        "numbered",
        "groups",
        "unnamed groups",
    ],
)
def test_it_is_the_same_rank_however_the_files_are(tmp_path: Path, job: Job) -> None:
    found = ranks_of(tmp_path, job)
    who, took = late_of(found)
    assert who == (3 if job.pairs else 7)
    assert took == pytest.approx(job.late * job.step_us, rel=0.1)
    assert found["straggler"] is not None
    assert not found["straggler"]["alike"]
    assert not any("in no other file" in text for text in found["warnings"])


def test_without_steps_it_is_a_part_of_the_time(tmp_path: Path) -> None:
    job = Job(8, late=0.1, marks=False)
    found = ranks_of(tmp_path, job)
    assert late_of(found)[0] == 7
    assert found["straggler"] is not None
    assert sum(found["straggler"]["share"]) / 2 == pytest.approx(job.truth, rel=0.1)


@pytest.mark.parametrize(
    "job",
    [Job(r, noise=n, seed=s) for r in (2, 8, 64) for n in (0.01, 0.1) for s in (0, 1)]
    + [
        Job(8, pairs=True, noise=0.05),
        Job(8, skew_us=1e6, notes=False),
        Job(2, steps=3, noise=0.2),
    ],
    ids=str,
)
def test_a_healthy_job_has_no_late_rank(tmp_path: Path, job: Job) -> None:
    found = ranks_of(tmp_path, job)
    assert found["straggler"] is None
    assert found["unknown"]["straggler"]
    assert found["collectives"] > 0
    assert not found["warnings"]


def test_a_little_late_is_no_straggler(tmp_path: Path) -> None:
    assert ranks_of(tmp_path, Job(8, late=0.01))["straggler"] is None


def test_what_computing_covers_costs_less(tmp_path: Path) -> None:
    """The others compute on through half of each collective."""
    job = Job(4, late=0.2, covers=0.5)
    late = ranks_of(tmp_path, job)["straggler"]
    assert late is not None
    took = 0.2 * job.step_us
    # Of each wait of 5 ms half of the whole 5.5 ms is covered.
    assert late["late_ns"][0] / 1000 == pytest.approx(took - 4 * 0.5 * 5500, rel=0.1)
    assert late["late_ns"][1] / 1000 == pytest.approx(took, rel=0.1)


def test_it_says_what_the_late_rank_does_longer(tmp_path: Path) -> None:
    late = ranks_of(tmp_path, Job(4, late=0.2))["straggler"]
    assert late is not None
    assert late["why"] is not None
    assert late["why"]["slice"] == "compute"
    assert late["why"]["ns"] == pytest.approx(0.2 * 1e8, rel=0.1)


def test_the_job_adds_up_its_files(tmp_path: Path) -> None:
    job = Job(4, late=0.1)
    whole = answer(tmp_path, job)
    each = [contract(analyse(path)) for path in sorted(tmp_path.iterdir())]
    assert whole["events"] == sum(one["events"] for one in each)
    assert whole["budget"]["total_ns"] == sum(one["budget"]["total_ns"] for one in each)
    assert whole["devices"] == [device for one in each for device in one["devices"]]
    assert whole["kernels"] is not None
    assert whole["kernels"]["count"] == sum(k["count"] for one in each if (k := one["kernels"]))
    assert sum(k["share"] for k in whole["top_kernels"]) == pytest.approx(1.0)
    assert [rank["rank"] for rank in of_ranks(whole)["each"]] == [0, 1, 2, 3]
    assert set(each[0]) == set(whole)


def test_communication_by_kind_and_size(tmp_path: Path) -> None:
    job = Job(8, steps=10, pairs=True)
    rows = ranks_of(tmp_path, job)["communication"]
    # Four sizes, in pairs and in groups of four, each in each step of each group.
    assert {(row["bytes"], row["ranks"]): row["count"] for row in rows} == {
        (4 << (18 + turn), ranks): 10 * groups
        for turn in range(4)
        for ranks, groups in ((2, 4), (4, 2))
    }
    for row in rows:
        assert row["waiting_ns"] is not None
        assert 0 < row["waiting_ns"] < row["total_ns"]
        # 500 us for each, as the last to come sees it.
        assert row["gb_per_s"] == pytest.approx((row["bytes"] or 0) / 500e3, rel=0.02)


def test_clocks_are_set_right(tmp_path: Path) -> None:
    found = ranks_of(tmp_path, Job(8, skew_us=1e6))
    clocks = [rank["clock_ns"] for rank in found["each"]]
    assert clocks[0] == 0
    files = Job(8, skew_us=1e6)._play()
    truth = [events[0]["ts"] for events in files]
    for clock, began in zip(clocks, truth, strict=True):
        assert clock is not None
        assert clock / 1000 == pytest.approx(began - truth[0], abs=5)


def test_what_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    Job(8, late=0.1).write(tmp_path)
    (tmp_path / "rank2.json.gz").unlink()
    cut = tmp_path / "rank4.json.gz"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (tmp_path / "config.json").write_text('{"learning_rate": 0.1}')
    head = document(
        [event("cpu_op", "aten::mm", 10 * at, 5) for at in range(9)], deviceProperties=[{"id": 0}]
    )
    (tmp_path / "rank5.json.gz").write_bytes(gzip.compress(head[:-200].encode()))
    whole = job_answer([str(tmp_path)])
    found = of_ranks(whole)
    assert late_of(found)[0] == 7
    assert found["missing"] == [2, 5]
    said = " ".join(found["warnings"])
    assert "No file of ranks 2, 5" in said
    assert "config.json is left out" in said
    assert "rank5.json.gz is left out: The file is cut off" in said
    assert "unequal numbers of steps" in said
    assert any(text.startswith("rank4.json.gz: ") for text in whole["warnings"])


def test_an_older_window_of_a_rank_is_left_out(tmp_path: Path) -> None:
    Job(2, late=0.1).write(tmp_path)
    text = gzip.decompress((tmp_path / "rank0.json.gz").read_bytes())
    older = text.replace(b"1790857026000000000", b"1790857000000000000")
    (tmp_path / "rank0_older.json").write_bytes(older)
    found = of_ranks(job_answer([str(tmp_path)]))
    assert [rank["file"] for rank in found["each"]] == ["rank0.json.gz", "rank1.json.gz"]
    assert "1 older file of ranks that have newer ones: left out." in found["warnings"]


def test_files_of_two_jobs_are_told_apart(tmp_path: Path) -> None:
    Job(2, steps=10).write(tmp_path)
    other = Job(1, steps=7, collectives=3, seed=9).write(tmp_path / "other")
    text = gzip.decompress((other / "rank0.json.gz").read_bytes())
    (tmp_path / "rank2.json").write_bytes(text.replace(b'"rank": 0', b'"rank": 2'))
    (other / "rank0.json.gz").unlink()
    found = of_ranks(job_answer([str(tmp_path)]))
    assert any("in no other file" in text for text in found["warnings"])


def test_a_folder_without_any_trace_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="is a folder"):
        job_answer([str(tmp_path)])
    (tmp_path / "one.json").write_text("{}")
    with pytest.raises(UsageProblem, match="no trace that we read"):
        job_answer([str(tmp_path)])


def xplane_of(files: int, gpus: int, late: float, folder: Path) -> None:
    """Processes of JAX with GPUs of their own; their clocks differ, and nothing says the rank."""
    rng, step, kernel = (
        np.random.default_rng(5),
        10_000_000,
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    )
    planes = [[Plane(f"/device:GPU:{gpu}") for gpu in range(gpus)] for _ in range(files)]
    events: dict[tuple[int, int], list[bytes]] = {}
    now = np.full((files, gpus), 1000.0)
    for turn in range(60):
        work = step * (1 + 0.01 * rng.standard_normal((files, gpus)))
        work[-1, -1] += late * step
        end = float((now + work).max()) + 50_000
        for i, of_file in enumerate(planes):
            for gpu, plane in enumerate(of_file):
                begun, took = float(now[i, gpu]), float(work[i, gpu])
                line = events.setdefault((i, gpu), [])
                line.append(plane.event("fusion", int(begun * 1000), int(took * 1000)))
                at = begun + took
                line.append(plane.event(kernel, int(at * 1000), int((end - at) * 1000)))
        now[:] = end + 1000 * (turn % 3)
    for i, of_file in enumerate(planes):
        for gpu, plane in enumerate(of_file):
            plane.line("Stream #20(compute)", *events[i, gpu], key=20, at=EPOCH + 40_000 * i)
        (folder / f"host{i}.xplane.pb").write_bytes(space(*of_file, hosts=(f"host{i}",)))


def test_gpus_of_jax_on_two_hosts(tmp_path: Path) -> None:
    xplane_of(2, 2, 0.1, tmp_path)
    found = of_ranks(job_answer([str(tmp_path)]))
    late = found["straggler"]
    assert late is not None, found["unknown"]
    assert (late["host"], late["file"], late["device"]) == ("host1", "host1.xplane.pb", "1")
    assert sum(late["share"]) / 2 == pytest.approx(0.1 / 1.1, rel=0.1)
    # One file alone has two of the four.
    analysis = analyse(tmp_path / "host1.xplane.pb")
    alone = of_one_file(analysis, contract(analysis))
    assert alone is not None
    assert alone["straggler"] is not None
    assert (alone["straggler"]["device"], len(alone["each"])) == ("1", 2)
    xplane_of(2, 2, 0.0, tmp_path)
    assert of_ranks(job_answer([str(tmp_path)]))["straggler"] is None


def test_processes_read_what_one_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Job(3, steps=5, late=0.1).write(tmp_path))
    (tmp_path / "none.json").write_text("{}")
    alone = job_answer([folder])
    monkeypatch.setattr(reading, "_SMALL", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert job_answer([folder]) == alone


def test_a_process_that_ends_costs_only_its_own() -> None:
    ends = "__import__('os')._exit(1)"
    got = sorted(in_processes(eval, [ends, "1", ends, "2", "3"], 2))
    assert got == [("1", 1), ("2", 2), ("3", 3), (ends, None), (ends, None)]


def test_processes_do_not_run_the_program_that_asks(tmp_path: Path) -> None:
    folder = Job(3, steps=5, late=0.1).write(tmp_path / "ranks")
    script = tmp_path / "script.py"
    # No guard, as in a notebook or on a page of the dashboard.
    script.write_text(
        "from whyidle.monitor.traces.ranks import answer, job\n"
        "import os; os.sched_getaffinity = lambda _: {0, 1}; job._SMALL = 0\n"
        f"print(len(answer.job_answer([{str(folder)!r}])['ranks']['each']))\n"
    )
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.stderr) == ("3\n", "")


def test_ranks_of_gloo_on_a_crowded_machine() -> None:
    """Two that PyTorch recorded: one sleeps for 30 ms a step, so its own collectives are short."""
    found = of_ranks(job_answer([str(DATA / "gloo_ranks")]))
    who, took = late_of(found)
    assert who == 1
    assert took == pytest.approx(30_000, rel=0.1)
    assert found["communication"][0]["ranks"] == 2
    # What the main thread of the other one waits for is no work of the host's.
    first, late = (each["budget"] for each in found["each"])
    total = sum(first["slices"].values())
    assert first["slices"][Slice.EXPOSED_COMM] > 0.9 * total
    assert late["slices"][Slice.EXPOSED_COMM] < 0.1 * total
