"""The file for Perfetto: exact times, tracks on which nothing crosses, the account as a lane."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.building import Op, Span, a_trace
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.traces.analysis import Analysis, analyse_trace
from whyidle.monitor.traces.budgets.budget import rounded
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.perfetto import WHY, lanes, write

OPS: list[Op] = [
    (1_000, 4_001, Cause.KERNEL, 1),
    (3_000, 5_000, Cause.KERNEL, 2),  # crosses the one before
    (9_007, 12_000, Cause.COMM, 3),
    (20_000, 20_500, Cause.H2D, 4),
]
SPANS: list[Span] = [
    (0, 30_000, Cause.PYTHON, 0, None),
    (500, 700, Cause.DRIVER_CALL, 0, 1),
    (800, 900, Cause.DRIVER_CALL, 0, 2),
    (5_000, 8_500, Cause.INPUT, 0, None),
    (8_600, 8_900, Cause.DRIVER_CALL, 0, 3),
    (15_000, 19_000, Cause.DRIVER_CALL, 1, 4),
]


def analysis(ops: list[Op] = OPS, spans: list[Span] = SPANS) -> Analysis:
    return analyse_trace(Path("trace.json"), a_trace(ops, spans))


def written(found: Analysis) -> dict[str, Any]:
    out = io.StringIO()
    write(out, found)
    document: dict[str, Any] = json.loads(out.getvalue(), parse_float=Decimal)
    return document


def events(document: dict[str, Any], phase: str = "X") -> list[dict[str, Any]]:
    return [e for e in document["traceEvents"] if e["ph"] == phase]


def test_every_operation_and_span_is_there_to_the_tick() -> None:
    spans = events(written(analysis()))
    times = [(int(e["ts"] * 1000), int((e["ts"] + e["dur"]) * 1000)) for e in spans]
    assert {(o[0], o[1]) for o in OPS} <= set(times)
    assert {(s[0], s[1]) for s in SPANS} <= set(times)


def test_picoseconds_are_kept() -> None:
    trace = a_trace([(1_000_001, 1_000_003, Cause.KERNEL, None)], [])
    trace.ticks_per_ns = 1000
    spans = events(written(analyse_trace(Path("trace.json"), trace)))
    assert [(e["ts"], e["dur"]) for e in spans] == [(Decimal("1.000001"), Decimal("0.000002"))]


def test_the_lane_says_why_and_adds_up() -> None:
    found = analysis()
    report = found.devices[0]
    lane = [e for e in events(written(found)) if (e["pid"], e["tid"]) == (2, WHY)]
    drawn: dict[str, int] = defaultdict(int)
    for event in lane:
        drawn[event["cat"]] += int(event["dur"] * 1000)
        assert event["name"].startswith(LOOKS[Slice(event["cat"])].words)
    segments = report.budget.segments
    wanted: dict[str, int] = defaultdict(int)
    for cause, ns in rounded(report.budget.sums(segments.start[:1], segments.end[-1:]), 1).items():
        if cause.slice is not Slice.COMPUTE:
            wanted[cause.slice] += ns
    assert drawn == {k: v for k, v in wanted.items() if v}
    assert "idle_input" in drawn
    assert {e["args"].get("waits for") for e in lane} >= {"thread 0", "thread 1"}


def test_an_arrow_leads_from_each_call_to_its_work() -> None:
    document = written(analysis())
    begin = {e["id"]: e for e in events(document, "s")}
    end = {e["id"]: e for e in events(document, "f")}
    assert begin.keys() == end.keys()
    arrows = {(int(begin[i]["ts"] * 1000), int(end[i]["ts"] * 1000)) for i in begin}
    assert arrows == {(500, 1_000), (800, 3_000), (8_600, 9_007), (15_000, 20_000)}


def test_tracks_have_names() -> None:
    document = written(analysis())
    names = [e for e in events(document, "M") if e["name"].endswith("_name")]
    named = {e["args"]["name"] for e in names}
    assert {"GPU 0", "why idle", "host process 1", "thread 0", "thread 1"} <= named
    tracks = {(e["pid"], e["tid"]) for e in events(document)}
    assert tracks <= {(e["pid"], e["tid"]) for e in names}


def test_on_no_track_do_two_spans_cross() -> None:
    by_track: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for e in events(written(analysis())):
        by_track[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for spans in by_track.values():
        assert_apart_or_inside(spans)


def assert_apart_or_inside(spans: list[Any]) -> None:
    open_spans: list[Any] = []
    for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_spans and open_spans[-1] <= begin:
            open_spans.pop()
        assert not open_spans or end <= open_spans[-1]
        open_spans.append(end)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40))
def test_lanes(pairs: list[tuple[int, int]]) -> None:
    spans = sorted(((s, s + d) for s, d in pairs), key=lambda s: (s[0], -s[1]))
    start = np.array([s for s, _ in spans], np.int64)
    end = np.array([e for _, e in spans], np.int64)
    found = lanes(start, end)
    for lane in np.unique(found).tolist():
        mine = [s for s, at in zip(spans, found.tolist(), strict=True) if at == lane]
        assert_apart_or_inside(mine)


def test_many_that_cross_do_not_take_for_ever() -> None:
    start = np.arange(20_000, dtype=np.int64)
    assert lanes(start, start * 2 + 1).max() < 100


def test_names_from_the_file_are_data() -> None:
    trace = a_trace(OPS, SPANS)
    trace.names = [f'{name}"}},\ud800\n\x1b' for name in trace.names]
    assert len(events(written(analyse_trace(Path("trace.json"), trace)))) >= len(OPS) + len(SPANS)


def test_an_empty_trace_is_an_empty_file() -> None:
    assert events(written(analysis([], []))) == []
