"""TRACE and BUDGET: the answer of ``monitor trace``, and where its time goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NotRequired, TypedDict

# An object whose keys are data: the columns of metrics, facts of a framework.
JsonObject = dict[str, object]
Unknown = dict[str, str]
# How the warning of a file that ends early, or is not read to its end, begins; in any format.
CUT_OFF: Final = "The file is cut off"
READ_TO: Final = "The file was read up to event"


def cut_off(warnings: Iterable[str]) -> str | None:
    """Return the warning that a file ends early: all else that is said is of a part of it."""
    return next((text for text in warnings if text.startswith((CUT_OFF, READ_TO))), None)


class AccountJson(TypedDict):
    """Nanoseconds by slice; the details of a slice add up to its total."""

    slices: dict[str, int]
    details: dict[str, dict[str, int]]


class BudgetJson(AccountJson):
    """BUDGET: sums over the window, or over whole steps."""

    total_ns: int
    steps: int


class StepsJson(TypedDict):
    """The steps of a trace, and how they were told apart."""

    count: int
    median_ns: int | None
    source: str
    how: str
    # How long what repeats takes, where that agrees with no count of the job's steps.
    repeats_ns: NotRequired[int | None]


class WindowFactsJson(TypedDict):
    """The length recorded, the length requested, and how long the job's steps take."""

    ns: int
    asked_ns: int | None
    step_ns: int | None


class WindowJson(WindowFactsJson):
    """The window of a trace that we took, and how much of it the account does not cover."""

    outside_ns: int


class TakenJson(TypedDict):
    """How we took a trace ourselves."""

    began_ms: int
    ended_ms: int
    held_ns: int | None
    how: str
    pid: int
    rank: int | None
    window: WindowFactsJson


class DeviceJson(TypedDict):
    """One device of a trace."""

    host: str | None
    pid: int | None
    rank: int | None
    model: str | None
    index: str
    kind: str
    unknown: Unknown
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    copy_ns: int
    exposed_copy_ns: int
    kernels: int
    comm_kernels: int
    copies: int
    budget: BudgetJson
    step_budget: BudgetJson | None


class TraceStepsJson(StepsJson):
    """The steps of a trace, as in its answer."""

    unknown: Unknown


class CountedJson(TypedDict):
    """How often something ran, and its total time."""

    name: str
    count: int
    total_ns: int


class NamedJson(CountedJson):
    """All runs under one name, and their share of the total time."""

    share: float


class KernelJson(NamedJson):
    """All runs of the kernels with one name."""

    family: str
    dtype: str | None
    tensor_cores: bool | None
    unknown: Unknown


class ShortKernelsJson(TypedDict):
    """Kernels that take less time than their launch."""

    below_ns: int
    count: int
    total_ns: int


class KernelsJson(TypedDict):
    """All kernels of a trace together."""

    count: int
    total_ns: int
    short: ShortKernelsJson
    tensor_core_share: list[float] | None
    dtypes_ns: dict[str, int]
    families_ns: dict[str, int]
    unknown: Unknown


class LaunchingJson(TypedDict):
    """How the host submits its work."""

    operations: int
    launched: int
    calls: int
    graph_operations: int
    started_before_launch: int
    calls_per_second: float | None
    calls_per_step: float | None
    call_median_ns: int | None
    delay_median_ns: int | None
    delay_p95_ns: int | None
    unknown: Unknown


class CollectiveJson(CountedJson):
    """All communication of one kind."""

    kind: str
    dtype: str | None
    algorithm: str | None
    protocol: str | None
    unknown: Unknown


class CopyJson(TypedDict):
    """All copies in one direction with one kind of memory."""

    direction: str
    memory: str
    count: int
    total_ns: int
    bytes: int | None
    gb_per_s: float | None
    unknown: Unknown


class HloOpJson(NamedJson):
    """All runs of one operation of a compiled program."""

    module: str


class CallJson(CountedJson):
    """All host calls of one name."""

    per_step: float | None
    unknown: Unknown


class CalledJson(TypedDict):
    """What a line of the user's code was calling."""

    name: str
    ns: int


class OwnerJson(TypedDict):
    """A line of the user's code, and how much of a slice belongs to it."""

    slice: str
    file: str
    line: int
    function: str
    ns: int
    share: float
    source: str
    exact_line: bool
    calls: list[CalledJson]


class MissingJson(TypedDict):
    """Work that the profiler may not have recorded."""

    # Launches of whole CUDA graphs, and those of which any operation is in the file.
    graph_launches: int
    graph_launches_shown: int
    # Records that the profiler says it dropped.
    dropped: int


