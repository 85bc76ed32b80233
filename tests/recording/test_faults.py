"""Findings while a job is recorded: searched for beside the ticks, stored, and shown once."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.recording.seated import Caught
from whyidle.monitor import rules
from whyidle.monitor.core.finding import Gain
from whyidle.monitor.core.metrics import JOB_LOADER_WAIT, JOB_STEPS, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.faults import FIRST_SECONDS, Faults
from whyidle.monitor.signals import opening
from whyidle.monitor.store import NewRun, Writer

TARGET = ProcessKey(7, 70)
START_MS = 1_700_000_000_000


class Recording:
    """A run whose job waits for its loader, and the searches for faults in it."""

    def __init__(self, path: Path) -> None:
        self.writer = Writer.open(path)
        self.run = self.writer.begin_run(NewRun(started_ms=START_MS))
        self.guard = Caught()
        self.faults = Faults(self.writer, self.run, TARGET, self.guard)
        self.now = 0.0
        self.ticks = 0

    def record(self, wait: float, seconds: int = 60) -> None:
        for _ in range(seconds):
            reading = Reading({JOB_STEPS: 10.0, JOB_LOADER_WAIT: wait})
            rows = {Scope.JOB: {self.run: reading}}
            self.writer.append(self.run, Tick(START_MS + 1000 * self.ticks, rows))
            self.ticks += 1

    def search(self) -> list[str]:
        """Wait for a whole search, and return what it found."""
        self.now += 100.0
        self.faults.tick(self.now)
        for thread in threading.enumerate():
            if thread.name == "diagnosing":
                thread.join()
        self.faults.tick(self.now)
        return [event.text for event in self.faults.take_events()]

    def rules(self) -> list[str]:
        return [each.rule for each in self.faults.shown]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path / DATABASE)
    yield made
    made.writer.close()


def test_a_fault_is_shown_once_and_stored(recording: Recording) -> None:
    recording.record(wait=0.5)
    recording.faults.tick(recording.now)
    texts = [text for _ in range(4) for text in recording.search()]
    assert len([text for text in texts if "[input_starved]" in text]) == 1
    assert "input_starved" in recording.rules()
    with closing(sqlite3.connect(recording.writer.path)) as other, other:
        rows = other.execute("SELECT rule, severity, data FROM finding").fetchall()
    (row,) = [row for row in rows if row[0] == "input_starved"]
    assert json.loads(row[2])["state"] == "found"


def test_a_fault_that_is_mended_goes(recording: Recording) -> None:
    recording.record(wait=0.5)
    recording.faults.tick(recording.now)
    while "input_starved" not in recording.rules():
        recording.search()
    recording.record(wait=0.0, seconds=300)
    texts: list[str] = []
    while "input_starved" in recording.rules():
        texts += recording.search()
    assert any(text.startswith("No longer found") for text in texts)


def test_no_fault_is_searched_for_before_the_job_has_settled(recording: Recording) -> None:
    recording.record(wait=0.5)
    recording.faults.tick(0.0)
    recording.faults.tick(FIRST_SECONDS - 1)
    assert not any(thread.name == "diagnosing" for thread in threading.enumerate())


def test_a_rule_that_fails_costs_its_finding_only(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    recording.record(wait=0.5)
    recording.faults.tick(recording.now)
    with monkeypatch.context() as patch:
        patch.setattr(opening, "of_run", broken)
        assert recording.search() == []
    texts = [text for _ in range(3) for text in recording.search()]
    assert any("[input_starved]" in text for text in texts)


def test_signals_that_contradict_each_other_are_logged(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contradicts(_: object) -> None:
        Gain.between(0.4, 0.3)

    recording.record(wait=0.5)
    recording.faults.tick(recording.now)
    odd = replace(rules.load()["input_starved"], detect=contradicts)
    monkeypatch.setattr(rules, "load", lambda: {"input_starved": odd})
    seen: list[Exception] = []
    monkeypatch.setattr(recording.guard, "caught", lambda _, error: seen.append(error))
    assert recording.search() == []
    assert [str(error) for error in seen] == [
        "input_starved: at least 40.0% of the time, and at most 30.0%"
    ]
