"""Who holds the memory, whether it grows, and what goes over the links."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.gpu_jobs import LEAK, Job, job
from tests.dashboard.stores import GIB
from whyidle.dashboard.views import job as jobs
from whyidle.dashboard.views import memory, transfers
from whyidle.dashboard.views import time_range as spans
from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Series, SeriesSource, Subject
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.store import NewRun, Process, Reader, Run, Writer


@pytest.fixture
def made(tmp_path: Path) -> Job:
    found = job(tmp_path / DATABASE, gpus=2, others=1, seconds=300)
    found.end()
    return found


@pytest.fixture
def reader(made: Job) -> Iterator[Reader]:
    with Reader.open(made.writer.path) as opened:
        yield opened


@pytest.fixture
def run(reader: Reader) -> Run:
    return reader.find("last")


def test_a_leak_is_shown_with_its_pace_and_its_end(made: Job) -> None:
    grown, why = memory.growth(made.writer.path, made.run)
    pool = next(one for one in grown if one.metric is m.PROCESS_POOL_USED)
    assert why is None
    assert pool.grows
    assert pool.per_hour == pytest.approx(LEAK * 3600, rel=0.05)
    # What is free on the fullest of the job's GPUs, not in the machine.
    assert pool.full_in_s == pytest.approx(97 * GIB / LEAK, rel=0.1)
    still = next(one for one in grown if one.metric is m.JOB_RSS)
    assert not still.grows
    assert still.full_in_s is None


def test_a_gpu_is_full_when_what_is_free_now_is_used_up(tmp_path: Path) -> None:
    grows = job(tmp_path / "grows" / DATABASE, gpus=1, seconds=0)
    first = grows.ts_ms
    ticks = [grows._tick(first + i * 1000) for i in range(300)]
    for second, tick in enumerate(ticks):
        of_gpu = tick.rows[Scope.GPU][grows.gpus[0]].values
        of_gpu[m.GPU_MEMORY_USED] = 20 * GIB + second * 300e6
        tick.rows[Scope.PROCESS][grows.ranks[0]].values[m.PROCESS_POOL_USED] = second * 300e6 + 1e9
    assert grows.writer.append_many(grows.run, ticks)
    grows.end()
    grown, _ = memory.growth(grows.writer.path, grows.run)
    pool = next(one for one in grown if one.metric is m.PROCESS_POOL_USED)
    assert pool.full_in_s == pytest.approx((121 * GIB - 299 * 300e6) / 300e6, rel=0.02)


def test_growth_of_a_short_run_says_what_it_needs(tmp_path: Path) -> None:
    short = job(tmp_path / "short" / DATABASE, gpus=1, seconds=3)
    short.end()
    assert memory.growth(short.writer.path, short.run) == ([], "a longer recording")


def test_each_process_on_the_shown_gpus_is_listed(reader: Reader, run: Run) -> None:
    gpus = jobs.gpus(reader, run, everything=False)
    found = memory.holders(reader, run, gpus.shown)
    assert [(one.gpu, one.pid, one.is_ours) for one in found] == [
        ("GPU 0", 100, True), ("GPU 1", 101, True),
    ]  # fmt: skip
    assert found[0].memory == 40 * GIB
    assert memory.holders(reader, run, gpus.shown[:1]) == found[:1]


def test_only_the_gpus_of_the_job_are_shown_unless_all_are_wanted(reader: Reader, run: Run) -> None:
    mine = jobs.gpus(reader, run, everything=False)
    everything = jobs.gpus(reader, run, everything=True)
    assert [gpu.name for gpu in mine.shown] == ["GPU 0", "GPU 1"]
    assert mine.others == 1
    assert [gpu.name for gpu in everything.shown] == ["GPU 0", "GPU 1", "GPU 2"]
    assert everything.mine == mine.shown
    assert [gpu.name for gpu in mine.one("1")] == ["GPU 1"]
    assert mine.one("7") == mine.shown


def test_the_parts_of_a_process_follow_each_other() -> None:
    first = Series("a", m.PROCESS_POOL_USED, (1, 2), (1.0, None), (1.0, None), (1.0, None))
    later = Series("a", m.PROCESS_POOL_USED, (2, 3), (2.0, 3.0), (2.0, 3.0), (2.0, 3.0))
    found = memory.joined([later, first], "used")
    assert (found.name, list(found.times), list(found.values)) == ("used", [1, 2, 3], [1, 2, 3])
    lost = Series("a", m.PROCESS_POOL_USED, unknown="no agent")
    assert memory.joined([lost, lost], "used").unknown == "no agent"


def test_those_that_train_have_pools_and_loaders_are_left_out(reader: Reader, run: Run) -> None:
    found = jobs.trainers(reader, run)
    assert [one.name for one in found] == ["rank 0", "rank 1"]
    source = SeriesSource(reader, run.id, spans.of(reader, run, spans.ALL, 0))
    used, reserved, peak, live = memory.pools(source, found[0].subjects)
    assert used.last is not None
    assert reserved.last == used.last + 4 * GIB
    assert peak.last == used.last + 3 * GIB
    assert live.unknown


def test_a_process_that_died_holds_nothing_any_more(tmp_path: Path) -> None:
    made = job(tmp_path / "again" / DATABASE, gpus=2, seconds=120)
    run, old = made.run, made.ranks[0]
    with Reader.open(made.writer.path) as reader:
        info = dict(reader.find("last").info or {})
        info["processes"] = [*info["processes"], {**info["processes"][0], "start_ticks": 9000}]
        made.writer.describe_run(run, info=info)
        new = made.writer.add_process(run, pid=100, start_ticks=9000, name="train.py", rank=0)
        made.ranks[0] = new
        made.more(60)
        whose = jobs.trainers(reader, reader.find("last"))
        assert [(one.name, one.subjects[0].id) for one in whose] == [
            ("rank 0", old), ("rank 1", made.ranks[1]),
        ]  # fmt: skip
        assert whose[0].subjects[-1].id == new
        source = SeriesSource(reader, run, spans.of(reader, reader.find("last"), "5m", made.ts_ms))
        held = memory.held(source, m.PROCESS_POOL_USED, whose, made.ts_ms)
        assert [one.last for one in held] == [(12 + i) * GIB + 179 * LEAK for i in range(2)]
        gone = memory.held(source, m.PROCESS_POOL_USED, whose, made.ts_ms + 60_000)
        assert [one.last for one in gone] == [None, None]
    made.end()


def test_a_process_that_has_the_number_of_one_of_ours_is_not_ours(
    made: Job, reader: Reader, run: Run
) -> None:
    gpus = jobs.gpus(reader, run, everything=True).shown
    for info, expected in (
        ({"processes": [{**run.info["processes"][0], "start_ticks": 1}]}, [False, False]),  # type: ignore[index]
        (run.info, [True, True]),
    ):
        found = memory.holders(reader, replace(run, info=info, target_pid=None), gpus)
        assert [one.is_ours for one in found] == expected
    child = Process(id=1, run=1, pid=500, start_ticks=50, parent_pid=100)
    assert memory._is_ours(child, {(100, 40)})
    assert memory._is_ours(child, {(100, None)})
    assert not memory._is_ours(child, {(100, 60)})


def test_a_process_known_to_hold_nothing_is_listed(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "zero" / DATABASE) as writer:
        run = writer.begin_run(NewRun())
        gpu = writer.add_gpu(run, idx="0")
        pair = writer.add_gpu_process(gpu, writer.add_process(run, pid=7, start_ticks=1))
        idle = {Scope.GPU_PROCESS: {pair: Reading({m.PROCESS_GPU_MEMORY: 0.0})}}
        writer.append(run, Tick(time.time_ns() // 1_000_000, idle))
    with Reader.open(tmp_path / "zero" / DATABASE) as reader:
        found = memory.holders(reader, reader.find("last"), [Subject(gpu, "GPU 0")])
    assert [(one.pid, one.memory, one.share) for one in found] == [(7, 0.0, None)]


def test_a_link_is_shown_with_its_limit_and_what_it_could_be(reader: Reader, run: Run) -> None:
    gpus = jobs.gpus(reader, run, everything=False)
    link = transfers.link(Newest.of(reader, run), gpus.rows[0])
    assert link.words == "PCIe 4 x16"
    assert link.limit == pytest.approx(31.5e9, rel=0.01)
    assert link.could_be == "PCIe 5 x16"


def test_what_went_over_the_links_is_the_mean_of_the_gpus(reader: Reader, run: Run) -> None:
    gpus = jobs.gpus(reader, run, everything=False)
    source = SeriesSource(reader, run.id, spans.of(reader, run, spans.ALL, 0))
    mean = transfers.carried(source, m.GPU_PCIE_RX, gpus.shown)
    each = [transfers.carried(source, m.GPU_PCIE_RX, [gpu]) for gpu in gpus.shown]
    assert mean.values[0] == pytest.approx(sum(one.values[0] or 0 for one in each) / 2)


class Kept:
    """A reader that has these traces."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = answers

    def newest_traces(self, _run: int, _most: int) -> list[dict[str, Any]]:
        return [{"id": i, "ts_ms": 1000, "answer": each} for i, each in enumerate(self._answers)]