class ActivityJson(TypedDict):
    """What the devices of a trace did."""

    top_kernels: list[KernelJson]
    kernels: KernelsJson | None
    launching: LaunchingJson | None
    collectives: list[CollectiveJson]
    copies: list[CopyJson]
    hlo_modules: list[NamedJson]
    hlo_ops: list[HloOpJson]
    top_operators: list[NamedJson]


class GpuMetricJson(TypedDict):
    """The average of a counter of a GPU over a trace."""

    gpu: str
    name: str
    mean: float
    samples: int


class RankJson(TypedDict):
    """One rank of a job: a device, and the file that it comes from."""

    rank: int | None
    host: str | None
    pid: int | None
    file: str
    device: str
    kind: str
    budget: BudgetJson
    step_budget: BudgetJson | None
    steps: StepsJson
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    # Of the collectives that it shared, the part that it came last to.
    last: float | None
    # Parts of a step: how long others waited for it, and it for others; with what computing covers
    # as the high end.
    late: list[float] | None
    waits: list[float] | None
    # Its clock less that of the first rank, as the ends of what they shared show.
    clock_ns: int | None
    unknown: Unknown


class ReasonJson(TypedDict):
    """What a rank does for longer than the others, in a step, and the line it belongs to."""

    slice: str
    ns: int
    where: OwnerJson | None


class StragglerJson(TypedDict):
    """The rank that the others wait for."""

    rank: int | None
    host: str | None
    pid: int | None
    file: str
    device: str
    # Of a step, and in nanoseconds a step.
    share: list[float]
    late_ns: list[int]
    last: float
    # Others that are late as it is.
    alike: list[int | None]
    # What it comes late to: parts of its lateness.
    collectives: dict[str, float]
    # How often chance alone does this.
    chance: float
    why: ReasonJson | None


class ImbalanceJson(TypedDict):
    """How unevenly the ranks compute."""

    most_over_mean: float
    busiest: int | None
    least_ns: int
    most_ns: int


class ExchangeJson(TypedDict):
    """All communication of one kind and size among groups of one size."""

    kind: str
    bytes: int | None
    ranks: int
    count: int
    # Over all ranks: in it, and there waiting for the last one to come.
    total_ns: int
    waiting_ns: int | None
    # Of the data alone, as the last to come sees it.
    gb_per_s: float | None


class SkewJson(TypedDict):
    """How far the clocks of the ranks are apart; times of several files need it."""

    most_ns: int
    rank: int | None


class RanksJson(TypedDict):
    """RANKS: the ranks of one job side by side."""

    each: list[RankJson]
    straggler: StragglerJson | None
    imbalance: ImbalanceJson | None
    communication: list[ExchangeJson]
    skew: SkewJson | None
    # Collectives that several ranks shared, and the steps they were in.
    collectives: int
    steps: int
    step_ns: int | None
    world: int | None
    missing: list[int]
    warnings: list[str]
    unknown: Unknown


class TraceJson(ActivityJson):
    """TRACE: the answer of ``monitor trace --json``."""

    schema: int
    file: str
    format: str
    events: int
    window: WindowJson | None
    warnings: list[str]
    devices: list[DeviceJson]
    steps: TraceStepsJson
    budget: BudgetJson
    step_budget: BudgetJson | None
    calls: list[CallJson]
    where: list[OwnerJson]
    missing: MissingJson
    # Counters as the profiler sampled them; answers stored by older versions have none.
    gpu_metrics: NotRequired[list[GpuMetricJson]]
    # Of a folder, or several files: the ranks of one job.
    ranks: NotRequired[RanksJson | None]
    unknown: Unknown


class StoredTraceJson(TypedDict):
    """A trace stored with a recording; damaged or missing parts are null."""

    id: int
    ts_ms: int
    answer: TraceJson | None
    # How we took it, if we did.
    taken: TakenJson | None


class LastTraceJson(TypedDict):
    """The trace in a summary: where its time went, and how it was taken."""

    id: int
    ts_ms: int
    taken: TakenJson | None
    format: str | None
    steps: TraceStepsJson | None
    budget: BudgetJson | None
    step_budget: BudgetJson | None
    warnings: list[str] | None


class NewTraceJson(TypedDict):
    """The trace in a tick: the one that has just been analysed."""

    id: int | None
    pid: int
    rank: int | None
    framework: str
    how: str
    ts_ms: int
    seconds: float
    held_ns: int | None
    format: str
    kinds: list[str]
    steps: StepsJson
    budget: BudgetJson
    step_budget: BudgetJson | None
    warnings: list[str]
    trouble: str | None
    window: WindowJson | None
