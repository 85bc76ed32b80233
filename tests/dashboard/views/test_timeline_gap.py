"""A gap is explained by its cause, what the host did in it, and the launch that came late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.dashboard import timelines
from whyidle.dashboard.views import timeline, timeline_event, timeline_gap, timeline_host
from whyidle.dashboard.views.timeline_event import EventRef
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.summary import STACKS
from whyidle.monitor.store import NewRun, Reader, Writer
from whyidle.monitor.store.stored_traces import KeptTrace
from whyidle.monitor.traces.causes import Cause

US = 1000
STEP = timelines.LOADS[0] + 30 + timelines.COPY + 12 * (timelines.BETWEEN + timelines.KERNEL) + 400


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timelines.make(tmp_path_factory.mktemp("gap"))


@pytest.fixture
def trace(store: Path) -> KeptTrace:
    return timeline.traces(store, 1)[0]


def test_a_gap_of_the_loader_is_explained_in_full(store: Path, trace: KeptTrace) -> None:
    gap = timeline_gap.gap_at(store, trace, 0, trace.start + (STEP + 30_000) * US)
    assert gap is not None
    assert gap.slice is Slice.IDLE_INPUT
    assert sum(ticks for _, ticks in gap.parts) == gap.ticks
    assert gap.parts[0][0] is Cause.INPUT
    assert gap.activity.totals[0].name == timelines.LOADER
    assert gap.activity.totals[0].own == pytest.approx(59_980 * US, rel=0.001)
    assert list(gap.activity.stack) == [timelines.LOADER, "train.py(12): train"]
    assert gap.then == "Memcpy HtoD (Pageable -> Device)"
    assert gap.launch is not None
    assert gap.launch.name == "cudaMemcpyAsync"
    assert gap.start < gap.launch.start < gap.launch.end <= gap.end


def test_wherever_in_a_gap_one_clicks_it_is_the_same_gap(store: Path, trace: KeptTrace) -> None:
    first, last = STEP + 200, STEP + timelines.LOADS[1]
    gaps = {
        (gap.start, gap.end)
        for at in range(first, last, 3000)
        if (gap := timeline_gap.gap_at(store, trace, 0, trace.start + at * US)) is not None
    }
    assert len(gaps) == 1
    start, end = gaps.pop()
    for at in (start, end - 1):
        gap = timeline_gap.gap_at(store, trace, 0, at)
        assert gap is not None
        assert (gap.start, gap.end) == (start, end)
    assert timeline_gap.gap_at(store, trace, 0, end) is None


def test_what_a_span_has_in_itself_and_in_its_calls_is_kept_apart(
    store: Path, trace: KeptTrace
) -> None:
    gap = timeline_gap.gap_at(store, trace, 0, trace.start + (STEP + 30_000) * US)
    assert gap is not None
    frame = next(totals for totals in gap.activity.totals if totals.name.startswith("train.py"))
    assert frame.open > 0.99 * gap.ticks
    assert frame.own < 0.01 * gap.ticks
    assert sum(totals.own for totals in gap.activity.totals) <= gap.ticks


@pytest.mark.parametrize("at_us", [72_500, 10**9], ids=["it works", "after the trace"])
def test_where_there_is_no_gap_none_is_explained(store: Path, trace: KeptTrace, at_us: int) -> None:
    assert timeline_gap.gap_at(store, trace, 0, trace.start + at_us * US) is None


def test_a_device_that_there_is_not_has_no_gaps(store: Path, trace: KeptTrace) -> None:
    assert timeline_gap.gap_at(store, trace, 7, trace.start + 1000) is None


def test_an_operation_is_found_by_when_it_ran(store: Path, trace: KeptTrace) -> None:
    start = trace.start + (timelines.LOADS[0] + 30) * US
    wanted = EventRef(0, start, start + timelines.COPY * US)
    found = timeline_event.operation(store, trace.id, wanted)
    assert found is not None
    facts = dict(found.facts)
    assert facts["took"] == "1.00 ms"
    assert facts["launched by"].startswith("cudaMemcpyAsync of thread 70")
    assert facts["moved"] == "1.0 MiB, 1.0 GB/s"


def test_a_kernel_is_explained_with_all_of_its_kind(store: Path, trace: KeptTrace) -> None:
    start = trace.start + (timelines.LOADS[0] + 30 + timelines.COPY + timelines.BETWEEN) * US
    wanted = EventRef(0, start, start + (timelines.KERNEL - 1) * US)
    found = timeline_event.operation(store, trace.id, wanted)
    assert found is not None
    assert dict(found.facts)["in all of the trace"] == "55 times, 110 ms"


def test_a_host_event_is_explained_with_what_was_in_it(store: Path, trace: KeptTrace) -> None:
    frame = EventRef(0, trace.start + 10 * US, trace.start + (STEP - 1) * US)
    found = timeline_event.host_event(store, trace.id, frame)
    assert found is not None
    assert found.name == "train.py(12): train"
    assert found.activity.totals[0].name == timelines.LOADER


@pytest.mark.parametrize("find", [timeline_event.operation, timeline_event.host_event])
@pytest.mark.parametrize("wanted", [EventRef(0, 5, 10**15), EventRef(99, 0, 100)])
def test_what_is_not_there_is_not_found(
    store: Path, trace: KeptTrace, find: object, wanted: EventRef
) -> None:
    assert find(store, trace.id, wanted) is None  # type: ignore[operator]


def test_samples_of_the_recording_are_those_around_the_gap(tmp_path: Path) -> None:
    store, now_ms = tmp_path / "whyidle.db", time.time_ns() // 1_000_000
    line = {"file": "train.py", "line": 12, "function": "train", "share": 0.75}
    with Writer.open(store) as writer:
        run = writer.begin_run(NewRun(target_pid=7))
        process = writer.add_process(run, pid=7, start_ticks=1)
        for ts_ms, number in ((now_ms - 20_000, 11), (now_ms, 12), (now_ms + 60_000, 13)):
            data = {"samples": 40, "seconds": 10.0, "lines": [{**line, "line": number}]}
            of = {"scope": Scope.PROCESS, "subject": process}
            writer.event(run, STACKS, "", ts_ms=ts_ms, data=data, **of)
    file = timelines.write(tmp_path / "train.json")
    timelines.kept(store, file, run, taken={"pid": 7, "began_ms": now_ms - 5000})
    trace = timeline.traces(store, run)[0]._replace(origin_ns=(now_ms - 5000) * 1_000_000)
    with Reader.open(store) as reader:
        found = timeline_host.samples_at(reader, trace, 0)
        assert found is not None
        assert (found.samples, found.lines[0].line) == (40, 12)
        assert timeline_host.samples_at(reader, trace, 30 * 10**9) is None
        assert timeline_host.samples_at(reader, trace._replace(taken=None), 0) is None
