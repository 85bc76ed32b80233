"""A Julia process in a recording: what is read of it is told as an agent would tell it."""

from __future__ import annotations

import pytest

from tests.link.conftest import FS, Puppet
from tests.recording.seated import Job, goes_in, trainer
from whyidle.agents import wire
from whyidle.monitor.attach.answers import OUTSIDE
from whyidle.monitor.attach.julia_reader import Counters
from whyidle.monitor.attach.stack_reader.unreadable import Unreadable
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.link.records import Gauges, State
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording import julia_records
from whyidle.monitor.recording.julia_records import JuliaRecords
from whyidle.monitor.recording.stats import figures

S = 1_000_000_000


class Reader:
    """Says what it is told to."""

    version = "1.10.4"
    only_total: str | None = None
    now: Counters | None = Counters(5 * S, 100, 10, 10**9, 10**8)
    refusal: Unreadable | None = None

    def __init__(self, _target: Target) -> None:
        if self.refusal is not None:
            raise self.refusal

    def read(self) -> Counters | None:
        return self.now

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> type[Reader]:
    fresh = type("Fresh", (Reader,), {})
    monkeypatch.setattr(julia_records, "JuliaReader", fresh)
    monkeypatch.setattr(figures, "SHORTEST_S", 0.0)
    return fresh


@pytest.fixture
def records(puppet: Puppet) -> JuliaRecords:
    return JuliaRecords(Target(puppet.key, FS))


def values(records: JuliaRecords, second: float) -> dict[str, float | None]:
    found = [each for each in records.take(int(second * S)) if isinstance(each, Gauges)]
    return dict(found[0].values)


def test_totals_begin_when_it_is_first_read(records: JuliaRecords, reader: type[Reader]) -> None:
    assert values(records, 100)[wire.GC_NS] == 0
    reader.now = Counters(5 * S + S // 2, 104, 11, 10**9 + 500, 2 * 10**8)
    told = values(records, 101)
    assert told[wire.GC_NS] == S // 2
    assert told[wire.GC_COLLECTIONS] == 4
    assert told[wire.GC_FULL] == 1
    assert told[wire.ALLOCATED_BYTES] == 500
    assert told[wire.HEAP_BYTES] == 2 * 10**8


def test_a_pause_of_seconds_fills_the_time_and_no_more(
    records: JuliaRecords, reader: type[Reader]
) -> None:
    values(records, 100)
    # It took 2.5 s, and is counted at its end.
    reader.now = Counters(5 * S + 5 * S // 2, 101, 11, 10**9, 10**8)
    told = [values(records, 100 + second)[wire.GC_NS] for second in (1, 2, 3, 4)]
    assert told == [S, 2 * S, 5 * S // 2, 5 * S // 2]


def test_what_it_is(records: JuliaRecords) -> None:
    state = next(each for each in records.take(S) if isinstance(each, State))
    assert state.probe == "julia"
    assert state.facts["version"] == "1.10.4"
    assert state.facts["backend"] == "cpu"


def test_a_process_that_cannot_be_read_says_why_and_is_tried_again(
    records: JuliaRecords, reader: type[Reader]
) -> None:
    reader.refusal = Unreadable("The code differs.", "Do this.")
    assert records.take(S) == []
    assert (records.refusal.what, records.refusal.next_step) == ("The code differs.", "Do this.")
    reader.refusal = None
    assert records.take(2 * S) == []
    assert records.take(40 * S)
    assert "no agent goes in" in records.refusal.what


def test_a_process_that_has_ended_says_nothing_more(
    records: JuliaRecords, reader: type[Reader]
) -> None:
    records.take(S)
    reader.now = None
    assert records.take(2 * S) == []


def test_a_job_of_julia_is_shown_and_counted_and_nothing_goes_in(
    puppet: Puppet, reader: type[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet.do("bye")
    monkeypatch.setattr(figures, "MOST_RATE", float("inf"))
    job = Job(puppet, goes_in)
    job.who = trainer(puppet, python=None, frameworks={"julia": None})
    job.tick(1.0)
    reader.now = Counters(6 * S, 108, 12, 2 * 10**9, 10**8)
    member = job.tick(1.0)
    assert member is not None
    assert member.method == OUTSIDE
    assert member.framework["julia"]["version"] == "1.10.4"
    assert member.reading.values[m.PROCESS_HEAP] == 10**8
    assert member.reading.unknown[m.PROCESS_STEPS] == "not seen from outside a Julia process"
    whole = Reading()
    job.inside.put_job(whole)
    assert whole.values[m.JOB_AGENTS] == 0
    assert 0 < whole.values[m.JOB_GC_PAUSE] <= 1
    assert job.inside.not_entered is None
    assert job.tried == 0
    job.until(lambda _: "framework" in job.kinds())


def test_of_an_unknown_version_the_reason_stands_beside_what_is_missing(
    puppet: Puppet, reader: type[Reader]
) -> None:
    puppet.do("bye")
    reader.only_total, reader.now = "its layout is not known", Counters(S)
    job = Job(puppet, goes_in)
    job.who = trainer(puppet, python=None, frameworks={"julia": None})
    job.tick(1.0)
    member = job.tick(1.0)
    assert member is not None
    assert member.reading.unknown[m.PROCESS_ALLOCATED] == "its layout is not known"
