"""Which recordings to delete, chosen by name, age, count or size; never one that still runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.store import Reader, Run
from whyidle.monitor.store.prune import delete_runs, run_sizes, shrink
from whyidle.monitor.tracing.space import Space


@dataclass(frozen=True, slots=True)
class Limits:
    """What may stay."""

    refs: Sequence[str] = ()
    older_than_seconds: float | None = None
    keep: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A recording to delete, and why."""

    run: Run
    size: int
    reason: str


def choose(path: Path, limits: Limits, now: float | None = None) -> list[Victim]:
    """Return what the limits do not let stay, oldest first."""
    files = Space(path).sizes()
    sizes = {s.run: s.size + files.get(s.run, 0) for s in run_sizes(path)}
    with Reader.open(path) as reader:
        runs = reader.runs()
        named = {reader.find(ref).id for ref in limits.refs}
    running = [r for r in runs if r.is_recording]
    for run in running:
        if run.id in named:
            raise UsageProblem(
                f"Run {run.id} still records.", f"End it first: monitor stop {run.id}"
            )
    ended = [r for r in runs if r not in running]
    reasons = {r.id: "named" for r in ended if r.id in named}
    reasons |= _too_old(ended, limits.older_than_seconds, time.time() if now is None else now)
    if limits.keep is not None:
        extra = ended[: max(0, len(ended) - limits.keep)]
        reasons |= {r.id: f"only the newest {limits.keep} stay" for r in extra}
    if limits.size is not None:
        reasons |= _too_much(ended, sizes, reasons, limits.size)
    return [Victim(r, sizes.get(r.id, 0), reasons[r.id]) for r in ended if r.id in reasons]


def delete(path: Path, runs: Sequence[int]) -> int:
    """Delete recordings with the files of their traces; returns the bytes that the disk gets."""
    delete_runs(path, runs)
    space = Space(path)
    with Reader.open(path) as reader:
        known = {run.id for run in reader.runs()}
    # Also those of recordings that a store had which is no more.
    gone = {file.run for file in space.files() if file.run is not None} - known
    return space.forget(gone) + max(0, shrink(path))


def _too_old(runs: list[Run], seconds: float | None, now: float) -> dict[int, str]:
    if seconds is None:
        return {}
    edge = (now - seconds) * 1000
    return {r.id: "too old" for r in runs if (r.ended_ms or r.started_ms) < edge}


def _too_much(
    runs: list[Run], sizes: dict[int, int], gone: dict[int, str], most: int
) -> dict[int, str]:
    """Let the oldest go until the rest fits."""
    total = sum(size for run, size in sizes.items() if run not in gone)
    found: dict[int, str] = {}
    for run in runs:
        if total <= most:
            break
        if run.id not in gone:
            found[run.id] = "the store is too large"
            total -= sizes.get(run.id, 0)
    return found
