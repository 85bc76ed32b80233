"""Stores with a job of ranks, kept as ``monitor trace DIR --run 1`` keeps it."""

from __future__ import annotations

from pathlib import Path

from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.stored_traces import keep
from whyidle.monitor.traces.ranks.answer import read_ranks


def make(folder: Path, job: Path) -> Path:
    """Write a store with one run that has the ranks of a folder; returns the store."""
    store = folder / "state" / "whyidle.db"
    with Writer.open(store) as writer:
        writer.end_run(writer.begin_run(NewRun(target_pid=7, script="train.py")), "it ended", 0)
    read = read_ranks([str(job)]).side_by_side()
    keep(store, read.trace, read.answer, file=job, segments=read.segments, steps=read.steps, run=1)
    return store