def an_answer(kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    device = {"kind": kind, "span_ns": 1000, "copy_ns": 300}
    return {"devices": [device], "budget": {"slices": {"exposed_copy": 200}}, "copies": rows}


def a_copy(memory_of: str, size: int | None) -> dict[str, Any]:
    return {"direction": "host to device", "memory": memory_of, "bytes": size}


def test_the_newest_trace_of_a_gpu_shows_the_copies(run: Run) -> None:
    rows = [a_copy("pageable", 30), a_copy("pinned", 10)]
    kept: Any = Kept(an_answer("cpu", []), an_answer("gpu", rows))
    found = transfers.copies(kept, run, 5000)
    assert found is not None
    assert (found.trace, found.age_s) == (1, 4.0)
    assert (found.copying, found.exposed) == (0.3, 0.2)
    assert found.pageable == {"host to device": 0.75, "device to host": None}


def test_copies_of_unknown_size_have_no_share(run: Run) -> None:
    rows = [a_copy("pageable", 30), a_copy("pinned", None)]
    kept: Any = Kept(an_answer("gpu", rows))
    found = transfers.copies(kept, run, 5000)
    assert found is not None
    assert found.pageable["host to device"] is None


def test_without_a_trace_of_a_gpu_nothing_is_said_of_copies(run: Run) -> None:
    kept: Any = Kept(an_answer("cpu", []))
    assert transfers.copies(kept, run, 5000) is None


def test_a_gpu_that_is_not_there_has_no_link(reader: Reader, run: Run) -> None:
    gpus = jobs.gpus(reader, run, everything=False)
    link = transfers.link(Newest({}, {}, 0), gpus.rows[0])
    assert link.limit is None
    assert link.words


def test_without_subjects_there_are_no_series(reader: Reader, run: Run) -> None:
    source = SeriesSource(reader, run.id, spans.of(reader, run, spans.ALL, 0))
    assert source.of(m.GPU_POWER, []) == []
    assert source.mean(m.GPU_POWER, []).unknown
    assert Subject(1, "GPU 0").name == "GPU 0"
