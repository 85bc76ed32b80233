"""Rows other than samples, as callers see them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.store import identity

# Names the newest recording wherever an id or label is accepted.
LAST: Final = "last"


def check_label(label: str | None) -> None:
    """Refuse a label that could not find its recording again."""
    if label == LAST:
        what = f"A recording cannot be labelled '{label}': that names the newest one."
        raise UsageProblem(what, f"Give another label, such as {label}-try.")
    if label is not None and label.isdecimal():
        what = f"A recording cannot be labelled '{label}': numbers name recordings by their id."
        raise UsageProblem(what, f"Give a label that is no number, such as run-{label}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What is known when a recording begins, the recorder's identity included."""

    label: str | None = None
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    hz: float | None = None
    target_pid: int | None = None
    target_start_ticks: int | None = None
    # Secrets are masked by the caller.
    command: str | None = None
    script: str | None = None
    framework: str | None = None
    python: str | None = None
    user: str | None = None
    container: str | None = None
    host: str | None = field(default_factory=identity.host)
    boot_id: str | None = field(default_factory=identity.boot_id)
    monotonic_ns: int | None = field(default_factory=time.monotonic_ns)
    realtime_ns: int | None = field(default_factory=time.time_ns)
    recorder_pid: int | None = field(default_factory=os.getpid)
    recorder_start_ticks: int | None = field(default_factory=identity.own_ticks)
    recorder_namespace: str | None = field(default_factory=identity.namespace)
    info: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(NewRun):
    """A recording as stored in the file."""

    id: int
    ended_ms: int | None = None
    end_reason: str | None = None
    exit_code: int | None = None

    @property
    def is_recording(self) -> bool:
        """Whether its recorder is alive, as far as visible from here."""
        recorder = identity.Recorder(
            self.host,
            self.boot_id,
            self.recorder_namespace,
            self.recorder_pid,
            self.recorder_start_ticks,
        )
        return self.ended_ms is None and bool(recorder.lives())

    @property
    def is_of_a_job(self) -> bool:
        """Whether a job was recorded: that we started, or with a framework, GPUs or steps."""
        return (
            self.ended_ms is None
            or self.exit_code is not None
            or self.framework is not None
            or bool((self.info or {}).get("gpus"))
            or self.steps_per_s is not None
        )

    @property
    def steps_per_s(self) -> float | None:
        """How many steps a second the job made, by the first of its processes that counted some."""
        processes = (self.info or {}).get("processes", ())
        for counted in (each.get("counted") or {} for each in processes):
            if counted.get("steps") and counted.get("step_sum_ns"):
                return float(counted["steps"] / counted["step_sum_ns"] * 1e9)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as one run saw it."""

    id: int
    run: int
    idx: str | None = None
    uuid: str | None = None
    name: str | None = None
    info: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the job, or a foreign one that uses its GPUs."""

    id: int
    run: int
    pid: int
    start_ticks: int
    parent_pid: int | None = None
    name: str | None = None
    command: str | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    rank: int | None = None
    info: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process on one GPU: the subject of that scope's samples."""

    id: int
    gpu: int
    process: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at a moment."""

    id: int
    run: int
    ts_ms: int
    kind: str
    severity: str
    text: str
    scope: Scope | None = None
    subject: int | None = None
    data: Mapping[str, Any] | None = None


class Key(NamedTuple):
    """The metric and subject of a number."""

    scope: Scope
    subject: int
    metric: Metric


class Point(NamedTuple):
    """One bucket of a series; all ``None`` where the metric was unknown."""

    ts_ms: int
    mean: float | None
    least: float | None
    most: float | None


class Totals(NamedTuple):
    """The number of a metric's values in a span, their sum, the least and the most."""

    n: float
    total: float
    least: float
    most: float

    @property
    def mean(self) -> float:
        """What a value was on average."""
        return self.total / self.n


class Value(NamedTuple):
    """A value and when it was taken."""

    ts_ms: int
    value: float


class Unknown(NamedTuple):
    """Why a metric has no value, and since when."""

    ts_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """One metric of one subject over a whole run.

    ``last`` is ``None`` once the raw rows are gone, or if the run's last minutes had no value.
    """

    n: int
    mean: float
    least: float
    most: float
    last: float | None
