"""FINDING: the answer of ``monitor diagnose``."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from whyidle.monitor.core.contracts.ranks import SeenRanksJson
from whyidle.monitor.core.contracts.trace import BudgetJson, Unknown


class EvidenceJson(Struct, frozen=True, kw_only=True):
    """One measured number that supports a finding."""

    name: str
    value: float | str
    unit: str
    source: str
    age_s: float | None = None
    window_s: float | None = None


class PlaceJson(Struct, frozen=True, kw_only=True):
    """A line of the user's code, and its share of the time."""

    file: str
    line: int
    function: str
    share: float | None = None


class CalledPlaceJson(PlaceJson, frozen=True, kw_only=True):
    """The same with the user's lines that called it, from the innermost out."""

    chain: list[PlaceJson]


class FixJson(Struct, frozen=True, kw_only=True):
    """What to change."""

    text: str
    code: str
    # The line to edit, where the user's source says it.
    where: PlaceJson | UnsetType = UNSET


class EnergyJson(Struct, frozen=True, kw_only=True):
    """What the lost time costs: energy, at most, where the GPU only waits."""

    watts_lost: float | None
    joules_per_step: float | None
    money_per_step: float | None
    money_per_hour: float | None
    currency: str
    unknown: Unknown


class OverheadJson(Struct, frozen=True, kw_only=True):
    """What we cost the job and its machine ourselves."""

    # CPU time a second: of our agents in the job, and of the monitor beside it.
    agent_cores: float | None
    monitor_cores: float | None
    monitor_rss_bytes: float | None
    # How long the job stood still: to be entered, and for so many traces.
    entering_s: float | None
    traces: int
    traces_held_s: float | None
    # The share of a trace's own time that the profiler itself took, where it says so.
    profiler_share: float | None
    unknown: Unknown


class FindingJson(Struct, frozen=True, kw_only=True):
    """FINDING: one fault."""

    rule: str
    severity: str
    title: str
    # "measured", "inferred" from samples, or "hinted" by facts that show no time.
    confidence: str
    slice: str | None
    # The least and the most that the fix can gain.
    lost_share: list[float] | None
    # What gets faster: a step, a sample; the job as a whole where no steps were seen.
    paced_by: Literal["steps", "samples", "time"]
    speedup: list[float] | None
    # The one factor within them that is told; ``None`` where there are none.
    expected: float | None
    # What would narrow a range that is too wide to decide by, and how to get it.
    narrowed_by: str | UnsetType = UNSET
    evidence: list[EvidenceJson]
    where: list[CalledPlaceJson]
    fixes: dict[str, FixJson]
    documents: list[str]
    also_seen: list[str]
    behind: str | None
    energy: EnergyJson


class BriefFindingJson(Struct, frozen=True, kw_only=True):
    """A finding without its evidence, for places with little room."""

    rule: str
    severity: str
    title: str
    lost_share: list[float] | None
    speedup: list[float] | None
    expected: float | None


class NotCheckedJson(Struct, frozen=True, kw_only=True):
    """A rule that could not judge, and what it would need."""

    rule: str
    needs: str


class ComputeJson(Struct, frozen=True, kw_only=True):
    """How well the device works while it is busy."""

    bound: Literal["memory", "compute", "neither"] | None = None
    # Between these shares of the kernels' time, or as the counter says.
    tensor_core_share: tuple[float, float] | None = None
    # Of the chip's peak.
    efficiency: float | None = None
    efficiency_source: str | None = None
    # In words, the most important first.
    said: list[str]
    unknown: Unknown


class HostRowJson(Struct, frozen=True, kw_only=True):
    """A part of the main thread's time: what it was doing, and below which of the user's lines."""

    doing: str = field(name="class")
    share: float
    # From the innermost out.
    chain: list[PlaceJson]


class CoresJson(Struct, frozen=True, kw_only=True):
    """Who runs on the cores that the job may use; all of ``runs`` sum to ``total``."""

    total: float
    # By who: "main_thread", "other_threads", "helper_processes", "other_programs", "free".
    runs: dict[str, float]
    # The user's lines in helper processes; here a share is of one core.
    lines: list[PlaceJson]


class ServingJson(Struct, frozen=True, kw_only=True):
    """A main thread that waits for requests or orders: the rows are of the time at work alone."""

    waits: str
    # The part of all time in which there is nothing to do.
    idle: float | None
    # Whether the rows are of other threads: of those that work.
    by_threads: bool
    # Whether these train: then their steps are steps.
    trains: bool


class HostJson(Struct, frozen=True, kw_only=True):
    """Where the main thread's time goes, and who has the cores; the shares of rows sum to one."""

    samples: int
    rows: list[HostRowJson]
    serving: ServingJson | None
    cores: CoresJson | None
    unknown: Unknown


class PhaseJson(Struct, frozen=True, kw_only=True):
    """The steps, or what a loop does besides, as "validation" and "checkpoint"; they sum to one."""

    name: str
    share: float
    # The lines at which it begins, those of the steps themselves; most first.
    where: list[PlaceJson]


class ProcessJson(Struct, frozen=True, kw_only=True):
    """The process of a job that is judged, where another one was named."""

    pid: int
    # As it calls itself; and what it does for the job: "worker", "engine", "trainer".
    title: str | None
    role: str


class VerdictJson(Struct, frozen=True, kw_only=True):
    """The largest part of the time that is no useful work, whether a cure is known or not."""

    text: str
    # Of the time; ``None``: nothing costs time, or nobody knows how much.
    share: float | None
    # The user's lines of it, the largest first.
    where: list[PlaceJson]
    fix: FixJson | None = None
    # The rule of the finding that it is about; ``None``: no finding is.
    rule: str | None = None
    # The text without its place, for a screen that shows the place by itself.
    what: str = ""
    # Of a cause that is not known, the functions of libraries that its line was found in most.
    within: list[PlaceJson] = []
    # The process that it is about, where that is not the one that was named.
    process: ProcessJson | UnsetType = UNSET


class DiagnosisJson(Struct, frozen=True, kw_only=True):
    """The answer of ``monitor diagnose --json``."""

    schema: int = 1
    target: str
    verdict: VerdictJson
    budget: BudgetJson | None
    budget_source: str | None
    not_measured: dict[str, str]
    frameworks: list[str]
    is_known: bool
    unexplained: dict[str, float]
    warnings: list[str]
    host: HostJson
    phases: list[PhaseJson]
    ranks: SeenRanksJson | None
    compute: ComputeJson | None
    overhead: OverheadJson
    findings: list[FindingJson]
    not_checked: list[NotCheckedJson]
    failed: dict[str, str]
    unknown: Unknown


def brief(finding: FindingJson) -> BriefFindingJson:
    """Return a finding without its evidence."""
    return BriefFindingJson(**{x: getattr(finding, x) for x in BriefFindingJson.__struct_fields__})
