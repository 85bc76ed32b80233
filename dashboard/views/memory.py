"""Which processes use the memory, how much is left, and whether use grows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.newest import OLD_SECONDS, Newest
from whyidle.dashboard.views.series import Series, SeriesSource, Subject
from whyidle.dashboard.views.time_range import FEW_POINTS, TimeRange
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_WHILE_S
from whyidle.monitor.core.finding import Need
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.rules import memory_growth
from whyidle.monitor.runs.summary import in_order
from whyidle.monitor.signals import opening
from whyidle.monitor.signals.recorded import Trend
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import Point, Process, Reader, Run

# Growth covers the last minutes: what was loaded at the start says nothing about now.
GROWTH_SECONDS: Final = 900
# The framework's own counts.
POOL: Final = (
    m.PROCESS_POOL_USED, m.PROCESS_POOL_RESERVED, m.PROCESS_POOL_PEAK, m.PROCESS_LIVE_BYTES,
)  # fmt: skip
MOST_HOLDERS: Final = 20


@dataclass(frozen=True, slots=True)
class Growth:
    """How memory use changed in the last minutes."""

    metric: Metric
    held: float
    per_hour: float
    # It rises to the end, without levelling out.
    grows: bool
    # ``None``: it does not grow, or the room left is unknown.
    full_in_s: float | None


@dataclass(frozen=True, slots=True)
class Holder:
    """One process on one GPU."""

    gpu: str
    pid: int
    name: str
    is_ours: bool
    memory: float | None
    share: float | None
    why: str


def growth(store: Path, run: int) -> tuple[list[Growth], str | None]:
    """Return the growth as the rule ``memory_growth`` judges it; or what the rule needs."""
    window = opening.of_run(store, str(run), GROWTH_SECONDS)
    trends = window.job.trends
    found = [_growth(window, by, trends[by]) for by in memory_growth.BY if by in trends]
    if found and window.job.seconds >= A_WHILE_S:
        return found, None
    return [], str(Need.LONGER)


def _growth(window: Window, metric: Metric, trend: Trend) -> Growth:
    grows = memory_growth.grows(trend)
    left = memory_growth.left_s(window, metric, trend) if grows else None
    return Growth(metric, trend.last, trend.per_s * 3600, grows, left)


def pools(
    source: SeriesSource, whose: Sequence[Subject], metrics: Sequence[Metric] = POOL
) -> list[Series]:
    """Return the framework's memory counts of a process, its subjects joined in order of time."""
    return [joined(source.of(metric, whose), metric.words) for metric in metrics]


def held(
    source: SeriesSource, metric: Metric, whose: Sequence[Trainer], now_ms: int
) -> list[Series]:
    """Return the recent values of the newest process of each trainer; a dead process holds none.

    A series over the whole time range would end with the last value of a dead process.
    """
    recent = TimeRange(now_ms - int(OLD_SECONDS * 1000), now_ms + 1, is_live=True)
    subjects = [who.subjects[-1] for who in whose]
    return replace(source, span=recent).of(metric, subjects, FEW_POINTS)


def joined(parts: Sequence[Series], name: str) -> Series:
    """Return the parts of one series, joined in order of time."""
    known = [part for part in parts if part.unknown is None]
    if not known:
        return replace(parts[0], name=name)
    if len(known) == 1:
        return replace(known[0], name=name)
    points = [
        Point(*row)
        for part in known
        for row in zip(part.times, part.values, part.least, part.most, strict=True)
    ]
    # Where one part is silent, another may have a value.
    by_time = {point.ts_ms: point for point in points if point.mean is not None}
    return Series.of(name, known[0].metric, [by_time[time] for time in sorted(by_time)])


def holders(reader: Reader, run: Run, gpus: Sequence[Subject]) -> list[Holder]:
    """Return the processes that use memory of these GPUs now, the largest first."""
    newest = Newest.read(reader, run, (Scope.GPU_PROCESS,))
    processes = {process.id: process for process in reader.processes(run.id)}
    names = {gpu.id: gpu.name for gpu in gpus}
    ours = {(watched.pid, watched.start_ticks) for watched in in_order(run)}
    if run.target_pid is not None:
        ours.add((run.target_pid, run.target_start_ticks))
    found = []
    for pair in reader.gpu_processes(run.id):
        memory = newest.get(m.PROCESS_GPU_MEMORY, pair.id)
        share = newest.get(m.PROCESS_SM_SHARE, pair.id)
        process = processes.get(pair.process)
        is_known = memory.value is not None or share.value is not None
        if pair.gpu not in names or process is None or not is_known:
            continue
        found.append(
            Holder(
                names[pair.gpu], process.pid, process.name or process.command or "",
                _is_ours(process, ours), memory.value, share.value, memory.why,
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (one.gpu, -(one.memory or 0.0)))[:MOST_HOLDERS]


def _is_ours(process: Process, ours: Collection[tuple[int, int | None]]) -> bool:
    """Return whether a process is of the job, or a child of it; pids may have been reused."""
    ticks = process.start_ticks
    return any(
        (pid == process.pid and begun in {None, ticks})
        or (pid == process.parent_pid and (begun is None or begun <= ticks))
        for pid, begun in ours
    )
