"""FLEET: what ``monitor fleet top --json`` answers. What was not asked for is not there."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from whyidle.monitor.core.contracts.trace import Unknown

Dimension = Literal["job", "cause", "user", "team", "namespace", "host"]


class LostJson(Struct, frozen=True, kw_only=True):
    """GPU-hours that went idle, of one owner; a job has all that is known of it."""

    # By the names of labels; a label that is not set is not there.
    labels: dict[str, str]
    gpu_hours: float
    # Of its own time; ``None``: not known.
    share: float | None
    # Of a job: by cause, its number on its host, and what it runs.
    causes: dict[str, float] | UnsetType = UNSET
    run: str | UnsetType | None = UNSET
    framework: str | UnsetType | None = UNSET
    # Of a host: its GPUs while they were held and idle.
    kwh: float | UnsetType | None = UNSET
    money: dict[str, float] | UnsetType = UNSET


class GpuTimeJson(Struct, frozen=True, kw_only=True):
    """What became of the time of GPUs that are held by a process, or by none."""

    gpu_hours: float
    idle_gpu_hours: float | None
    kwh: float | None
    # By currency; empty where no price is set.
    money: dict[str, float]


class HeldIdleJson(Struct, frozen=True, kw_only=True):
    """A job whose GPUs have done nothing for half an hour."""

    labels: dict[str, str]
    gpus: int


class AlertJson(Struct, frozen=True, kw_only=True):
    """An alert that fires."""

    alert: str
    severity: str
    labels: dict[str, str]


class GoneHostJson(Struct, frozen=True, kw_only=True):
    """A host that answered within the time that is asked about, and no longer does."""

    host: str
    # To a step of the trend.
    last_seen_ms: int


class TrendJson(Struct, frozen=True, kw_only=True):
    """Values over the time that is asked about, at each step; ``None``: not known."""

    times_ms: list[int]
    # Of the time of all GPUs.
    idle_share: list[float | None]
    hosts: list[int | None]
    # How many GPUs were lost, by cause.
    lost_gpus: dict[str, list[float | None]]


class FleetJson(Struct, frozen=True, kw_only=True):
    """FLEET: one answer. A part that could not be had is empty, and ``unknown`` says why."""

    fleet: Literal["top"] = "top"
    server: str
    # By its clock; how far that is before ours.
    now_ms: int
    clock_ahead_s: float | None
    seconds: int
    # Whether sums come from the recording rules or from the counters themselves.
    source: Literal["rules", "counters"]
    hosts: int | None
    gone: list[GoneHostJson]
    gpus: int | None
    gpus_held_idle: int | None
    # By "true", "false" and "unknown": whether a process held them.
    held: dict[str, GpuTimeJson]
    lost_gpu_hours: float | None
    job_gpu_hours: float | None
    lost: dict[Dimension, list[LostJson]]
    held_idle: list[HeldIdleJson]
    alerts: list[AlertJson]
    trend: TrendJson
    # What is odd about the answer, in sentences.
    notes: list[str]
    unknown: Unknown
