"""What a trace of ours covers, and whose word counts for its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.traces.building import a_trace
from tests.traces.repeating import Job
from whyidle.monitor.traces.analysis import analyse_trace
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.model import Trace
from whyidle.monitor.traces.window import TraceWindow

MS = 1_000_000


def of(trace: Trace, window: TraceWindow | None) -> dict[str, Any]:
    step_ns = None if window is None else window.step_ns
    return contract(analyse_trace(Path("trace.json"), trace, step_ns), ours=True, window=window)


def one_kernel(ns: int) -> Trace:
    return a_trace([(0, ns, Cause.KERNEL, None)], [(0, ns, Cause.PYTHON, 0, None)])


def about_the_window(answer: dict[str, Any]) -> list[str]:
    return [text for text in answer["warnings"] if "covers" in text]


def test_a_window_shorter_than_a_step_is_said_to_tell_little() -> None:
    answer = of(one_kernel(55 * MS), TraceWindow(60 * MS, 1000 * MS, 177 * MS))
    (said,) = about_the_window(answer)
    covers, _, rest = said.partition(", less than one of the job's steps (177 ms): ")
    assert covers == "The trace covers 0.06 s of the 1 s asked for"
    assert rest == "its shares say little."


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (TraceWindow(60 * MS, 1000 * MS), ["The trace covers 0.06 s of the 1 s asked for."]),
        (TraceWindow(60 * MS, 100 * MS), []),
        (TraceWindow(60 * MS, 1000 * MS, 20 * MS), []),
        (TraceWindow(60 * MS), []),
        # Of one step, from its end to the next: some are a little shorter than others.
        (TraceWindow(60 * MS, 1000 * MS, 61 * MS), []),
        (None, []),
    ],
)
def test_a_short_window_is_told_where_nobody_knows_how_long_a_step_takes(
    window: TraceWindow | None, said: list[str]
) -> None:
    answer = of(one_kernel(55 * MS), window)
    assert about_the_window(answer) == said
    assert (answer["window"] is None) == (window is None)


def test_what_lies_outside_of_the_operations_is_told_where_it_is_most_of_the_window() -> None:
    answer = of(one_kernel(3 * MS), TraceWindow(250 * MS, 250 * MS))
    assert answer["window"]["outside_ns"] == 247 * MS
    assert answer["budget"]["total_ns"] == 3 * MS
    (said,) = about_the_window(answer)
    assert said.startswith("In 99% of the 0.25 s that it covers")
    assert about_the_window(of(one_kernel(3 * MS), TraceWindow(5 * MS, 5 * MS))) == []


def repeating(*, hidden: bool = True) -> Trace:
    record = Job()
    for _ in range(12):
        begin = record.now
        record.launch(range(30))
        record.mark("ProfilerStep#", begin)
        record.wait(1000)
    return record.trace(hidden=hidden)


def test_what_repeats_is_no_step_where_the_job_counts_others() -> None:
    alone = of(repeating(), None)["steps"]
    assert alone["source"] == "repetition"
    near = round(alone["median_ns"] * 1.2)
    assert of(repeating(), TraceWindow(10 * near, None, near))["steps"] == alone
    far = of(repeating(), TraceWindow(10 * near, None, 4 * near))
    assert (far["steps"]["count"], far["steps"]["source"]) == (0, "none")
    assert far["step_budget"] is None
    assert "no step of the job" in far["steps"]["how"]


def test_marked_steps_are_steps_whatever_the_job_counts() -> None:
    marked = of(repeating(hidden=False), TraceWindow(1 << 40, None, 1 << 38))
    assert marked["steps"]["source"] == "markers"
    assert marked["steps"]["count"] > 0
