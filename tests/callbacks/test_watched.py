"""What the callbacks share, without a trainer: marks, news, the verdict; and what a job is told."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.render.snapshots import snapshot
from tests.render.test_hosts import answer_at, hostile
from whyidle.agents import wire
from whyidle.monitor.callbacks.watched import Watched, mark_calls, step_ended
from whyidle.monitor.core import marks
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.recording.telling import said

TOLD: dict[str, Any] = {
    "run": 7,
    "source": "trace",
    "parts": {"compute": 0.3, "idle_input": 0.65, "idle_dispatch": 0.05},
    "findings": [
        {
            "rule": "input_starved", "severity": "high", "title": "The device waits",
            "speedup": [1.5, 2.0], "expected": 1.732, "at": "train.py:30",
        }
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    marks.told = marks.listener = None
    marks.doing.clear()
    marks.shown[:] = b" " * len(marks.shown)


def test_while_nobody_watches_nothing_is_said() -> None:
    watched = Watched()
    step_ended()
    assert watched.news() is None
    assert watched.verdict() is None


def test_a_step_is_marked_where_somebody_listens() -> None:
    heard: list[int] = []
    marks.listener = lambda: heard.append(1)
    step_ended()
    step_ended()
    assert len(heard) == 2


def doing() -> str | None:
    """What who looks from outside reads."""
    assert len(marks.shown) == wire.PHASE_BYTES
    return marks.shown.decode().rstrip() or None


def test_phases_lie_within_each_other_and_a_step_ends_all() -> None:
    with marks.phase("validation"):
        assert doing() == "validation"
        with pytest.raises(KeyError), marks.phase("logging"):
            marks.doing[0]
        with marks.phase("logging"):
            assert doing() == "logging"
        assert doing() == "validation"
    assert doing() is None
    marks.phase_ended()
    marks.phase_began("validation")
    marks.phase_began("checkpoint")
    step_ended()
    assert not marks.doing


def test_a_thread_has_phases_of_its_own() -> None:
    with marks.phase("validation"):
        other = threading.Thread(target=marks.phase_began, args=("logging",))
        other.start()
        other.join()
        assert doing() == "validation"
        marks.in_steps()
        assert doing() is None
    assert [name for name, _ in marks.doing.values()] == ["logging"]


class Saves:
    """What saves, and what it returns and raises."""

    def save(self, path: str, *, fails: bool = False) -> str:
        if fails:
            raise OSError(path)
        return f"{path}: {doing()}"


def test_what_saves_is_marked_and_left_as_it_was() -> None:
    model = Saves()
    undo = mark_calls(model, ("save",), "checkpoint")
    assert model.save("here") == "here: checkpoint"
    with pytest.raises(OSError, match="there"):
        model.save("there", fails=True)
    assert doing() is None
    mark_calls(model, ("save",), "checkpoint")()
    assert model.save("here") == "here: checkpoint"
    undo()
    assert vars(model) == {}
    model.save = theirs = str.upper  # type: ignore[method-assign]
    mark_calls(model, ("save",), "checkpoint")()
    assert model.save is theirs


def test_news_come_once_as_numbers_for_a_logger() -> None:
    watched = Watched()
    marks.told = TOLD
    assert watched.news() == {
        "whyidle/compute": 0.3, "whyidle/idle_input": 0.65, "whyidle/idle_dispatch": 0.05,
        "whyidle/idle": 0.7, "whyidle/speedup_low": 1.5, "whyidle/speedup_high": 2.0,
        "whyidle/speedup_expected": 1.732,
    }  # fmt: skip
    assert watched.news() is None
    parts = {"idle_input": 0.7905, "idle_gc": 0.0012, "idle_unknown": 0.2084}
    marks.told = {**TOLD, "parts": parts, "findings": []}
    assert (watched.news() or {})["whyidle/idle"] == 1
    marks.told = {**TOLD, "parts": {}, "findings": []}
    assert watched.news() == {}


def test_the_verdict_stays_when_the_monitor_has_left() -> None:
    watched = Watched()
    marks.told = TOLD
    watched.news()
    marks.told = None
    verdict = watched.verdict()
    assert verdict is not None
    first, finding, last = verdict.splitlines()
    assert first == "whyidle: idle input 65%, compute 30%, idle dispatch 5%."
    assert "HIGH   The device waits, about 1.73x faster when fixed, train.py:30" in finding
    assert last.endswith("monitor diagnose 7")


def test_what_is_told_fits_into_a_message_whatever_the_job_is_called() -> None:
    answer = hostile(answer_at("/home/somebody/" + "x" * 5000 + "/train.py"))
    findings = tuple(cast(Any, each) for each in answer.findings * 9)
    told = said(replace(snapshot(), findings=findings))
    assert told["run"] == 1
    assert 1 <= len(told["findings"]) <= 5
    assert len(json.dumps({"do": "tell", "said": told})) < wire.MESSAGE_BYTES
    assert set(told["parts"]) <= set(map(str, Slice))


def test_importing_them_brings_nothing() -> None:
    source = (
        "import sys\nimport whyidle.monitor.callbacks.watched\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "click", "rich", "msgspec", "torch", "sqlite3", "pynvml"}


def test_a_step_that_nobody_watches_costs_nothing_that_counts() -> None:
    watched = Watched()
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter_ns()
        for _ in range(1000):
            step_ended()
            watched.news()
        best = min(best, (time.perf_counter_ns() - began) / 1000)
    # A step of a tenth of a millisecond would take 2% more; benchmarks/callback_cost.py: 0.15 us.
    assert best < 2_000
