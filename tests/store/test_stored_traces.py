"""A kept trace comes back as it was, and a window of it is what was there at that time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.longer import examples
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store import NewRun, Writer, blocks, timeline_rows, windows
from whyidle.monitor.store.stored_traces import Kept, Timeline, keep
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import DEVICE_CAUSES, HOST_CAUSES, Cause
from whyidle.monitor.traces.model import Device, Links, Marks, Ops, Spans, Table, Thread, Trace

NAMES = [f"name {i}" for i in range(40)] + ["never used"]
FIGURES = {
    "host": "node1", "pid": 7, "rank": None, "model": "H200", "span_ns": 100, "busy_ns": 60,
    "idle_ns": 40, "compute_ns": 60, "comm_ns": 0, "exposed_comm_ns": 0, "copy_ns": 0,
    "exposed_copy_ns": 0, "kernels": 3, "comm_kernels": 0, "copies": 0,
}  # fmt: skip


def a_trace(seed: int, ops: int = 300, spans: int = 700, devices: int = 2) -> Trace:
    """A trace of short and long events, sorted as those that are read."""
    rng = np.random.default_rng(seed)

    def times(rows: int) -> dict[str, Any]:
        start = rng.integers(0, 10_000, rows)
        return {"start": start, "end": start + (rng.pareto(0.7, rows) * 5).astype(np.int64)}

    def names(rows: int) -> Any:
        return rng.integers(-1, len(NAMES) - 1, rows)

    def device(index: int) -> Device:
        found = Ops.of(
            **times(ops),
            kind=rng.choice(DEVICE_CAUSES, ops),
            name=names(ops),
            stream=names(ops),
            correlation=rng.permutation(ops),
            external=rng.integers(-1, 99, ops),
            bytes=rng.integers(-1, 1 << 40, ops),
            hlo_op=names(ops),
            hlo_module=names(ops),
        )
        return Device("gpu", str(index), found.take(np.lexsort((found.correlation, found.start))))

    host = Spans.of(
        **times(spans),
        thread=rng.integers(0, 3, spans),
        kind=rng.choice(HOST_CAUSES, spans),
        name=names(spans),
    )
    host = host.take(np.lexsort((-host.end, host.start)))
    edges = np.arange(0, 10_001, 1000)
    rows = np.sort(rng.permutation(spans)[: spans // 2])
    return Trace(
        format="kineto",
        ticks_per_ns=1,
        events=ops * devices + spans,
        origin_ns=1_700_000_000_000_000_000,
        names=NAMES,
        devices=[device(i) for i in range(devices)],
        threads=[Thread("main", 1, "1"), Thread("loader", 1, "2"), Thread("autograd")],
        host=host,
        calls=Links.of(row=rows, id=rng.integers(0, 1 << 40, len(rows))),
        externals=Links.of(row=rows[:9], id=np.arange(len(rows[:9]))),
        marks=Marks.of(start=edges[:-1], end=edges[1:], name=np.zeros(10)),
    )


def segments_of(trace: Trace) -> list[Segments]:
    edges = np.unique(np.random.default_rng(1).integers(0, 12_000, 400))
    some = Segments.of(
        start=edges[:-1], end=edges[1:], cause=np.arange(len(edges) - 1) % len(Cause)
    )
    return [some for _ in trace.devices]


def stored(store: Path, trace: Trace, file: str = "/data/trace.json.gz", **more: Any) -> int:
    """Keep a trace with an answer that has its devices."""
    return keep(store, trace, an_answer(trace), file=Path(file), **more)


def an_answer(trace: Trace) -> dict[str, Any]:
    budget = {
        "total_ns": 100,
        "steps": 10,
        "slices": {**dict.fromkeys(Slice, 0), Slice.COMPUTE: 60, Slice.IDLE_INPUT: 40},
        "details": {"idle_input": {"data loader": 30}},
    }
    devices = [
        {**FIGURES, "index": d.index, "kind": d.kind, "budget": budget, "step_budget": None}
        for d in trace.devices
    ]
    return {
        "schema": 1,
        "devices": devices,
        "warnings": ["truncated"],
        "top_kernels": [{"name": "gemm", "count": 3, "total_ns": 60, "share": 1.0}],
    }


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state" / DATABASE


@pytest.fixture(params=[64, 1 << 14], ids=["many blocks", "one block"])
def block_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    rows: int = request.param
    monkeypatch.setattr(blocks, "BLOCK_ROWS", rows)
    return rows


def rows_of(table: Table, names: Any, start: int = -(1 << 62), end: int = 1 << 62) -> list[Any]:
    """Every row with its names in words, between two moments."""
    columns = {
        name: [names[i] if i >= 0 else "" for i in getattr(table, name).tolist()]
        if name in timeline_rows.NAMED
        else getattr(table, name).tolist()
        for name in table.columns()
    }
    columns["start"] = [max(t, start) for t in columns["start"]]
    columns["end"] = [min(t, end) for t in columns["end"]]
    return list(zip(*columns.values(), strict=True))


def within(table: Table, start: int, end: int) -> Any:
    """Brute force: which rows lasted into the window, instant by instant where they are short."""
    return np.array(
        [
            (start <= a < end) or (a < start < b)
            for a, b in zip(table.start.tolist(), table.end.tolist(), strict=True)  # type: ignore[attr-defined]
        ],
        np.bool_,
    )


def assert_same(seen: Timeline, trace: Trace, start: int, end: int) -> None:
    """The window holds what brute force finds, and nothing else."""
    pairs: list[tuple[Table, Table]] = [(seen.host, trace.host), (seen.marks, trace.marks)]
    pairs += [(lane.ops, d.ops) for lane, d in zip(seen.lanes, trace.devices, strict=True)]
    pairs += [(lane.segments, s) for lane, s in zip(seen.lanes, segments_of(trace), strict=True)]
    for found, whole in pairs:
        expected = whole.take(within(whole, start, end))
        assert sorted(rows_of(found, seen.names)) == sorted(
            rows_of(expected, trace.names, start, end)
        )


@pytest.mark.usefixtures("block_rows")
def test_everything_comes_back(store: Path) -> None:
    trace = a_trace(1)
    kept = stored(store, trace, segments=segments_of(trace))
    with Kept.open(store) as reader:
        found = reader.open_trace(kept)
        seen = reader.window(kept, found.start, found.end + 1, clip=False)
        for lane, device in zip(seen.lanes, trace.devices, strict=True):
            assert rows_of(lane.ops, seen.names) == rows_of(device.ops, trace.names)
        assert seen.host.start.tolist() == trace.host.start.tolist()
        assert seen.host.end.tolist() == trace.host.end.tolist()
        assert sorted(rows_of(seen.host, seen.names)) == sorted(rows_of(trace.host, trace.names))
        assert ids_by_span(seen.host, seen.calls) == ids_by_span(trace.host, trace.calls)
        assert ids_by_span(seen.host, seen.externals) == ids_by_span(trace.host, trace.externals)
        assert set(seen.left_out.values()) == {0}
        assert (found.threads, found.origin_ns) == (trace.threads, trace.origin_ns)
        assert seen.host.columns() == Spans.columns()
        assert [c.dtype for c in (seen.host.start, seen.host.name, seen.host.kind)] == [
            np.int64, np.int32, np.int8,
        ]  # fmt: skip


def ids_by_span(host: Spans, links: Links) -> list[tuple[int, int, int]]:
    rows = links.row
    return sorted(
        zip(host.start[rows].tolist(), host.end[rows].tolist(), links.id.tolist(), strict=True)
    )


@pytest.fixture(scope="module")
def cut_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kept, Trace, int]]:
    """One trace in many blocks, for many windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 64)
        trace = a_trace(2, ops=1500, spans=3000)
        store = tmp_path_factory.mktemp("kept") / DATABASE
        kept = stored(store, trace, segments=segments_of(trace))
    with Kept.open(store) as reader:
        yield reader, trace, kept


