"""A recording into plain signals: one pass over the store, bounded however long the run was."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_MINUTE_S, LEAST_POINTS, MOSTLY
from whyidle.monitor.core.contracts.trace import TakenJson
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.metrics import Metric, Scope, metrics_of
from whyidle.monitor.processes.process import JULIA
from whyidle.monitor.runs.aggregates import compiled, reads
from whyidle.monitor.runs.stacks import StackSamples
from whyidle.monitor.runs.summary import (
    COMPILED,
    COMPILES,
    HALF_OF_LOOKS_MS,
    READS,
    ROLLING,
    SHORT_LIVED,
    STACKS,
    THREADS,
    UNIT,
    Watched,
    event_data,
    in_order,
    parts_of,
    subjects,
)
from whyidle.monitor.signals import rolling
from whyidle.monitor.signals.account import account_of
from whyidle.monitor.signals.drift import drift_of
from whyidle.monitor.signals.limits import MOST_EVENTS, MOST_PROCESSES, NEWEST, POINTS
from whyidle.monitor.signals.ranks import ranks_of
from whyidle.monitor.signals.recorded import Facts, GpuUser, Helper, Recorded, SeenGpu, Trend
from whyidle.monitor.signals.standstill import FRAMEWORK, standstill_of, stopped_of
from whyidle.monitor.store import Gpu, Point, Reader, Run, Totals

# After the first step has been seen a job still fills its queues.
SETTLING_MS: Final = 2000
# Where steps take longer, values cover more than the usual seconds.
LONG_STEP_S: Final = 3.0
# What rules ask of a GPU: a live look is paid for in each recording.
OF_GPUS: Final = (
    m.GPU_UTILISATION,
    m.GPU_ENGINE_ACTIVITY,
    m.GPU_SM_ACTIVITY,
    m.GPU_TENSOR_ACTIVITY,
    m.GPU_DRAM_ACTIVITY,
    m.GPU_FP32_ACTIVITY,
    m.GPU_MEMORY_USED,
    m.GPU_MEMORY_TOTAL,
    m.GPU_MEMORY_UNCLAIMED,
    m.GPU_POWER,
    m.GPU_POWER_LIMIT,
    m.GPU_TEMPERATURE,
    m.GPU_SM_CLOCK,
    m.GPU_PCIE_RX,
    m.GPU_PCIE_TX,
    m.GPU_THROTTLED_POWER,
    m.GPU_THROTTLED_SYNC,
    m.GPU_THROTTLED_HEAT,
    m.GPU_THROTTLED_HARDWARE_HEAT,
    m.GPU_THROTTLED_BRAKE,
)
# Of the link, which rests between two copies, the best that it was seen at.
OF_LINKS: Final = (m.GPU_PCIE_GENERATION, m.GPU_PCIE_WIDTH)
# And whether it has more and more to do.
OF_RISES: Final = (m.GPU_PCIE_RX,)
# Of the processes on them: the newest.
OF_USERS: Final = (m.PROCESS_GPU_MEMORY, m.PROCESS_SM_SHARE)
# What a trace is held against; a tick tells of the second before it.
OF_WORK: Final = (m.GPU_UTILISATION, m.GPU_ENGINE_ACTIVITY, m.GPU_SM_ACTIVITY)
TICK_MS: Final = 1000
MOSTLY_MS: Final = 300
# What the monitor takes itself.
OF_OURSELVES: Final = (m.SELF_CPU, m.SELF_RSS)
TRENDS: Final = (
    m.JOB_RSS,
    m.PROCESS_RSS,
    m.PROCESS_HEAP,
    m.PROCESS_LIVE_BYTES,
    m.PROCESS_POOL_USED,
)
RANGES: Final = (m.PROCESS_POOL_USED, m.PROCESS_POOL_SPLIT, m.PROCESS_ALLOC_OOMS)
# More of these in each step is more to do.
OF_A_STEP: Final = (
    m.PROCESS_SAMPLES,
    m.PROCESS_LOADER_BATCHES,
    m.PROCESS_DEVICE_PUTS,
    m.PROCESS_SYNCS,
)
# What is asked for as it stands at the end; a probe that is due seldom spoke within this time.
LASTS: Final = (m.JOB_RSS, m.HOST_MEMORY_AVAILABLE, m.JOB_MEMORY_USED, m.JOB_OOM_KILLS)
LAST_MS: Final = round(1000 * A_MINUTE_S)


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when."""

    start_ms: int
    end_ms: int

    @classmethod
    def of(cls, reader: Reader, run: Run, seconds: float | None = None) -> Span:
        """Return that of a run, or of its last seconds."""
        # Not when it was ended: that may be long after its recorder died.
        newest = reader.latest(run.id, (Scope.JOB, Scope.MONITOR)).values()
        end = max((value.ts_ms for value in newest), default=run.started_ms)
        start = run.started_ms if seconds is None else max(run.started_ms, end - seconds * 1000)
        return cls(int(start), max(int(start), end) + 1)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end_ms - self.start_ms) / 1000


