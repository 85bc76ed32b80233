"""Step time by cause, over time: an estimate from counters and the agent, moment by moment.

Each moment is judged as the live view does it (``estimate.running``). What only a trace can
separate is split as in the last trace before, if that still counts; else it is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.series import Series, SeriesSource, Subject
from whyidle.dashboard.views.time_range import FEW_POINTS
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import StoredTraceJson
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.runs.estimate import ORDER, Device, running
from whyidle.monitor.store import Reader
from whyidle.monitor.tracing.trace_summary import TraceSummary

BY_COUNTERS: Final = "an estimate from counters"
BY_TRACE: Final = f"{BY_COUNTERS}; what they cannot separate is split as in the last trace before"
_GPU: Final = (m.GPU_UTILISATION, m.GPU_SM_ACTIVITY)
MOST_TRACES: Final = 8
# Agents report the last seconds every few ticks; until then a value holds.
_HOLDS_MS: Final = 6_000


@dataclass(frozen=True, slots=True)
class Causes:
    """How the time divides at each moment: seconds of a step, or shares if steps are unknown."""

    times: Sequence[int]
    parts: Mapping[Slice, Sequence[float | None]]
    is_of_steps: bool
    # Why the steps are not known, or nothing at all.
    unknown: str | None = None
    # At some moment a trace divides what the counters leave unknown.
    by_trace: bool = False

    @property
    def how(self) -> str:
        """The source of the figures."""
        return BY_TRACE if self.by_trace else BY_COUNTERS


def causes(source: SeriesSource, gpus: Sequence[Subject], device: Device | None) -> Causes:
    """Return how step time divides over the time range; ``gpus`` are the job's own."""
    what = ("causes", tuple(gpus), device)
    return source.once(what, lambda: _causes(source, gpus, device))


def _causes(source: SeriesSource, gpus: Sequence[Subject], device: Device | None) -> Causes:
    job = [Subject(source.run, "job")]
    counted = [
        source.of(metric, job, FEW_POINTS)[0] for metric in (m.JOB_STEP_P50, *ORDER.values())
    ]
    cards = [source.of(metric, gpus, FEW_POINTS) for metric in _GPU] if gpus else []
    steps = counted[0]
    of_steps = steps.unknown is None
    moments = _by_time([*counted, *(card for some in cards for card in some)])
    parts: dict[Slice, list[float | None]] = {part: [] for part in Slice}
    traces = _traces(source.reader, source.run)
    by_trace = False
    for time, values in moments.items():
        trace = _trace_at(traces, time)
        divided, is_filled = _divided(_Moment(time, values, trace), gpus, device, of_steps=of_steps)
        by_trace |= is_filled
        for part in Slice:
            parts[part].append(None if divided is None else divided.get(part, 0.0))
    shown = {part: column for part, column in parts.items() if any(column)}
    unknown = None if of_steps else steps.unknown
    return Causes(list(moments), shown, of_steps, unknown, by_trace)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is known about a moment."""

    ts_ms: int
    values: Mapping[tuple[Metric, str], float]
    trace: TraceSummary | None


def _divided(
    moment: _Moment,
    gpus: Sequence[Subject],
    device: Device | None,
    *,
    of_steps: bool,
) -> tuple[Mapping[Slice, float] | None, bool]:
    """Return how one moment divides, ``None`` if unknown; and whether a trace was used."""
    values, trace = moment.values, moment.trace
    job = Reading({metric: value for (metric, name), value in values.items() if name == "job"})
    cards = [
        Reading({x: values[x, gpu.name] for x in _GPU if (x, gpu.name) in values}) for gpu in gpus
    ]
    slices: Mapping[Slice, float] = running(job, cards, device).slices
    whole = job.get(m.JOB_STEP_P50) if of_steps else 1.0
    if whole is None:
        return None, False
    is_filled = False
    # Without any measurement a trace cannot be contradicted, which is no evidence for it.
    if trace is not None and values:
        age = (moment.ts_ms - trace.ts_ms) / 1000
        estimate = running(job, cards, device, trace, age)
        if estimate.source == "trace":
            slices, is_filled = _filled(slices, estimate.slices)
    total = sum(slices.values())
    if not total:
        return ({Slice.IDLE_UNKNOWN: whole} if of_steps else None), False
    return {part: whole * ns / total for part, ns in slices.items()}, is_filled


def _filled(
    counted: Mapping[Slice, float], traced: Mapping[Slice, int]
) -> tuple[Mapping[Slice, float], bool]:
    """Return the counted slices, with the unknown part divided as in a trace.

    Each slice gets a share in proportion to how much the trace has beyond what was counted.
    """
    total, whole = sum(counted.values()), sum(traced.values())
    known = {part: counted.get(part, 0) / total if total else 0.0 for part in Slice}
    left = known.pop(Slice.IDLE_UNKNOWN) if total else 1.0
    has = {part: max(0.0, traced.get(part, 0) / whole - known.get(part, 0.0)) for part in Slice}
    weight = sum(has.values())
    if not left or not weight:
        return counted, False
    return {part: known.get(part, 0.0) + left * has[part] / weight for part in Slice}, True


def _by_time(all_series: Sequence[Series]) -> dict[int, dict[tuple[Metric, str], float]]:
    """Return what is known at each moment; a value that was not due holds for a little."""
    times = sorted({time for series in all_series for time in series.times})
    moments: dict[int, dict[tuple[Metric, str], float]] = {time: {} for time in times}
    for series in all_series:
        there = dict(zip(series.times, series.values, strict=True))
        known: tuple[int, float] | None = None
        for time in times:
            value = there.get(time)
            if value is not None:
                known = time, value
            if known is not None and time - known[0] <= _HOLDS_MS:
                moments[time][series.metric, series.name] = known[1]
    return moments


# Which trace counts at a moment -------------------------------------------------------------------
def _traces(reader: Reader, run: int) -> Sequence[TraceSummary]:
    """Return the newest traces of a run, in the order in which they were taken."""
    # Reading them takes milliseconds, and new ones are rare.
    newest = reader.newest_trace(run)
    return remember((reader, run, "last traces", newest), lambda: _read_traces(reader, run))


def _trace_at(traces: Sequence[TraceSummary], ts_ms: int) -> TraceSummary | None:
    """Return the last trace that began at or before a moment."""
    place = bisect_right([each.ts_ms for each in traces], ts_ms)
    return traces[place - 1] if place else None


def _read_traces(reader: Reader, run: int) -> list[TraceSummary]:
    kept = [_summary_of(each) for each in reader.newest_traces(run, MOST_TRACES)]
    return sorted((each for each in kept if each is not None), key=lambda each: each.ts_ms)


def _summary_of(kept: StoredTraceJson) -> TraceSummary | None:
    """Return a stored trace as the recorder summed it up; a trace from a file has no time."""
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
