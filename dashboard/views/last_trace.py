"""Which trace stood for a job at a moment: the newest that had been taken by then."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from whyidle.dashboard.views.cache import remember
from whyidle.monitor.core.contracts.trace import StoredTraceJson
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.store import Reader
from whyidle.monitor.tracing.trace_summary import TraceSummary

MOST: Final = 8


def traces(reader: Reader, run: int) -> Sequence[TraceSummary]:
    """Return the newest traces of a run, in the order in which they were taken."""
    # They take some milliseconds to read, and seldom is there another one.
    newest = reader.newest_trace(run)
    return remember((reader, run, "last traces", newest), lambda: _read(reader, run))


def at(told: Sequence[TraceSummary], ts_ms: int) -> TraceSummary | None:
    """Return the last one that began at or before a moment."""
    place = bisect_right([each.ts_ms for each in told], ts_ms)
    return told[place - 1] if place else None


def _read(reader: Reader, run: int) -> list[TraceSummary]:
    kept = [_told(each) for each in reader.newest_traces(run, MOST)]
    return sorted((each for each in kept if each is not None), key=lambda each: each.ts_ms)


def _told(kept: StoredTraceJson) -> TraceSummary | None:
    """Return a kept trace as the recorder told of it; one that nobody took is of no moment."""
    answer, taken = kept.get("answer"), kept.get("taken")
    if not isinstance(answer, dict) or not isinstance(taken, dict):
        return None
    window = answer.get("window")
    return TraceSummary(
        trace=kept["id"],
        key=ProcessKey(int(taken.get("pid") or 0), 0),
        rank=taken.get("rank"),
        framework="",
        how=str(taken.get("how") or ""),
        ts_ms=kept["ts_ms"],
        at=kept["ts_ms"] / 1000,
        seconds=window["ns"] / 1e9 if window else 0.0,
        held_ns=taken.get("held_ns"),
        format=answer["format"],
        budget=answer["budget"],
        step_budget=answer.get("step_budget"),
        steps=answer["steps"],
        kinds=tuple(dict.fromkeys(device["kind"] for device in answer["devices"])),
        window=window,
    )