def recorded(reader: Reader, run: Run, span: Span, now_ms: int | None = None) -> Recorded:
    """Return the signals of a run within a span."""
    # The process that stands for the job: one whose stack was sampled, if any was.
    order = in_order(run)
    seen = (each for each in order if event_data(reader, run, (STACKS,), each, most=1))
    who = next(seen, next(iter(order), None))
    changed = _changed(reader, run, who, span)
    steady = _steady(reader, run, who, span, changed)
    found = _Reading(reader, steady, span, changed)
    found.read(Scope.JOB, (run.id,))
    found.read(Scope.HOST, reader.subjects(run.id, Scope.HOST))
    found.read(Scope.PROCESS, () if who is None else subjects(reader, run, who))
    ourselves = reader.means(OF_OURSELVES, [run.id], steady.start_ms, steady.end_ms, POINTS)
    # Such events come every ten seconds: of a short span no more are read.
    most = min(MOST_EVENTS, 20 + int(span.seconds / 5))

    def said(since: int, *kinds: str) -> list[Facts]:
        return event_data(reader, run, kinds, who, since, most=most)

    since = steady.start_ms + HALF_OF_LOOKS_MS
    kept = said(since, STACKS)
    if not kept:
        since = span.start_ms
        kept = said(since, STACKS)
    stacks = StackSamples.of_events(kept)
    unknown = reader.unknown(run.id, (Scope.JOB, Scope.HOST, Scope.PROCESS))
    return Recorded(
        seconds=steady.seconds,
        age_s=None if now_ms is None else max(0.0, (now_ms - span.end_ms) / 1000),
        warm_s=(steady.start_ms - span.start_ms) / 1000,
        means=found.means | ourselves,
        trends=found.trends,
        lasts=found.lasts,
        ranges=found.ranges,
        drift=drift_of(
            _series(reader, m.JOB_STEP_P50, (run.id,), steady),
            kept,
            _series(reader, m.JOB_CPU, (run.id,), steady),
            _series(reader, m.JOB_STEPS, (run.id,), steady),
            {} if who is None else _each(reader, subjects(reader, run, who), steady),
        ),
        standstill=standstill_of(reader, run, _owned(reader, run), span.end_ms),
        stopped=stopped_of(reader, run, span.end_ms),
        unknown={key.metric: why.reason for key, why in unknown.items()},
        gpus=_gpus(reader, run, steady),
        facts=_facts(reader, run, who),
        steps=None if who is None or who.counted is None else who.counted.steps,
        steps_by=None if who is None or who.counted is None else who.counted.source,
        compiled=compiled(said(span.start_ms, COMPILED, COMPILES)),
        reads=reads(said(span.start_ms, READS)),
        stacks=stacks,
        lines=stacks.lines(),
        leaves=stacks.leaves(),
        holders=StackSamples.of_events(each.get("holders", {}) for each in kept),
        looks=int(stacks.samples) or None,
        helpers=tuple(_helpers(reader, run, who, steady, most)),
        parts=_parts(reader, run, who, steady, most),
        peers=_peers(reader, run, who, steady),
        # Of the same time: so often as the main thread is seen in it, so often others are.
        threads=StackSamples.of_events(said(since, THREADS)),
        short_lived=StackSamples.of_events(said(steady.start_ms, SHORT_LIVED)),
        read_from=_read_from(reader, run, who, steady, most),
        events=_events(reader, run, span),
        inside=who is not None and who.inside,
        stopped_s=None if who is None else sum(who.stops_ms) / 1000,
        command=run.command,
        settings=None if who is None else who.settings,
        pid=run.target_pid if who is None else who.pid,
        title=None if who is None else who.title,
        role=None if who is None else who.role,
        is_named=who is None or who.pid == run.target_pid,
        ranks_seen=ranks_of(reader, run, steady.start_ms, steady.end_ms),
    )


