"""Which window of a trace is shown, and its account: what the lanes say adds up to the answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.dashboard import timelines
from whyidle.dashboard.views import timeline, timeline_overview
from whyidle.dashboard.views.timeline import TickRange, TraceSteps
from whyidle.dashboard.views.timeline_lanes import picture
from whyidle.dashboard.views.timeline_overview import overview
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.store.stored_traces import Kept, KeptTrace
from whyidle.monitor.traces.causes import Cause

MS = 1_000_000
SLOWEST = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return timelines.make(tmp_path_factory.mktemp("timeline"))


@pytest.fixture
def trace(store: Path) -> Iterator[KeptTrace]:
    return timeline.traces(store, 1)[0]


def account(store: Path, trace: KeptTrace, part: TickRange) -> dict[str, int]:
    with Kept.open(store) as kept:
        segments = kept.account(trace.id, part.start, part.end)
    slices: dict[str, int] = timeline.account(trace, segments, part)[0]["slices"]
    return slices


def test_the_account_of_all_of_a_trace_is_that_of_its_answer(store: Path, trace: KeptTrace) -> None:
    assert account(store, trace, timeline.whole(trace)) == trace.answer["budget"]["slices"]


def test_the_accounts_of_its_steps_add_up_to_the_step_budget(store: Path, trace: KeptTrace) -> None:
    steps = timeline.steps_of(store, trace.id, timeline.whole(trace))
    sums = dict.fromkeys(map(str, Slice), 0)
    for part in steps.parts:
        for name, ns in account(store, trace, part).items():
            sums[name] += ns
    assert sums == trace.answer["step_budget"]["slices"]


def the_lane(store: Path, trace: KeptTrace, part: TickRange) -> dict[str, int]:
    lane = next(x for x in picture(store, trace.id, part, [0]).lines if x.header.what == "idle")
    sums: dict[str, int] = {}
    for kind, busy in zip(lane.merged.kind.tolist(), lane.merged.busy.tolist(), strict=True):
        sums[Cause(kind).slice] = sums.get(Cause(kind).slice, 0) + busy
    return sums


def idle(slices: dict[str, int]) -> dict[str, int]:
    return {name: ns for name, ns in slices.items() if ns and name != Slice.COMPUTE}


def test_the_lane_of_a_window_says_cause_by_cause_what_its_account_says(
    store: Path, trace: KeptTrace
) -> None:
    loader = timelines.LOADS[0] * 1000
    part = TickRange(trace.start + loader - 5 * MS, trace.start + loader + 10 * MS)
    expected = idle(account(store, trace, part))
    assert the_lane(store, trace, part) == expected
    assert len(expected) > 3


def test_where_short_gaps_are_drawn_together_all_their_time_is_there(
    store: Path, trace: KeptTrace
) -> None:
    part = timeline.steps_of(store, trace.id, timeline.whole(trace)).parts[SLOWEST]
    expected = idle(account(store, trace, part))
    assert sum(the_lane(store, trace, part).values()) == sum(expected.values())
    assert expected[Slice.IDLE_INPUT] == pytest.approx(90 * MS, rel=0.01)


def test_the_overview_has_all_time_of_each_stretch_and_all_of_the_trace(
    store: Path, trace: KeptTrace
) -> None:
    result = overview(store, trace.id, [0])
    sums = np.sum(list(result.parts.values()), axis=0)
    assert np.all((np.abs(sums - 1) < 1e-9) | (sums == 0))
    width = (trace.end - trace.start) / (len(result.edges) - 1)
    compute = sum(result.parts[Slice.COMPUTE]) * width
    assert compute == pytest.approx(trace.answer["budget"]["slices"]["compute"], rel=0.05)


def test_a_link_reproduces_its_window(trace: KeptTrace) -> None:
    part = TickRange(trace.start + 5 * MS, trace.start + 7 * MS)
    assert timeline.link(trace, part) == f"{5 * MS}-{7 * MS}"
    assert timeline.part_of(trace, timeline.link(trace, part)) == part


def test_all_of_a_trace_needs_no_words_in_a_link(trace: KeptTrace) -> None:
    assert timeline.link(trace, timeline.whole(trace)) is None


@pytest.mark.parametrize(
    "text", ["", "5", "7-", "-7", "a-b", "1-2-3", "<script>", "9" * 40 + "-1", None, "1e3-1e4"]
)
def test_a_link_that_names_no_window_shows_all_of_the_trace(
    trace: KeptTrace, text: str | None
) -> None:
    assert timeline.part_of(trace, text) == timeline.whole(trace)


@pytest.mark.parametrize("text", ["7000000-5000000", "0-0", f"{10**17}-{2 * 10**17}", "5-6"])
def test_a_window_always_has_some_time_of_the_trace(trace: KeptTrace, text: str) -> None:
    part, whole = timeline.part_of(trace, text), timeline.whole(trace)
    assert whole.start <= part.start < part.end <= whole.end


def test_zooming_out_ends_at_the_ends_of_the_trace(trace: KeptTrace) -> None:
    part = TickRange(trace.start + 10 * MS, trace.start + 20 * MS)
    assert timeline.zoomed(trace, part, 2) == TickRange(trace.start + 5 * MS, trace.start + 25 * MS)
    assert timeline.zoomed(trace, part, 1000) == timeline.whole(trace)


def test_going_along_stops_at_the_ends_of_the_trace(trace: KeptTrace) -> None:
    part = TickRange(trace.start + 10 * MS, trace.start + 30 * MS)
    assert timeline.shifted(trace, part, 0.5).start == trace.start + 20 * MS
    assert timeline.shifted(trace, part, -9) == TickRange(trace.start, trace.start + 20 * MS)
    assert timeline.shifted(trace, part, 900).end == trace.end


def a_walk(*lengths: int) -> list[TickRange]:
    edges = np.cumsum([1000, *lengths]).tolist()
    return [TickRange(a, b) for a, b in pairwise(edges)]


def test_steps_lead_to_the_next_the_slowest_and_the_middle_one() -> None:
    parts = a_walk(50_000, 90_000, 60_000)
    steps = TraceSteps(parts, parts[1])
    assert (steps.at, steps.previous, steps.following) == (1, 0, 2)
    assert (steps.slowest, steps.median) == (1, 2)
    assert (TraceSteps(parts, parts[0]).previous, TraceSteps(parts, parts[2]).following) == (
        None,
        None,
    )


def test_from_all_of_a_trace_the_next_step_is_the_first() -> None:
    parts = a_walk(50_000, 90_000, 60_000)
    steps = TraceSteps(parts, TickRange(0, 999_999))
    assert (steps.at, steps.previous, steps.following) == (None, None, 0)


def test_without_steps_there_is_nowhere_to_go() -> None:
    steps = TraceSteps([], TickRange(0, 100))
    assert (steps.at, steps.previous, steps.following, steps.slowest, steps.median) == (None,) * 5


def test_a_file_that_is_of_no_run_stands_after_the_runs_own(tmp_path: Path) -> None:
    store = timelines.make(tmp_path)
    timelines.kept(store, timelines.write(tmp_path / "my_run*[x](y).json"), None)
    found = timeline.traces(store, 1)
    assert [trace.run for trace in found] == [1, None]
    assert timeline.name(found[1]) == "file my_runx(y).json"


def test_the_name_of_a_device_is_as_short_as_it_is_unique() -> None:
    gpu = {"kind": "gpu", "index": "3", "rank": 1, "host": "node7"}
    cpu = {"kind": "cpu", "index": "0", "rank": None, "host": "node7"}
    assert timeline.device_names({"devices": [gpu, cpu]}) == ["GPU 3 rank 1", "CPU"]
    other = {**gpu, "host": None, "rank": None}
    two = timeline.device_names({"devices": [gpu, other]})
    assert two == ["GPU 3 rank 1 on node7", "GPU 3 on an unknown host"]


def test_the_headline_of_a_trace_is_the_account_that_all_pages_show(trace: KeptTrace) -> None:
    result = timeline.headline(trace.answer)
    assert result.budget == Traced(trace.answer, "").account == trace.answer["step_budget"]
    assert (result.of, result.is_of_steps) == ("its 5 whole steps", True)


def test_the_headline_of_a_trace_without_steps_is_of_all_its_work(trace: KeptTrace) -> None:
    result = timeline.headline({**trace.answer, "step_budget": None})
    assert result.budget == trace.answer["budget"]
    assert not result.is_of_steps


def test_an_overview_knows_where_its_account_ends(store: Path, trace: KeptTrace) -> None:
    length = trace.end - trace.start
    cut = np.array([trace.start, trace.start + 2 * length])
    with Kept.open(store) as kept:
        accounts = kept.account(trace.id, trace.start, trace.end + 1)
    known = timeline_overview._known(accounts, cut)
    assert known is not None
    assert trace.end - known[1] < length / 50
    assert timeline_overview._known(accounts, np.array(known)) is None


def test_a_piece_stands_for_a_step_where_it_says_so(store: Path, trace: KeptTrace) -> None:
    steps = timeline.steps_of(store, trace.id, timeline.whole(trace))
    assert timeline.step_of(["step", 3, 0, 0], steps) == steps.parts[SLOWEST]
    for other in (["idle", 3, 0, 0], ["step", 0, 0, 0], ["step", 6, 0, 0], ["step", "3"], None):
        assert timeline.step_of(other, steps) is None


def test_each_account_is_named_by_what_it_is_of(trace: KeptTrace) -> None:
    part = TickRange(trace.start, trace.start + 5 * MS)
    steps, window = trace.answer["step_budget"], {"slices": {}}
    one, two = {"GPU 0": window}, {"GPU 0": window, "GPU 1": window}
    result = timeline.rows(trace, part, one)
    assert result == {"these 5.00 ms": window}
    assert timeline.rows(trace, timeline.whole(trace), one) == {"its 5 whole steps": steps}
    assert list(timeline.rows(trace, part, two))[1] == "GPU 1, these 5.00 ms"
