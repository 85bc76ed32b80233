"""What makes the account of a trace less certain than it looks, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.slices import UNEXPLAINED, Slice
from whyidle.monitor.traces.analysis import Analysis
from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.names import LAUNCH

# Shares of the devices' time, or of their operations, from which the reader is warned.
FEW_LAUNCHES: Final = 0.5
MUCH: Final = 0.1
MOSTLY: Final = 0.5
PROFILER_COSTS: Final = 0.05
FEW_OF_THE_WORK: Final = 0.25
NO_WORK: Final = (
    "The file holds no work of any device: no kernels, no copies, and no operators of a framework."
)
NO_KERNELS: Final = (
    "The file holds {count:,} launches and no work of the GPU: nothing launched in this window ran"
    " to its end in it. Trace for longer."
)
MORE: Final = {
    "kineto": "Record CPU activity too, and with_stack=True for the lines of code.",
    "xplane": "Record with host_tracer_level=2, and python_tracer_level=1 for the lines of code.",
    "nsys": "Record with: nsys profile --trace=cuda,nvtx,osrt",
}
STACKS: Final = {
    "kineto": "with_stack=True records what Python did meanwhile.",
    "xplane": "python_tracer_level=1 records what Python did meanwhile.",
    "nsys": "--trace=cuda,nvtx,osrt records the host's waits too, and ranges of NVTX.",
}


@dataclass(frozen=True, slots=True)
class AllDevices:
    """All devices together."""

    total: int
    time: dict[Cause, int]
    unmatched: float  # the share of operations whose launch is not in the file

    def share(self, part: Slice | Cause) -> float:
        """How much of the time this has."""
        ticks = sum(t for cause, t in self.time.items() if part in (cause, cause.slice))
        return ticks / self.total if self.total else 0.0

    @property
    def idle(self) -> float:
        """How much of the time no device did anything."""
        return sum(self.share(part) for part in Slice if part.idle)


def trace_warnings(analysis: Analysis, *, ours: bool = False) -> list[str]:
    """Return what a careful reader would question; nobody chooses how ``ours`` are recorded."""
    kind = analysis.trace.format
    more, stacks = ("", "") if ours else (MORE[kind], STACKS[kind])
    if not analysis.trace.events and not analysis.devices:
        return ["The file holds no events at all."]
    if not analysis.devices:
        if count := sum(call.count for call in analysis.calls if LAUNCH.match(call.name)):
            return [NO_KERNELS.format(count=count)]
        if analysis.trace.gpus_cut_off:
            return ["Work of GPUs may be in the part that is missing."]
        return [f"{NO_WORK} {more}".rstrip()]
    if not len(analysis.trace.host):
        return [f"The file says nothing of the host: idle time has no cause. {more}".rstrip()]
    return [
        *_of_missing(analysis), *_of_causes(analysis, _seen(analysis), stacks),
        *_of_clocks(analysis),
    ]  # fmt: skip


def _of_missing(analysis: Analysis) -> Iterator[str]:
    graphs, dropped = analysis.graphs, analysis.trace.dropped
    if graphs.hidden:
        yield (
            f"Of {graphs.hidden:,} of {graphs.count:,} launches of CUDA graphs the file shows no"
            " kernel: time that looks idle may be their work."
        )
    if dropped:
        yield f"The profiler dropped {dropped:,} records: work may be missing that was done."


def _seen(analysis: Analysis) -> AllDevices:
    time = _added(report.whole for report in analysis.devices)
    others = [report for report in analysis.devices if report.device.kind != "cpu"]
    unmatched = sum(report.unmatched for report in others)
    operations = sum(report.totals.operations for report in others)
    return AllDevices(sum(time.values()), time, unmatched / operations if operations else 0.0)


def _of_causes(analysis: Analysis, seen: AllDevices, stacks: str) -> Iterator[str]:
    trace = analysis.trace
    # That Python waits is known; only for what is not.
    unknown = seen.share(Slice.IDLE_UNKNOWN) - seen.share(Cause.BLOCKED)
    if len(trace.calls) and seen.unmatched > FEW_LAUNCHES:
        yield (
            f"{seen.unmatched:.0%} of the operations have no launch in the file: it is sampled or"
            " cut, and what it says of the causes is implausible."
        )
    if seen.share(Cause.LONG_QUEUE) > MUCH:
        yield (
            f"For {seen.share(Cause.LONG_QUEUE):.0%} of the time work was launched long ago and"
            " did not start: the file may be sampled, or it lacks another process or stream."
        )
    elif seen.idle > MUCH and unknown > MOSTLY * seen.idle:
        yield (
            f"{UNEXPLAINED} {unknown / seen.idle:.0%} of the idle time."
            f" {'' if _has_frames(analysis) else stacks}".rstrip()
        )
    if _dispatched_ahead(analysis, seen):
        yield (
            "The steps end before their work is done: the host ran ahead of the device, and the"
            " times of a step are those of dispatching it."
        )
    if analysis.steps.source == "none" and seen.share(Slice.IDLE_ALLOC) > MOSTLY:
        yield "Most of the time goes to device memory: this looks like the start of a job."
    if seen.share(Cause.PROFILER) > PROFILER_COSTS:
        yield f"The profiler itself took {seen.share(Cause.PROFILER):.0%} of the time."


def _has_frames(analysis: Analysis) -> bool:
    return bool((analysis.trace.host.kind == Cause.PYTHON).any())


def _dispatched_ahead(analysis: Analysis, seen: AllDevices) -> bool:
    """Whether little of the work lies within the steps."""
    within = _added(report.of_steps or {} for report in analysis.devices)
    return bool(within) and _work(within) < FEW_OF_THE_WORK * _work(seen.time)


def _added(times: Iterable[dict[Cause, int]]) -> dict[Cause, int]:
    found: dict[Cause, int] = {}
    for time in times:
        for cause, ticks in time.items():
            found[cause] = found.get(cause, 0) + ticks
    return found


def _work(time: dict[Cause, int]) -> int:
    return sum(ticks for cause, ticks in time.items() if not cause.slice.idle)


def _of_clocks(analysis: Analysis) -> Iterator[str]:
    skew = max(report.budget.skew for report in analysis.devices)
    if skew:
        late = skew / analysis.trace.ticks_per_ns / 1000
        yield f"Kernels start before their launches: the host's clock was set back {late:.1f} us."