def _each(reader: Reader, whose: Sequence[int], span: Span) -> dict[str, list[float]]:
    """Return how many of what is counted a step has, tick by tick."""
    paces = {point.ts_ms: point.mean for point in _series(reader, m.PROCESS_STEPS, whose, span)}
    return {
        metric.name: [
            point.mean / pace
            for point in _series(reader, metric, whose, span)
            if point.mean is not None and (pace := paces.get(point.ts_ms))
        ]
        for metric in OF_A_STEP
    }


def _helpers(
    reader: Reader, run: Run, who: Watched | None, span: Span, most: int
) -> Iterator[Helper]:
    """Yield the processes beside the one that stands for the job, but ranks and other parts."""
    parts = parts_of(run)
    for each in in_order(run):
        is_rank = each.rank is not None and (who is None or each.rank != who.rank)
        # Who starts ranks only waits for them.
        is_rank |= who is not None and who.rank is not None and each.pid == run.target_pid
        if who is None or each.pid == who.pid or is_rank or (each.counted and each.counted.steps):
            continue
        if each in parts:
            continue
        if cores := _cores(reader, run, each, span):
            stacks, threads = (
                StackSamples.of_events(
                    event_data(reader, run, (kind,), each, span.start_ms, most=most)
                )
                for kind in (STACKS, THREADS)
            )
            yield Helper(cores, stacks, threads)


def _parts(reader: Reader, run: Run, who: Watched | None, span: Span, most: int) -> float:
    """Return the cores on which other parts of the job work: a wait that spins is no work."""

    def working(each: Watched) -> float:
        kept = event_data(reader, run, (STACKS,), each, span.start_ms, most=most)
        account = account_of(StackSamples.of_events(kept), by_time=True)
        waits = 0.0 if account is None else account.share(HostClass.PEER_WAIT)
        return min(_cores(reader, run, each, span), 1.0 - waits)

    return sum(working(each) for each in parts_of(run)[:MOST_PROCESSES] if each != who)


def _peers(reader: Reader, run: Run, who: Watched | None, span: Span) -> float:
    """Return the cores of the processes that train beside the one that stands for the job."""
    return sum(
        _cores(reader, run, each, span) for each in in_order(run) if each != who and each.trains
    )


def _cores(reader: Reader, run: Run, who: Watched, span: Span) -> float:
    whose = subjects(reader, run, who)
    found = reader.means((m.PROCESS_CPU,), whose, span.start_ms, span.end_ms, POINTS)
    return found.get(m.PROCESS_CPU, 0.0)


def _read_from(
    reader: Reader, run: Run, who: Watched | None, span: Span, most: int
) -> dict[str, int]:
    """Return what threads that waited read from, in any process of the job."""
    found: Counter[str] = Counter()
    for each in in_order(run)[:MOST_PROCESSES]:
        kinds = (STACKS, THREADS, SHORT_LIVED) if each == who else (STACKS,)
        for data in event_data(reader, run, kinds, each, span.start_ms, most=most):
            found.update(data.get("reads") or {})
    return dict(found.most_common())


def _changed(reader: Reader, run: Run, who: Watched | None, span: Span) -> int | None:
    """Return when in a span steps became of another kind for the last time."""
    whose = () if who is None else subjects(reader, run, who)
    events = [e for s in whose for e in reader.events_of(run.id, UNIT, Scope.PROCESS, s, 1)]
    last = max((event.ts_ms for event in events), default=span.start_ms)
    return last if span.start_ms < last < span.end_ms else None


