"""A trace, analysed once; answer and screens derive from it.

Twice through it: what the account of any part must know of the whole, such as the steps and the
difference of the clocks; then each stretch as if it were a file, and what it gives is added up. A
trace that memory has room for is one stretch.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from whyidle.monitor.traces import steps
from whyidle.monitor.traces.adding import Adding
from whyidle.monitor.traces.budgets.hosts import HostTimelines
from whyidle.monitor.traces.launches import Index, Launches, match
from whyidle.monitor.traces.loading import load
from whyidle.monitor.traces.model import Stretch, Trace
from whyidle.monitor.traces.opening import Progress
from whyidle.monitor.traces.reports import Analysis, DeviceReport
from whyidle.monitor.traces.stream import made_ahead
from whyidle.monitor.traces.where.hotspots import Places
from whyidle.monitor.traces.whole import Whole

__all__ = ["Analysis", "DeviceReport", "analyse", "analyse_trace"]

# Sorting and counting of large columns does without Python's lock; more threads gain little.
WORKERS: Final = 2
LONG: Final = (
    "The file has {events:,} events: it was read part by part, and a timeline of it shows its"
    " communication only."
)


def analyse(path: Path, progress: Progress | None = None, step_ns: int | None = None) -> Analysis:
    """Read and understand a trace file; ``step_ns``: how long a step takes, by the job's count."""
    return analyse_trace(path, load(path, progress), step_ns)


def analyse_trace(path: Path, trace: Trace, step_ns: int | None = None) -> Analysis:
    """Account for every instant of a trace, and find what ran and which code asked for it."""
    with ThreadPoolExecutor(WORKERS) as pool:
        matched, whole = _Matched(trace, pool), Whole(trace)
        for stretch, launched in matched:
            whole.look(stretch, launched)
        repeated = steps.as_run(trace, whole.steps())
        found = steps.agreeing(repeated, step_ns, trace.ticks_per_ns)
        accounts, places = whole.accounts(found), Places()
        ran = Adding(trace, found, [one.place for one in accounts])
        for stretch, launched in matched:
            adding = pool.submit(ran.add, stretch, launched)
            hosts = HostTimelines(stretch.trace)
            coming = [pool.submit(one.add, stretch, launched, hosts) for one in accounts]
            # What follows has no use for the lines of threads, which take memory.
            del hosts
            places.add(stretch.trace, [part for one in coming if (part := one.result())])
            adding.result()
    if trace.stretches is not None:
        trace.warnings.append(LONG.format(events=trace.events))
        whole.shown.put_into(trace, {one.place: one.device for one in accounts})
    reports = [one.report() for one in accounts]
    return Analysis(
        path=path,
        trace=trace,
        steps=found,
        devices=reports,
        kernels=ran.kernels(),
        hotspots=places.hotspots(report.whole for report in reports),
        calls=ran.calls(),
        graphs=ran.graphs,
    )


class _Matched:
    """The stretches of a trace, each with the launches of its devices; may be asked for again."""

    def __init__(self, trace: Trace, pool: ThreadPoolExecutor) -> None:
        self._pool, self._stretches = pool, trace.stretches
        self._only = []
        if trace.stretches is None:
            self._only.append(self._with_launches(Stretch(trace)))

    def __iter__(self) -> Iterator[tuple[Stretch, list[Launches]]]:
        """Yield one after the other; the next one is read while one is worked on."""
        if self._stretches is None:
            return iter(self._only)
        return map(self._with_launches, made_ahead(iter(self._stretches)))

    def _with_launches(self, stretch: Stretch) -> tuple[Stretch, list[Launches]]:
        trace, index = stretch.trace, Index(stretch.trace)
        found = self._pool.map(lambda device: match(trace, device.ops, index), trace.devices)
        return stretch, list(found)
