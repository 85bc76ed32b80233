"""Who is stopped, and who goes on: as a recording tells it."""

from __future__ import annotations

import os
import signal

from tests.recording.benches import Bench, Job
from whyidle.monitor.core import metrics as m
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import Stat
from whyidle.monitor.recording.stops import MOST_TOLD, Stops
from whyidle.monitor.signals.opening import of_run


def stats(states: str) -> dict[ProcessKey, Stat]:
    """Return processes in these states."""
    found = enumerate(states, 7)
    return {ProcessKey(n, 1): Stat(n, "a", s, 1, 0, 0, 0, 1, 1, 0) for n, s in found}


def test_it_is_told_once_with_the_moment_it_was_seen_first() -> None:
    stops = Stops()
    assert stops.look(0.0, stats("R")) == []
    assert stops.look(1.0, stats("T")) == []
    (event,) = stops.look(2.0, stats("T"))
    assert (event.kind, event.at, event.severity) == ("stopped", 1.0, "high")
    assert event.data == {"pid": 7, "seen": True}
    assert "kill -CONT 7" in event.text
    assert stops.look(3.0, stats("T")) == []
    assert [each.kind for each in stops.look(4.0, stats("S"))] == ["goes_on"]
    assert stops.look(5.0, stats("S")) == []


def test_our_own_stop_of_a_moment_is_none() -> None:
    stops = Stops()
    for now, states in enumerate("RtStR"):
        assert stops.look(now, stats(states)) == []


def test_who_was_stopped_before_has_no_moment_and_who_has_ended_is_stopped_no_more() -> None:
    stops = Stops()
    stops.look(0.0, stats("T"))
    (event,) = stops.look(1.0, stats("T"))
    assert event.at is None
    assert event.data == {"pid": 7, "seen": False}
    assert [each.kind for each in stops.look(2.0, {})] == ["goes_on"]


def test_of_a_hundred_the_first_ones_say_it() -> None:
    stops = Stops()
    stops.look(0.0, stats("T" * 100))
    assert len(stops.look(1.0, stats("T" * 100))) == MOST_TOLD
    assert stops.look(2.0, stats("T" * 100)) == []
    assert len(stops.look(3.0, stats("R" * 100))) == MOST_TOLD


def test_a_recording_knows_since_when_until_it_goes_on(bench: Bench, job: Job) -> None:
    bench.tick()
    job.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
    first = bench.tick()
    news = bench.tick().happened
    assert [each.kind for each in news] == ["stopped"]
    stopped = of_run(bench.path, "last").job.stopped
    assert stopped is not None
    assert stopped.pids == (job.pid,)
    assert stopped.seen
    assert abs(stopped.since_ms - first.ts_ms) < 50
    job.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, job.pid, os.WCONTINUED | os.WNOWAIT)
    assert [each.kind for each in bench.tick().happened] == ["goes_on"]
    window = of_run(bench.path, "last")
    assert window.job.stopped is None
    assert m.JOB_CPU in window.job.means