def _steady(reader: Reader, run: Run, who: Watched | None, span: Span, changed: int | None) -> Span:
    """Leave out what came before the first steps of the last kind; all counts without any."""
    if changed is not None:
        return Span(min(changed + SETTLING_MS, span.end_ms - 1), span.end_ms)
    points = _series(reader, m.JOB_STEPS, (run.id,), span)
    first = next((point.ts_ms for point in points if point.mean), None)
    if first is None:
        is_julia = who is not None and not who.inside and JULIA in who.frameworks
        first = (_collected if is_julia else _compiled)(reader, run, span)
    if first is None:
        return span
    latest = span.start_ms + int((span.end_ms - span.start_ms) * MOSTLY)
    return Span(min(max(first + SETTLING_MS, span.start_ms), latest), span.end_ms)


def _compiled(reader: Reader, run: Run, span: Span) -> int | None:
    """Return when a job whose steps are not counted had compiled what it needs."""
    points = _series(reader, m.JOB_COMPILE, (run.id,), span)
    latest = span.start_ms + MOSTLY * 1000 * span.seconds
    early = [p for p in points if p.ts_ms < latest]
    # A second that is mostly spent compiling is no training.
    busy = [end for _, end, share in rolling.since_the_last(early) if share > MOSTLY]
    known = [point.ts_ms for point in early if point.mean is not None]
    if not busy and known and early[0].mean is None:
        # Small programs compile in no time, and start all the same: until then nothing shows it.
        return known[0]
    return max(busy, default=None)


def _collected(reader: Reader, run: Run, span: Span) -> int | None:
    """Return when a Julia job had loaded and compiled: it then collects as it does from there on.

    Of its steps nothing is seen from outside. ``None``: it hardly collects at all.
    """
    points = _series(reader, m.JOB_GC_PAUSE, (run.id,), span)
    shares = [(point.ts_ms, point.mean) for point in points if point.mean is not None]
    usual = statistics.median(share for _, share in shares) if shares else 0.0
    if usual <= 0:
        return None
    # While it starts, a Julia job collects less than it does later.
    first = next(at for at, share in shares if share >= MOSTLY * usual)
    return None if first == shares[0][0] else first


class _Reading:
    """Collects means and trends of one span."""

    def __init__(self, reader: Reader, span: Span, whole: Span, changed: int | None) -> None:
        self._reader = reader
        self._span = span
        # With what was left out at its beginning; and since when steps are of their last kind.
        self._whole = whole
        self._changed = changed
        self.means: dict[Metric, float] = {}
        self.trends: dict[Metric, Trend] = {}
        self.lasts: dict[Metric, float] = {}
        self.ranges: dict[Metric, tuple[float, float]] = {}

    def read(self, scope: Scope, whose: Sequence[int]) -> None:
        """Read every metric of a scope."""
        if not whose:
            return
        start, end = self._span.start_ms, self._span.end_ms
        self.means |= self._reader.means(metrics_of(scope), list(whose), start, end, POINTS)
        self._leave_out_the_start(scope, whose)
        for metric in (each for each in self.means if each.scope is scope):
            if metric in LASTS:
                last = list(_lasts(self._reader, metric, whose, self._span).values())
                self.lasts |= {metric: last[-1]} if last else {}
            if metric not in TRENDS + RANGES:
                continue
            points = _series(self._reader, metric, whose, self._span)
            lows = [point.least for point in points if point.least is not None]
            highs = [point.most for point in points if point.most is not None]
            if metric in RANGES and lows and highs:
                self.ranges[metric] = min(lows), max(highs)
            if metric in TRENDS and (trend := _trend(points)) is not None:
                self.trends[metric] = trend

    def _leave_out_the_start(self, scope: Scope, whose: Sequence[int]) -> None:
        """Take out of the means what values of the last seconds have of the time before."""
        is_cut = self._whole.start_ms < self._span.start_ms
        slow = self.means.get(m.JOB_STEP_P50, 0.0) > LONG_STEP_S
        if not is_cut or slow:
            return
        rolled = {*m.STEPS, *m.IN_LEAPS}
        for metric in (x for x in rolled if x.scope is scope and self.means.get(x)):
            points = _series(self._reader, metric, whose, self._whole)
            if metric in m.STEPS and self._changed is not None:
                # None of this kind came before the first: that has just ended.
                began = Point(self._changed - 1, None, None, None)
                points = [began, *(p for p in points if p.ts_ms >= self._changed)]
            mean = rolling.mean_of(points, self._span.start_ms, corrects=metric in m.STEPS)
            if mean is not None:
                self.means[metric] = min(1.0, mean) if metric.unit == "ratio" else max(0.0, mean)


