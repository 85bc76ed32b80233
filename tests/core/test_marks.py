"""The user's own mark of a step: it costs and changes nothing, and is noticed where allowed."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import whyidle.monitor
from whyidle.monitor.core import marks


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(marks, "called", {})
    monkeypatch.setattr(marks, "listener", lambda: found.append(1))
    return found


def test_nobody_listens_and_nothing_is_made() -> None:
    assert marks.listener is None
    assert whyidle.monitor.step() is whyidle.monitor.step()
    with whyidle.monitor.step():
        pass


def test_each_step_is_heard_once_at_its_end(heard: list[int]) -> None:
    for _ in range(3):
        with whyidle.monitor.step():
            before = len(heard)
        assert len(heard) == before + 1


def test_a_step_lies_between_two_calls_that_nothing_enters(heard: list[int]) -> None:
    for done in range(3):
        assert len(heard) == max(0, done - 1)
        whyidle.monitor.step()
    # Each way by itself, in turns.
    heard.clear()
    with whyidle.monitor.step():
        assert heard == [1]
    assert heard == [1, 1]
    one = whyidle.monitor.step()
    for _ in range(3):
        with one:
            pass
    assert len(heard) == 5


def test_calls_of_other_threads_are_steps_of_their_own(heard: list[int]) -> None:
    whyidle.monitor.step()
    thread = threading.Thread(target=whyidle.monitor.step)
    thread.start()
    thread.join()
    assert not heard
    whyidle.monitor.step()
    assert heard == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopIteration, ZeroDivisionError])
def test_what_is_raised_goes_through_and_is_no_step(
    heard: list[int], error: type[BaseException]
) -> None:
    with pytest.raises(error), whyidle.monitor.step():
        raise error
    assert not heard


def test_importing_it_brings_nothing_along() -> None:
    source = (
        "import sys; before = set(sys.modules); import whyidle.monitor;"
        " print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    )
    ours = [name for name in done.stdout.split() if name.startswith("whyidle")]
    marks = "whyidle.monitor.core.marks"
    assert set(ours) <= {"whyidle", "whyidle.monitor", "whyidle.monitor.core", marks}
    assert not {"click", "rich", "numpy", "typing", "threading"} & set(done.stdout.split())
