"""The answers of ``monitor compare`` and ``monitor demo``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from whyidle.monitor.core.contracts.diagnosis import BriefFindingJson, OverheadJson
from whyidle.monitor.core.contracts.trace import BudgetJson, Unknown


class PairJson(Struct, frozen=True, kw_only=True):
    """One number on both sides."""

    a: float | None
    b: float | None
    unknown: Unknown


class NamedPairJson(Struct, frozen=True, kw_only=True):
    """One number on both sides, with its name."""

    name: str
    a: float | None
    b: float | None
    unknown: Unknown


class EnergyPairJson(Struct, frozen=True, kw_only=True):
    """The energy per step on both sides."""

    unit: str
    a: float | None
    b: float | None
    unknown: Unknown


class KernelPairJson(Struct, frozen=True, kw_only=True):
    """A kernel on both sides."""

    name: str
    ns: PairJson
    count: PairJson


class TransferPairJson(Struct, frozen=True, kw_only=True):
    """The copies of one direction on both sides."""

    direction: str
    ns: PairJson
    bytes: PairJson


class SideJson(Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    target: str
    kind: str
    steps: int | None
    steps_source: str | None
    batch: float | None
    budget_source: str | None
    overhead: OverheadJson
    unknown: Unknown


class FaultJson(Struct, frozen=True, kw_only=True):
    """A finding on one side or both, with its severity on each."""

    rule: str
    title: str
    severity: str | None
    a: str | None
    b: str | None
    why_unknown: str | None


class SettingJson(Struct, frozen=True, kw_only=True):
    """A difference in the set-up."""

    name: str
    a: str
    b: str


# Low end, middle and high end; null where unknown.
Ends = list[float | None]


class ComparisonJson(Struct, frozen=True, kw_only=True):
    """The answer of ``monitor compare --json``."""

    schema: int = 1
    a: SideJson
    b: SideJson
    verdict: str
    # What all times and figures below are of: slices too are nanoseconds of it.
    per: str
    why_per: str | None
    # How long the steps of each side took, by side.
    step_ns: dict[str, Ends | None]
    mean_step_ns: dict[str, Ends | None]
    p95_step_ns: dict[str, int | None]
    # What "step_ns" has in its middle; the speed-up may be by another, see "speedup_by".
    step_by: Literal["median"] = "median"
    # How the steps of B compare with those of A; by which of the two below.
    speedup: Ends | None = None
    speedup_by: str | None = None
    # Of what stands in "per".
    difference_ns: Ends | None = None
    median_speedup: Ends | None = None
    mean_speedup: Ends | None = None
    # By side, then by slice.
    slices: dict[str, dict[str, float | None] | None]
    shares: dict[str, dict[str, float | None] | None]
    kernels: list[KernelPairJson]
    kernels_are: str
    memory: list[NamedPairJson]
    transfers: list[TransferPairJson]
    energy: EnergyPairJson
    findings_gone: list[FaultJson]
    findings_new: list[FaultJson]
    findings_kept: list[FaultJson]
    findings_unknown: list[FaultJson]
    setup: list[SettingJson]
    warnings: list[str]
    unknown: Unknown


class DemoSideJson(Struct, frozen=True, kw_only=True):
    """One side of a demo."""

    run: int
    script: str
    step_ns: list[int | None]
    # Of what the middle one is.
    step_ns_of: str | None
    mean_step_ns: int | None
    unknown: Unknown
    samples_per_s: float | None
    top: str | None
    findings: list[BriefFindingJson]
    budget: BudgetJson | None
    budget_source: str | None
    overhead: OverheadJson
    not_measured: dict[str, str]


class DemoJson(Struct, frozen=True, kw_only=True):
    """The answer of ``monitor demo --json``, one a line."""

    fault: str
    framework: str
    before: DemoSideJson
    after: DemoSideJson
    predicted: list[float] | None
    measured: list[float | None]
    measured_over: str | None
    as_predicted: bool | None
    findings_gone: list[str]
    findings_left: list[str]
    findings_new: list[str]
    findings_not_judged: list[str]
    waited_for_core: list[float | None]
    unknown: Unknown


class GrownJson(Struct, frozen=True, kw_only=True):
    """The line whose function takes more time of a step than it did."""

    file: str
    line: int
    function: str
    before_ns: int
    after_ns: int


class GateJson(Struct, frozen=True, kw_only=True):
    """What became of a program since its baseline: ``gate`` of ``monitor run --gate --json``."""

    baseline: str
    outcome: str
    is_slower: bool
    allowed_percent: float
    why_unknown: str | None
    runs: list[int]
    # The one in the middle, which the comparison is of.
    run: int
    # The slowest and the fastest.
    speedup_of_runs: list[float] | None
    findings_new: list[FaultJson]
    grown: GrownJson | None
    comparison: ComparisonJson


class BaselineJson(Struct, frozen=True, kw_only=True):
    """A baseline, as ``monitor baseline list`` shows it."""

    name: str
    path: str
    saved_ms: int
    runs: list[str]
    step_ns: float | None