def _lasts(reader: Reader, metric: Metric, whose: Sequence[int], span: Span) -> dict[int, float]:
    """Return the newest value of each, where it is known of the last of the span."""
    start = max(span.start_ms, span.end_ms - LAST_MS)
    found = reader.series(metric, list(whose), start, span.end_ms, POINTS)
    return {
        subject: point.mean
        for subject, points in found.items()
        for point in points
        if point.mean is not None
    }


def _series(reader: Reader, metric: Metric, whose: Sequence[int], span: Span) -> list[Point]:
    """Return one series; of a process that was seen as several subjects the parts in turn."""
    found = reader.series(metric, list(whose), span.start_ms, span.end_ms, POINTS)
    return sorted((p for points in found.values() for p in points), key=lambda p: p.ts_ms)


def _trend(points: Sequence[Point]) -> Trend | None:
    # A process that is ending holds nothing for a moment.
    points = [point for point in points if point.mean]
    if len(points) < LEAST_POINTS:
        return None
    values = [point.mean or 0.0 for point in points]
    times = [point.ts_ms / 1000 for point in points]
    slope, _ = statistics.linear_regression(times, values)
    middle = len(values) // 2
    # What a noisy level grew by: the sum of its steps, without single jumps.
    steps = [[b - a for a, b in pairwise(part)] for part in (values[: middle + 1], values[middle:])]
    early, late = (statistics.median(some) * len(some) if some else 0.0 for some in steps)
    holding = late / early if early > 0 else 0.0
    # What grew at once does not go on: a line through all of it would.
    steady = (early + late) / (times[-1] - times[0])
    per_s = min(slope, max(0.0, steady)) if slope > 0 else slope
    return Trend(values[0], values[-1], per_s, holding)


def _gpus(reader: Reader, run: Run, span: Span) -> tuple[SeenGpu, ...]:
    gpus, ours = reader.gpus(run.id), [gpu.id for gpu in _owned(reader, run)]
    used = m.GPU_MEMORY_USED
    rises: dict[int, dict[Metric, float]] = {}
    for metric in OF_RISES:
        series = reader.series(metric, ours, span.start_ms, span.end_ms, POINTS)
        for gpu_id, points in series.items():
            # By how much the second half is higher than the first.
            known = [point.mean for point in points if point.mean is not None]
            middle = len(known) // 2
            if middle >= LEAST_POINTS // 2 and (first := statistics.fmean(known[:middle])) > 0:
                rise = statistics.fmean(known[middle:]) / first
                rises.setdefault(gpu_id, {})[metric] = rise
    lasts = _lasts(reader, used, [gpu.id for gpu in gpus], span)
    totals = _totals(reader, (*OF_GPUS, *OF_LINKS), [gpu.id for gpu in gpus], span)
    users = _users(reader, run, span, ours)

    def seen(gpu: Gpu) -> SeenGpu:
        its, is_ours = totals.get(gpu.id, {}), gpu.id in ours
        return SeenGpu(
            gpu.idx or "?", gpu.name, is_ours,
            {metric: one.mean for metric, one in its.items() if metric not in OF_LINKS},
            gpu.info or {},
            {used: lasts[gpu.id]} if gpu.id in lasts else {},
            {metric: its[metric].most for metric in OF_LINKS if is_ours and metric in its},
            tuple(users.get(gpu.id, ())),
            rises.get(gpu.id, {}),
        )  # fmt: skip

    return tuple(map(seen, gpus))


