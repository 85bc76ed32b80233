"""The user's own mark of a step: it costs and changes nothing, and is noticed where allowed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import whyidle.monitor
from whyidle.monitor.core import marks


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(marks, "listener", lambda: found.append(1))
    return found


def test_nobody_listens_and_nothing_is_made() -> None:
    assert marks.listener is None
    assert whyidle.monitor.step() is whyidle.monitor.step()
    with whyidle.monitor.step():
        pass


def test_each_step_is_heard_once_with_a_block_and_without(heard: list[int]) -> None:
    for done in range(3):
        assert len(heard) == 2 * done
        with whyidle.monitor.step():
            pass
        whyidle.monitor.step()


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopIteration, ZeroDivisionError])
def test_what_is_raised_goes_through(error: type[BaseException]) -> None:
    with pytest.raises(error), whyidle.monitor.step():
        raise error


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
