"""A knob that the agent took back by itself is an event of the recording."""

from __future__ import annotations

from whyidle.monitor.link.records import Turned
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.stats.agent_stats import AgentStats


def events(*records: Turned) -> list[str]:
    stats = AgentStats(ProcessKey(7, 1))
    stats.take(records, lambda t: t)
    return [event.text for event in stats.events(10**12) if event.kind == "try"]


def test_what_went_back_unasked_is_kept() -> None:
    why = {"why": "the one who asked hung up"}
    assert events(Turned(1, "gc.freeze", "on"), Turned(2, "gc.freeze", "off", why)) == [
        "gc.freeze went back: the one who asked hung up."
    ]


def test_what_was_asked_for_is_written_by_who_asked() -> None:
    assert (
        events(Turned(1, "gc.freeze", "on"), Turned(2, "gc.freeze", "off", {"why": "asked"})) == []
    )


def test_a_job_that_sends_many_fills_nothing() -> None:
    many = [Turned(n, "x" * 256, "off", {"why": "y" * 10_000}) for n in range(10_000)]
    found = events(*many)
    assert len(found) <= 100
    assert max(map(len, found)) < 500