def _owned(reader: Reader, run: Run) -> list[Gpu]:
    """Return the GPUs of the job."""
    owned = frozenset((run.info or {}).get("gpus", ()))
    return [gpu for gpu in reader.gpus(run.id) if gpu.idx in owned]


def _totals(
    reader: Reader, metrics: Sequence[Metric], whose: Sequence[int], span: Span
) -> dict[int, dict[Metric, Totals]]:
    """Return the totals of each: raw rows lie by their time, so that one pass serves all."""
    return reader.totals(metrics, whose, span.start_ms, span.end_ms, POINTS) if whose else {}


def counted_then(
    reader: Reader, run: Run, taken: TakenJson | None
) -> tuple[dict[Metric, float], ...]:
    """Return what each GPU of the job counted while a trace was taken: by ticks mostly within."""
    if taken is None or not {"began_ms", "ended_ms"} <= taken.keys():
        return ()
    start, end = taken["began_ms"] + TICK_MS - MOSTLY_MS, taken["ended_ms"] + MOSTLY_MS
    if end <= start:
        return ()
    mine = [gpu.id for gpu in _owned(reader, run)]
    totals = _totals(reader, OF_WORK, mine, Span(start, end))
    each = [{metric: one.mean for metric, one in totals.get(gpu, {}).items()} for gpu in mine]
    return tuple(each) if all(each) else ()


def _users(reader: Reader, run: Run, span: Span, gpus: Sequence[int]) -> dict[int, list[GpuUser]]:
    """Return the processes on each GPU; those of the job are the ones whose memory is read."""
    pairs = [pair for pair in reader.gpu_processes(run.id) if pair.gpu in gpus][-MOST_PROCESSES:]
    known = {process.id: process for process in reader.processes(run.id)} if pairs else {}
    used = _totals(reader, OF_USERS, [pair.id for pair in pairs], span)
    whole = _totals(reader, (m.GPU_UTILISATION,), gpus if pairs else (), span)
    ours = _totals(reader, (m.PROCESS_RSS,), list({pair.process for pair in pairs}), span)
    found: dict[int, list[GpuUser]] = {}
    for pair in pairs:
        process, its = known.get(pair.process), used.get(pair.id)
        if process is None or not its:
            continue
        memory, taken = its.get(m.PROCESS_GPU_MEMORY), its.get(m.PROCESS_SM_SHARE)
        # Of the GPU's time it took none while it rested.
        ticks = whole.get(pair.gpu, {}).get(m.GPU_UTILISATION)
        share = taken and taken.total / max(taken.n, ticks.n if ticks else 0)
        user = GpuUser(
            process.pid, process.name or process.command, bool(ours.get(process.id)),
            memory and memory.mean, share,
        )  # fmt: skip
        found.setdefault(pair.gpu, []).append(user)
    for users in found.values():
        # Who never had a share has none, where the driver says what others have.
        if any(user.sm_share is not None for user in users):
            users[:] = [replace(user, sm_share=user.sm_share or 0.0) for user in users]
    return found


def _facts(reader: Reader, run: Run, who: Watched | None) -> dict[str, Facts]:
    """Return what each framework said last, all of it; what the head of the run kept, else."""
    if who is None:
        return {}
    found: dict[str, Facts] = dict(who.frameworks)
    for data in event_data(reader, run, (FRAMEWORK,), who, most=NEWEST):
        facts: Any = data.get("facts")
        if isinstance(facts, dict):
            # A job that ends takes things away one by one, and says less with each.
            probe = str(data.get("probe"))
            found[probe] = {**found.get(probe, {}), **facts}
    return found


def _events(reader: Reader, run: Run, span: Span) -> dict[str, tuple[Facts, ...]]:
    without = {*ROLLING, FRAMEWORK, COMPILED}
    found: dict[str, list[Facts]] = {}
    for event in reader.events(run.id, span.start_ms, without, MOST_EVENTS):
        said = {**(event.data or {}), "text": event.text, "severity": event.severity}
        found.setdefault(event.kind, []).append(said)
    return {kind: tuple(some) for kind, some in found.items()}
