"""SUMMARY: the totals of a recording."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from whyidle.monitor.core.contracts.diagnosis import (
    FindingJson,
    NotCheckedJson,
    OverheadJson,
    PlaceJson,
    VerdictJson,
)
from whyidle.monitor.core.contracts.trace import JsonObject, LastTraceJson, Unknown


class AgentJson(Struct, frozen=True, kw_only=True):
    """How one process was watched."""

    pid: int
    rank: int | None
    method: str
    refused: str | None
    next_step: str | None
    stops_ms: list[float]
    framework: dict[str, JsonObject] | None
    unknown: Unknown
    # Its part in a job of several, and how it calls itself; only of a process that has one.
    role: str | UnsetType = UNSET
    title: str | UnsetType = UNSET


class CompiledJson(Struct, frozen=True, kw_only=True):
    """All compilations of one function from one line."""

    framework: str
    function: str
    count: int
    ns: int
    cached: int
    reason: str | None
    file: str | None
    line: int | None


class ReadBackJson(Struct, frozen=True, kw_only=True):
    """All sampled reads of one line."""

    kind: str
    file: str
    line: int
    function: str
    count: int
    ns: int


class RunEnergyJson(Struct, frozen=True, kw_only=True):
    """What the job's GPUs used over the whole recording."""

    joules: float | None
    joules_per_step: float | None
    gpu_hours: float
    money: float | None
    currency: str
    unknown: Unknown


class EventJson(Struct, frozen=True, kw_only=True):
    """Something that happened once."""

    ts_ms: int
    kind: str
    severity: str
    text: str


class SummaryJson(Struct, frozen=True, kw_only=True):
    """SUMMARY: the last object of ``monitor attach --json``, and ``monitor runs RUN --json``."""

    summary: Literal[True] = True
    run: int
    attached: Literal["agent", "outside"]
    method: str
    steps: int | None
    # ``None`` where it could not be diagnosed.
    verdict: VerdictJson | None
    findings: list[FindingJson]
    not_checked: list[NotCheckedJson] | None
    unknown: Unknown
    # Which job was watched, and for how long.
    label: str | None
    pid: int | None
    hostname: str | None
    script: str | None
    framework: str | None
    python: str | None
    user: str | None
    container: str | None
    command: str | None
    started_ms: int
    ended_ms: int | None
    end: str | None
    exit_code: int | None
    seconds: float
    ticks: int
    training: JsonObject
    agents: list[AgentJson]
    where: list[PlaceJson] | None
    where_pid: int | None
    compiled: list[CompiledJson] | None
    reads: list[ReadBackJson] | None
    # Each with the mean, least, most and last of its metrics, by column.
    gpus: list[JsonObject]
    gpu_problem: str | None
    energy: RunEnergyJson
    job: JsonObject
    host: JsonObject
    monitor: JsonObject
    # As in the diagnosis; ``None``: it was not diagnosed.
    overhead: OverheadJson | None
    events: list[EventJson]
    more_events: int
    trace: LastTraceJson | None
    trouble: str | None
    defects: dict[str, int]
