"""Sums of what was compiled and read back, over a whole recording."""

from __future__ import annotations

from pathlib import Path

from tests.recording.records import KEY, LOAD, SECOND, STEP, compiled, take
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.link.records import Read, Reads
from whyidle.monitor.recording.stats.agent_stats import AgentStats
from whyidle.monitor.runs.aggregates import Compiled, ReadBack
from whyidle.monitor.runs.summary import RunSummary, summarise
from whyidle.monitor.store import NewRun, Writer


def kept(path: Path, agent_stats: AgentStats) -> RunSummary:
    """Store the events of a process, and read them back."""
    entry = {
        "pid": KEY.pid, "start_ticks": KEY.start_ticks, "rank": None, "method": "ptrace",
        "inside": True, "stops_ms": [], "refused": None, "next_step": None,
    }  # fmt: skip
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(target_pid=KEY.pid, info={"processes": [entry]}))
        subject = writer.add_process(run, pid=KEY.pid, start_ticks=KEY.start_ticks)
        for event in agent_stats.events(100 * SECOND, ending=True):
            writer.event(
                run, event.kind, event.text, scope=Scope.PROCESS, subject=subject, data=event.data
            )
        writer.end_run(run, "done")
    return summarise(path, str(run))


def test_single_compilations_and_sums_come_together(tmp_path: Path) -> None:
    agent_stats = AgentStats(KEY)
    take(agent_stats, *(compiled(i, "step", 100, f"shape {i}") for i in range(1, 6)))
    take(agent_stats, compiled(7, "add", 5, caller=None, cached=True))
    totals = kept(tmp_path / DATABASE, agent_stats)
    assert totals.compiled == (
        Compiled("jax", "step", 5, 500_000_000, 0, "shape 5", STEP.file, 20),
        Compiled("jax", "add", 1, 5_000_000, 1, None, None, None),
    )
    assert [event.kind for event in totals.events] == ["compile"] * 3


def test_lines_that_read_are_summed_and_are_no_events_of_the_page(tmp_path: Path) -> None:
    agent_stats = AgentStats(KEY)
    for second in (1, 2):
        take(agent_stats, Reads(second * SECOND, "item", [Read(3, 30, STEP), Read(1, 5, LOAD)]))
    totals = kept(tmp_path / DATABASE, agent_stats)
    assert totals.reads == (
        ReadBack("item", STEP.file, 20, "step", 6, 60),
        ReadBack("item", LOAD.file, 8, "load", 2, 10),
    )
    assert (totals.events, totals.more_events) == ([], 0)


def test_an_agent_without_counts_compiled_and_read_nothing(tmp_path: Path) -> None:
    totals = kept(tmp_path / DATABASE, AgentStats(KEY))
    assert (totals.compiled, totals.reads) == ((), ())