@examples(60, unchecked=[HealthCheck.function_scoped_fixture])
@given(st.integers(-50, 13_000), st.integers(1, 3000) | st.just(1) | st.integers(1, 100_000))
def test_a_window_is_what_brute_force_finds(
    cut_small: tuple[Kept, Trace, int], start: int, length: int
) -> None:
    reader, trace, kept = cut_small
    seen = reader.window(kept, start, start + length)
    assert_same(seen, trace, start, start + length)


@examples(20, unchecked=list(HealthCheck))
@given(
    st.builds(
        a_trace, st.integers(0, 99), st.integers(0, 60), st.integers(0, 60), st.integers(0, 3)
    )
)
def test_of_any_trace(tmp_path: Path, block_rows: int, trace: Trace) -> None:
    store = tmp_path / DATABASE
    kept = stored(store, trace, segments=segments_of(trace))
    with Kept.open(store) as reader:
        for start, end in ((0, 1), (5000, 5100), (-1, 1 << 40)):
            assert_same(reader.window(kept, start, end), trace, start, end)


def test_the_shortest_are_left_out_where_there_is_no_room(
    cut_small: tuple[Kept, Trace, int],
) -> None:
    reader, trace, kept = cut_small
    seen = reader.window(kept, 0, 10_000, 100, clip=False)
    length = np.sort(trace.host.end - trace.host.start)
    assert len(seen.host) == 100
    assert np.sort(seen.host.end - seen.host.start).tolist() == length[-100:].tolist()
    assert sum(len(lane.ops) for lane in seen.lanes) == 100
    inside = int(within(trace.host, 0, 10_000).sum())
    assert seen.left_out["span"] == inside - 100
    assert seen.left_out["mark"] == 0


