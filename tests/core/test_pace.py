"""Heavy work beside a job: how fast it goes, and whom it lets go first."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from whyidle.monitor.core import pace


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pace.VARIABLE)


class Clock:
    """Time as a thread sees it: what it takes, and what it sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = self.slept = 0.0
        monkeypatch.setattr(pace.time, "thread_time", lambda: self.taken)
        monkeypatch.setattr(pace.time, "monotonic", lambda: self.taken + self.slept)
        monkeypatch.setattr(pace.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    # As in a thread that has just begun.
    monkeypatch.setattr(pace, "_pace", pace._Pace())
    monkeypatch.setattr(pace, "_hurry", threading.Event())
    return Clock(monkeypatch)


def crowd(monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    monkeypatch.setattr(pace, "is_crowded", lambda: is_there)


@pytest.mark.parametrize(("set_to", "share"), [(None, 0.05), ("0.5", 0.5), ("much", 0.05)])
def test_among_busy_cores_it_takes_its_share(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, set_to: str | None, share: float
) -> None:
    if set_to is not None:
        monkeypatch.setenv(pace.VARIABLE, set_to)
    crowd(monkeypatch, is_there=True)
    with pace.unhurried():
        for _ in range(100):
            clock.taken += 0.006
            pace.breathe()
    assert clock.taken / (clock.taken + clock.slept) == pytest.approx(share)


@pytest.mark.parametrize(("set_to", "crowded"), [("1", True), ("0.05", False)])
def test_it_waits_for_nobody(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, set_to: str, crowded: bool
) -> None:
    monkeypatch.setenv(pace.VARIABLE, set_to)
    crowd(monkeypatch, is_there=crowded)
    with pace.unhurried():
        clock.taken += 0.1
        pace.breathe()
    assert clock.slept == 0


def test_a_core_that_becomes_idle_ends_the_wait(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "is_crowded", lambda: clock.slept < 0.2)
    with pace.unhurried():
        clock.taken += 1.0
        pace.breathe()
    assert clock.slept == pytest.approx(0.2)


def test_somebody_who_waits_ends_the_wait(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(monkeypatch, is_there=True)
    sleep = clock.sleep

    def until_asked(seconds: float) -> None:
        sleep(seconds)
        if clock.slept > 0.22:
            pace.hurry()

    monkeypatch.setattr(pace.time, "sleep", until_asked)
    with pace.unhurried():
        clock.taken += 1.0
        pace.breathe()
    assert clock.slept == pytest.approx(0.25)
    pace.take_time()
    with pace.unhurried():
        clock.taken += 0.01
        pace.breathe()
    assert clock.slept == pytest.approx(0.3)


def test_what_was_taken_in_between_is_not_asked_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(monkeypatch, is_there=True)
    for _ in range(2):
        clock.taken += 100.0
        with pace.unhurried():
            clock.taken += 0.1
            pace.breathe()
    assert 0.2 / (0.2 + clock.slept) == pytest.approx(0.05)


def test_no_single_wait_is_long(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(monkeypatch, is_there=True)
    with pace.unhurried():
        clock.taken += 10.0
        pace.breathe()
    assert clock.slept == pytest.approx(pace.LONGEST_WAIT_SECONDS)


def test_others_import_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_of_pace.py").write_text("")
    (tmp_path / "quick_of_pace.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    waits, goes_on = threading.Event(), threading.Event()

    def breathe() -> None:
        waits.set()
        goes_on.wait(10)

    monkeypatch.setattr(pace, "breathe", breathe)

    def slow() -> None:
        with pace.unhurried():
            __import__("slow_of_pace")

    thread = threading.Thread(target=slow)
    thread.start()
    assert waits.wait(10)
    other = threading.Thread(target=__import__, args=("quick_of_pace",))
    other.start()
    other.join(5)
    assert not other.is_alive()
    goes_on.set()
    thread.join(10)
    assert {"slow_of_pace", "quick_of_pace"} <= sys.modules.keys()


def test_outside_of_it_and_in_other_threads_nobody_waits(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(monkeypatch, is_there=True)
    with pace.unhurried():
        clock.taken += 1.0
        other = threading.Thread(target=pace.breathe)
        other.start()
        other.join()
    pace.breathe()
    assert clock.slept == 0


def test_what_it_imports_comes_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner_of_pace.py").write_text("")
    (tmp_path / "outer_of_pace.py").write_text("import inner_of_pace")
    monkeypatch.syspath_prepend(tmp_path)
    waits: list[int] = []
    monkeypatch.setattr(pace, "breathe", lambda: waits.append(1))
    with pace.unhurried():
        __import__("outer_of_pace")
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("load", "limit", "crowded"),
    [
        ("0.1 0.1 0.1 3/812 99", None, True),
        ("9.9 9.9 9.9 2/812 99", None, False),
        ("0.1 0.1 0.1 3/812 99", "max 100000", True),
        ("0.1 0.1 0.1 2/812 99", "100000 100000", True),
        ("0.1 0.1 0.1 2/812 99", "800000 100000", False),
        ("of another kernel", None, False),
    ],
)
def test_crowded_is_where_more_run_than_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, load: str, limit: str | None, crowded: bool
) -> None:
    monkeypatch.setattr(pace.os, "sched_getaffinity", lambda _: {0, 1})
    (tmp_path / "loadavg").write_text(load)
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(pace, "_LOAD", tmp_path / "loadavg")
    monkeypatch.setattr(pace, "_LIMIT", tmp_path / "cpu.max")
    assert pace.is_crowded() is crowded


def test_the_kernel_gives_the_same_share(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = pace.STEP ** -pace.niceness()
    assert weight / (1 + weight) == pytest.approx(0.05, rel=0.1)
    monkeypatch.setenv(pace.VARIABLE, "1")
    assert pace.niceness() == 0
    monkeypatch.setenv(pace.VARIABLE, "0.001")
    assert pace.niceness() == pace.LOWEST


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no sessions")
def test_a_session_gives_way_and_insists_again() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )

    def weight() -> str:
        return Path(f"/proc/{child.pid}/autogroup").read_text().split()[-1]

    try:
        until = time.monotonic() + 5
        while weight() != str(pace.niceness()) and time.monotonic() < until:
            # Others may have said it just now.
            pace.give_way(child.pid)
        assert weight() == str(pace.niceness())
        pace.insist(child.pid)
        assert weight() == "0"
    finally:
        child.communicate(b"\n")
    # It has ended.
    pace.give_way(child.pid)
