"""The recordings that run on this host, read from the store: steps, causes, findings, costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whyidle.agents import wire
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import STEP_BOUNDS_S, Metric, Scope
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.export import families as f
from whyidle.monitor.export.exposition import Family, Labels
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.runs.summary import in_order
from whyidle.monitor.runs.training import Counted
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.store import Reader, Run

# An account of the last minute is what a person sees, too.
ACCOUNT_SECONDS: Final = 60.0
# A recorder that stores nothing for so long says nothing of now.
STALE_SECONDS: Final = 60.0
# More findings than these at a time no job has; a rule has one each.
MOST_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Recording:
    """What one of them says now."""

    run: Run
    key: ProcessKey
    # Each process of it that has a framework.
    members: frozenset[ProcessKey]
    gpus: frozenset[str]
    values: Mapping[Metric, float]
    # The shares of the time in which its devices wait, by cause; ``None``: nothing says so.
    idle: Mapping[Slice, float] | None
    findings: tuple[Mapping[str, Any], ...]
    # Of the process that stands for the job; and of all of them.
    steps: Counted | None
    samples: float | None


def read(store: Path, failed: Callable[[Exception], None]) -> list[Recording]:
    """Return those whose recorder lives, without those that cannot be read.

    Raises a ``StorageProblem``.
    """
    found: list[Recording] = []
    if not store.exists():
        return found
    with Reader.open(store) as reader:
        for run in reader.unended():
            if run.is_recording and run.target_pid is not None:
                try:
                    found.append(_read(reader, run, run.target_pid))
                except Exception as error:  # noqa: BLE001  the others can still be read
                    failed(error)
    return found


def _read(reader: Reader, run: Run, pid: int) -> Recording:
    now_ms = time.time() * 1000
    latest = reader.latest(run.id, (Scope.JOB, Scope.MONITOR))
    values = {
        key.metric: value.value
        for key, value in latest.items()
        if now_ms - value.ts_ms < STALE_SECONDS * 1000
    }
    watched = in_order(run)
    counted = [each.counted for each in watched if each.counted is not None]
    samples = [n for each in counted if (n := each.grown(wire.SAMPLES)) is not None]
    return Recording(
        run=run,
        key=ProcessKey(pid, run.target_start_ticks or 0),
        members=frozenset(
            ProcessKey(each.pid, each.start_ticks) for each in watched if each.start_ticks
        ),
        gpus=frozenset((run.info or {}).get("gpus", ())),
        values=values,
        idle=_idle(reader.path, run) if values else None,
        findings=tuple(sorted(reader.findings(run.id), key=_rank)[:MOST_FINDINGS]),
        steps=next((each for each in counted if each.step_counts), None),
        samples=sum(samples) if samples else None,
    )


def _rank(finding: Mapping[str, Any]) -> int:
    known = [str(each) for each in Severity]
    return known.index(finding["severity"]) if finding.get("severity") in known else len(known)


def _idle(store: Path, run: Run) -> Mapping[Slice, float] | None:
    budget = of_run(store, str(run.id), ACCOUNT_SECONDS).budget
    total = 0 if budget is None else sum(budget["slices"].values())
    if budget is None or not total:
        return None
    return {part: budget["slices"].get(part, 0) / total for part in Slice if part.idle}


def families(recordings: Mapping[str, Recording]) -> list[Family]:
    """Return what recordings say of jobs, by their job_key."""
    numbers = {metric: f.of_metric(metric) for metric in (*f.OF_JOB, *f.OF_MONITOR)}
    steps, samples, finding, watts, cost = (
        name.family()
        for name in (
            f.JOB_STEP_TIME, f.JOB_SAMPLES, f.JOB_FINDING, f.JOB_LOST_POWER, f.JOB_LOST_COST
        )
    )  # fmt: skip
    for name, recording in recordings.items():
        labels = {"job_key": name}
        for metric, family in numbers.items():
            family.add(recording.values.get(metric), labels)
        if recording.steps is not None:
            _histogram(steps, recording.steps, labels)
        samples.add(recording.samples, labels)
        for each in recording.findings:
            finding.add(1.0, {**labels, "rule": each["rule"], "severity": each["severity"]})
        _lost(recording, labels, watts, cost)
    return [*numbers.values(), steps, samples, finding, watts, cost]


def _histogram(family: Family, counted: Counted, labels: Labels) -> None:
    bounds = [*(f"{bound:g}" for bound in STEP_BOUNDS_S), "+Inf"]
    if len(counted.step_counts) != len(bounds):
        # Another version recorded it.
        return
    for bound, count in zip(bounds, counted.step_counts, strict=True):
        family.add(float(count), {**labels, "le": bound}, "_bucket")
    family.add((counted.step_sum_ns or 0) / 1e9, labels, "_sum")
    family.add(float(counted.step_counts[-1]), labels, "_count")


def _lost(recording: Recording, labels: Labels, watts: Family, cost: Family) -> None:
    """Two findings may lose the same time: the largest stands for all."""
    energy = [each.get("energy") or {} for each in recording.findings]
    lost = [each["watts_lost"] for each in energy if each.get("watts_lost") is not None]
    watts.add(max(lost, default=None), labels)
    priced = [each for each in energy if each.get("money_per_hour") is not None]
    if priced:
        most = max(priced, key=lambda each: each["money_per_hour"])
        named = {**labels, "currency": most.get("currency") or ""}
        cost.add(most["money_per_hour"], named)
