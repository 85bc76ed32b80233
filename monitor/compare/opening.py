"""Sides over what there is: a recording, a trace file, a window that was kept."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from whyidle.monitor.compare.sides import Level, Pace, Side, Stretch
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import HARMLESS
from whyidle.monitor.runs.summary import in_order, subjects
from whyidle.monitor.signals import opening
from whyidle.monitor.signals.from_store import Span
from whyidle.monitor.signals.limits import POINTS
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import Point, Reader, Run
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.traces.analysis import Analysis
from whyidle.monitor.traces.answer import contract

# What a person asks of memory, and the metric of its peak, where that is another one.
_OF_PROCESSES: Final = {
    "device memory, by the framework": (m.PROCESS_POOL_USED, m.PROCESS_POOL_PEAK),
    "arrays alive": (m.PROCESS_LIVE_BYTES, m.PROCESS_LIVE_BYTES),
}
RESIDENT: Final = "resident memory"
ON_GPU: Final = "GPU memory"
NOT_MEASURED: Final = "it was not measured"
NO_STEPS: Final = "no step could be told apart"
NO_START: Final = "when its training began is not known: start-up would be in the mean"
# With fewer steps than this it is not known what 95% of them stay under.
LEAST_FOR_P95: Final = 20
OF_A_TRACE: Final = "those of a trace"
OF_OUR_TRACES: Final = "seen in short traces only"


def of_analysis(analysis: Analysis, label: str | None = None) -> Side:
    """Return the side that a trace file is."""
    name = label or analysis.path.name
    steps, ticks = analysis.steps, analysis.trace.ticks_per_ns
    took = [ns / ticks for ns in (steps.end - steps.start).tolist()]
    side = of_window(opening.of_answer(contract(analysis), name), name)
    return replace(side, pace=_traced(took) or side.pace, why_no_pace=steps.how or NO_STEPS)


def of_window(window: Window, label: str | None = None) -> Side:
    """Return a side by its window alone: the middle step, and no distribution."""
    step, job = window.step_s, window.job
    samples = job.means.get(m.JOB_SAMPLES)
    pace = None
    if step is not None and step.value > 0:
        counted = m.JOB_STEPS in job.means
        by, source = ("counted", "counted in the job") if counted else ("trace", OF_A_TRACE)
        pace = Pace((), step.value * 1e9, by, source)
    reason = job.unknown.get(m.JOB_STEP_P50)
    why = reason if reason and reason not in HARMLESS else NO_STEPS
    return Side(
        label or window.target,
        window,
        pace,
        why,
        batch=_batch(window),
        sample_ns=1e9 / samples if samples else None,
    )


def of_run(store: Path, ref: str) -> Side:
    """Return the side that a recording is."""
    window = opening.of_run(store, ref)
    with Reader.open(store) as reader:
        run = reader.find(ref)
        side = of_window(window, _label(run))
        counted = _counted(run)
        memory = dict(_memory(reader, run, window))
    pace = counted or _of_traces(store, run.id) or side.pace
    return replace(side, pace=pace, memory=memory, why_no_memory=NOT_MEASURED)


def _label(run: Run) -> str:
    return f"run {run.id}" if run.label is None else f"run {run.id} ({run.label})"


def _batch(window: Window) -> float | None:
    """Return the samples of a step: as the framework says, or by the rates of both."""
    said = window.fact("batch_size")
    if isinstance(said, int) and said > 0:
        return float(said)
    samples, steps = (window.job.means.get(x) for x in (m.JOB_SAMPLES, m.JOB_STEPS))
    return float(max(1, round(samples / steps))) if samples and steps else None


# Steps -------------------------------------------------------------------------------------------
def _traced(took: Sequence[float]) -> Pace | None:
    known = [ns for ns in took if ns > 0]
    if not known:
        return None
    stretches = tuple(Stretch(1, ns, ns) for ns in known)
    return Pace(stretches, statistics.median(known), "trace", OF_A_TRACE, _p95(known))


def _p95(known: Sequence[float]) -> float | None:
    if len(known) < LEAST_FOR_P95:
        return None
    return statistics.quantiles(known, n=20, method="inclusive")[-1]


def _counted(run: Run) -> Pace | None:
    """Return the steps that the agent counted, of the process that is slowest."""
    counted = [each.counted for each in in_order(run) if each.counted is not None]
    paced = [each for each in counted if each.steps and each.step_p50_ns]
    slowest = max(paced, key=lambda each: each.step_p50_ns or 0, default=None)
    if slowest is None or slowest.step_p50_ns is None:
        return None
    stretches = tuple(
        Stretch(steps, float(ns), float(middle))
        for steps, ns, middle in slowest.stretches
        if steps > 0 and ns > 0 and middle > 0
    )
    source = f"counted by {slowest.source}"
    return Pace(stretches, float(slowest.step_p50_ns), "counted", source, slowest.step_p95_ns)


def _of_traces(store: Path, run: int) -> Pace | None:
    """Return the steps that the kept traces of a run show.

    Those of one trace follow each other within a moment: together they are one sample.
    """
    found: list[list[float]] = []
    with Kept.open(store) as kept:
        for trace in kept.traces(run):
            took = [(stop - start) / trace.ticks_per_ns for start, stop in kept.steps(trace.id)]
            if known := [ns for ns in took if ns > 0]:
                found.append(known)
    if not found:
        return None
    stretches = tuple(Stretch(len(each), sum(each), statistics.median(each)) for each in found)
    every = [ns for each in found for ns in each]
    return Pace(stretches, statistics.median(every), "trace", OF_OUR_TRACES, _p95(every))


# Memory ------------------------------------------------------------------------------------------
def _memory(reader: Reader, run: Run, window: Window) -> Iterator[tuple[str, Level | str]]:
    whole = Span.of(reader, run)
    # As findings take it: without what came before the training.
    steady = replace(whole, start_ms=whole.start_ms + round(1000 * window.job.warm_s))

    def read(metric: Metric, whose: Sequence[int], *, together: bool = False) -> Level | None:
        mean = None
        if window.job.warm_s:
            mean = _total(_series(reader, metric, whose, steady), _mean, together=together)
        peak = _total(_series(reader, metric, whose, whole), _peak, together=together)
        if peak is None:
            return None
        return Level(mean, peak, None if mean is not None else NO_START)

    def why(metric: Metric) -> str:
        return window.job.unknown.get(metric, NOT_MEASURED)

    yield RESIDENT, read(m.JOB_RSS, (run.id,)) or why(m.JOB_RSS)
    owned = frozenset((run.info or {}).get("gpus", ()))
    gpus = [gpu.id for gpu in reader.gpus(run.id) if gpu.idx in owned]
    if gpus:
        yield ON_GPU, read(m.GPU_MEMORY_USED, gpus) or why(m.GPU_MEMORY_USED)
    who = next(iter(in_order(run)), None)
    whose = [] if who is None else subjects(reader, run, who)
    for name, (metric, highest) in _OF_PROCESSES.items():
        # One process, that may have been seen as several subjects in turn.
        level, top = (read(each, whose, together=True) for each in (metric, highest))
        if level is not None:
            yield name, level if top is None else replace(level, peak=top.peak)


def _series(reader: Reader, metric: Metric, whose: Sequence[int], span: Span) -> list[list[Point]]:
    found = reader.series(metric, list(whose), span.start_ms, span.end_ms, POINTS)
    return [[p for p in points if p.mean is not None] for points in found.values()]


def _total(
    found: list[list[Point]], figure: Callable[[list[Point]], float], *, together: bool
) -> float | None:
    """Return the sum over all: means add up, and so do peaks, as a bound."""
    known = [points for points in found if points]
    if together:
        # One subject, that was seen as several in turn.
        known = [[p for points in known for p in points]] if known else []
    return sum(figure(points) for points in known) if known else None


def _mean(points: list[Point]) -> float:
    return statistics.fmean(point.mean or 0.0 for point in points)


def _peak(points: list[Point]) -> float:
    return max(point.most or 0.0 for point in points)