def test_a_wide_window_opens_only_the_longest(
    cut_small: tuple[Kept, Trace, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, trace, kept = cut_small
    opened = 0

    def counted(data: bytes) -> blocks.Columns:
        nonlocal opened
        opened += 1
        return blocks.uncut(data)

    monkeypatch.setattr(windows, "READ_MOST", 500)
    monkeypatch.setattr(windows, "uncut", counted)
    seen = reader.window(kept, 0, 10_000, 500, clip=False)
    assert 50 < len(seen.host) <= 500
    assert seen.left_out["span"] >= int(within(trace.host, 0, 10_000).sum()) - len(seen.host)
    length = np.sort(trace.host.end - trace.host.start)
    shown = np.sort(seen.host.end - seen.host.start)
    assert shown.tolist() == length[-len(shown) :].tolist()
    assert opened < 60
    # A narrow one has everything.
    start, end = 4000, 4020
    assert_same(reader.window(kept, start, end, 500), trace, start, end)


def test_what_was_reported_is_reported_again(store: Path, tmp_path: Path) -> None:
    trace = a_trace(3)
    with Writer.open(store) as writer:
        run = writer.begin_run(NewRun(label="a run"))
        file = str(tmp_path / "trace.json.gz")
        steps = (np.array([0, 10]), np.array([10, 30]))
        first = stored(store, trace, file, run=run, steps=steps)
        second = stored(store, trace, file, run=run)
        loose = stored(store, trace, file)
    with Kept.open(store) as reader:
        assert [t.id for t in reader.traces(run)] == [first, second]
        assert [t.id for t in reader.traces()] == [first, second, loose]
        found = reader.open_trace(first)
        assert found.answer == json.loads(json.dumps(an_answer(trace)))
        assert (found.run, found.format, found.path) == (run, "kineto", Path(file))
        again = keep(store, trace, {**an_answer(trace), "file": file}, run=run)
        assert reader.open_trace(again).path == Path(file)
        assert reader.steps(first) == [(0, 10), (10, 30)]
        assert (reader.steps(second), found.notes, found.ticks_per_ns) == ([], [], 1)
        assert found.size > 0


def test_a_budget_adds_up_in_sql_too(store: Path) -> None:
    trace = a_trace(4)
    stored(store, trace)
    connection = sqlite3.connect(store)
    query = "SELECT device, slice, detail, ns FROM trace_slice WHERE budget = 'budget'"
    found = sorted(connection.execute(query))
    kernels = connection.execute("SELECT name, count, total_ns FROM trace_kernel").fetchall()
    devices = connection.execute("SELECT idx, host, span_ns FROM trace_device").fetchall()
    connection.close()
    assert found == sorted(
        part
        for i in range(2)
        for part in (
            (i, "compute", "", 60),
            (i, "idle_input", "", 10),
            (i, "idle_input", "data loader", 30),
        )
    )
    assert kernels == [("gemm", 3, 60)]
    assert devices == [("0", "node1", 100), ("1", "node1", 100)]


def test_names_are_read_in_parts_and_only_the_used_are_kept(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_rows, "NAMES_AT_ONCE", 8)
    trace = a_trace(5)
    trace.names = [*NAMES[:-2], "half \ud800", "never used"]
    kept = stored(store, trace)
    with Kept.open(store) as reader:
        seen = reader.window(kept, 0, 10)
        assert seen.names[-1] == ""
        assert {seen.names[i] for i in range(40)} == set(trace.names[:-1])
        assert seen.names[40] == ""


def test_of_too_many_the_shortest_go_and_that_is_said(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_rows, "FRAMES_MOST", 10)
    monkeypatch.setattr(timeline_rows, "ROWS_MOST", 500)
    trace = a_trace(6)
    frames = trace.host.kind == Cause.PYTHON
    kept = stored(store, trace)
    with Kept.open(store) as reader:
        seen = reader.window(kept, 0, 1 << 40, clip=False)
        left = seen.host.kind == Cause.PYTHON
        length = np.sort((trace.host.end - trace.host.start)[frames])
        assert len(seen.host) == 500
        assert int(left.sum()) <= 10 < int(frames.sum())
        assert set((seen.host.end - seen.host.start)[left].tolist()) <= set(length[-10:].tolist())
        assert sum(len(lane.ops) for lane in seen.lanes) == 500
        assert seen.trace.notes == [
            "Of 600 ops the 500 longest are in the timeline.",
            f"Of {int(frames.sum())} Python frames the 10 longest are in the timeline.",
            f"Of {700 - int(frames.sum()) + 10} spans the 500 longest are in the timeline.",
        ]


def test_a_trace_without_anything_is_kept(store: Path) -> None:
    trace = Trace(format="xplane", ticks_per_ns=1000)
    kept = stored(store, trace)
    with Kept.open(store) as reader:
        seen = reader.window(kept, 0, 10)
        assert (seen.lanes, len(seen.host), len(seen.marks)) == ([], 0, 0)


# Sentences ----------------------------------------------------------------------------------------
def test_what_there_is_not(store: Path) -> None:
    with pytest.raises(StorageProblem, match="no recordings"):
        Kept.open(store)
    trace = a_trace(7, 10, 10)
    with pytest.raises(UsageProblem, match="no recording '3'"):
        stored(store, trace, run=3)
    kept = stored(store, trace)
    with Kept.open(store) as reader:
        for call in (reader.open_trace, lambda i: reader.window(i, 0, 1)):
            with pytest.raises(UsageProblem, match="no stored trace 99") as caught:
                call(99)
            assert "monitor runs" in caught.value.next_step
        with pytest.raises(UsageProblem, match="no recording '99'"):
            reader.traces(99)
        with pytest.raises(UsageProblem, match="end after it begins"):
            reader.window(kept, 5, 5)


@pytest.mark.usefixtures("block_rows")
def test_the_account_of_a_window_leaves_nothing_out(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "READ_MOST", 10)
    trace = a_trace(13)
    kept = stored(store, trace, segments=segments_of(trace))
    with Kept.open(store) as reader:
        for found, whole in zip(reader.account(kept, 700, 9000), segments_of(trace), strict=True):
            expected = whole.take(within(whole, 700, 9000))
            assert rows_of(found, []) == rows_of(expected, [], 700, 9000)
        whole_gap = reader.account(kept, 5000, 5001, clip=False)[0]
        assert int(whole_gap.start[0]) <= 5000 < int(whole_gap.end[0]) - 1
        with pytest.raises(UsageProblem, match="end after it begins"):
            reader.account(kept, 5, 5)


@pytest.mark.parametrize(
    "header",
    ["NULL", "''", "'{\"answer'", "'[1]'", "'{}'", "'{\"answer\": 5}'", "CAST(x'ff7b' AS TEXT)"],
)
def test_a_damaged_trace_costs_no_other(store: Path, header: str) -> None:
    trace = a_trace(12, 10, 10)
    first, bad, last = (stored(store, trace, f"/data/{i}.json") for i in range(3))
    connection = sqlite3.connect(store)
    connection.execute(f"UPDATE trace SET header = {header} WHERE id = ?", (bad,))
    connection.commit()
    connection.close()
    with Kept.open(store) as reader:
        assert [t.id for t in reader.traces()] == [first, last]
        for call in (reader.open_trace, lambda i: reader.window(i, 0, 1)):
            with pytest.raises(StorageProblem, match=f"kept of trace {bad} is damaged") as caught:
                call(bad)
            assert caught.value.next_step.endswith("monitor trace /data/1.json")
            assert "Its file is gone" in caught.value.next_step


def test_a_trace_whose_file_is_there_can_be_analysed_again(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.touch()
    kept = stored(store, a_trace(12, 10, 10), str(file))
    connection = sqlite3.connect(store)
    connection.execute("UPDATE trace SET header = NULL")
    connection.commit()
    connection.close()
    with Kept.open(store) as reader, pytest.raises(StorageProblem) as caught:
        reader.open_trace(kept)
    assert caught.value.next_step == f"Analyse the file again: monitor trace {file}"


def test_a_timeline_that_made_room_says_where_the_file_is(store: Path) -> None:
    trace = a_trace(8, 30_000, 10_000, 1)
    first, second = (stored(store, trace, f"/data/{i}.json", size_cap=3 << 20) for i in range(2))
    with Kept.open(store) as reader:
        assert len(reader.window(second, 0, 100).host)
        assert reader.open_trace(first).answer == json.loads(json.dumps(an_answer(trace)))
        with pytest.raises(StorageProblem, match="made room for newer ones") as caught:
            reader.window(first, 0, 100)
        assert caught.value.next_step.endswith("monitor trace /data/0.json")


def test_a_timeline_larger_than_its_share_is_left_out(store: Path) -> None:
    trace = a_trace(9, 30_000, 10_000, 1)
    kept = stored(store, trace, size_cap=1 << 20)
    with Kept.open(store) as reader:
        assert reader.open_trace(kept).notes == ["The timeline is too large to be kept."]
        with pytest.raises(StorageProblem, match="too large to be kept"):
            reader.window(kept, 0, 100)


def test_damage_inside_a_timeline_is_reported(store: Path) -> None:
    trace = a_trace(10)
    kept = stored(store, trace)
    connection = sqlite3.connect(store)
    connection.execute("UPDATE trace_block SET data = substr(data, 1, 50) WHERE tbl = 'op'")
    connection.execute("DELETE FROM trace_block WHERE tbl = 'mark'")
    connection.commit()
    with Kept.open(store) as reader:
        with pytest.raises(StorageProblem, match="damaged") as caught:
            reader.window(kept, 0, 100)
        assert caught.value.next_step.endswith("monitor trace /data/trace.json.gz")
        connection.execute("DELETE FROM trace_block WHERE tbl = 'op'")
        connection.commit()
        connection.close()
        assert reader.window(kept, 0, 100).lost == 3
