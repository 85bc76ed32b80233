"""Where a job's time goes: by its last trace, or by an estimate from the counters.

A trace knows each gap of the device and counts while it is fresh and nothing measured since speaks
against it. Otherwise compute is the least that the counters of the GPUs prove, and the time that
the host spent elsewhere explains the rest, as far as it goes. Two causes at one moment (a garbage
collection inside the wait for a batch) count once: one wins over the next in the order of the
account of a trace, ``ORDER``. A read from the device mostly waits for compute: of it only what no
kernel can have filled is idle time. What is then left is unknown, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.trace import AccountJson
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import NO_JAX, NO_JULIA, NO_TORCH, Reading, by_reason
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.traces.window import too_short
from whyidle.monitor.tracing.trace_summary import TraceSummary

# What the parts of an estimate add up to: the nanoseconds of a second.
WHOLE: Final = 1_000_000_000
# Two of the longest pauses between the traces of a job in which nothing changes.
TRACE_SECONDS: Final = 600.0
# Windows of a quarter of a second differ by chance, and the driver's figures lag behind.
CHANGED: Final = 0.2
# Waits below this in all explain nothing: a bar of them would say that nothing is known.
LEAST: Final = 0.005
# What the counters see and the trace does not is shown from here on.
NOTABLE: Final = 0.05
ORDER: Final[dict[Slice, Metric]] = {
    Slice.IDLE_GC: m.JOB_GC_PAUSE,
    Slice.IDLE_COMPILE: m.JOB_COMPILE,
    Slice.IDLE_SYNC: m.JOB_SYNC_WAIT,
    Slice.IDLE_INPUT: m.JOB_LOADER_WAIT,
}
# The waits that the agent sees whole. A trace knows more ways to wait for a device than it does.
SEEN: Final = (Slice.IDLE_GC, Slice.IDLE_COMPILE, Slice.IDLE_INPUT)
Device = Literal["gpu", "cpu"]

# Who does not use a framework does not wait for it.
ABSENT: Final = frozenset({NO_TORCH, NO_JAX, NO_JULIA})

ON_GPU = "only a trace tells host dispatch, copies and queue apart"
ON_CPU = "on a CPU only a trace tells compute from host dispatch"
NOWHERE = "no GPU of the job is read, and only a trace tells compute from host dispatch"
NO_WORK = "it shows no work of any device"
NO_GPU_IN_IT = "it shows no GPU"
IT_LACKS_WORK = "the counters of the GPU see work that it does not show"
IT_CHANGED = "the job has changed since"
TOO_OLD = "too old"
BACKENDS: Final[dict[str, Device]] = {"gpu": "gpu", "cuda": "gpu", "rocm": "gpu", "cpu": "cpu"}


@dataclass(frozen=True, slots=True)
class Running:
    """How the time divides: whole parts that add up; none where nothing measured says so."""

    source: Literal["trace", "estimate"]
    slices: Mapping[Slice, int]
    # What the unknown part may be.
    rest: str | None = None
    # Which figures are missing, and what does not fit, a line each.
    notes: tuple[str, ...] = ()
    # The last trace, its age in seconds, and why it does not count now.
    trace: TraceSummary | None = None
    age: float | None = None
    not_counted: str | None = None
    # The parts of an estimate that something measures: nothing of them is nothing.
    measured: frozenset[Slice] = frozenset()

    @property
    def budget(self) -> AccountJson:
        """The account as screens draw it."""
        return {"slices": {str(part): ns for part, ns in self.slices.items()}, "details": {}}


@dataclass(frozen=True, slots=True)
class _Busy:
    """Between what bounds the device was busy; ``why``: of the bound that is not known."""

    least: float | None = None
    most: float = 1.0
    why: str | None = None


def running(
    job: Reading,
    gpus: Sequence[Reading],
    device: Device | None,
    trace: TraceSummary | None = None,
    age: float | None = None,
) -> Running:
    """Return where the time goes; ``gpus`` are the job's own, ``device`` is what it computes on."""
    busy = _busy(gpus) if device == "gpu" else _Busy()
    estimate = _estimate(job, busy, device)
    if trace is None or age is None:
        return estimate
    slices = {part: trace.account["slices"].get(part, 0) for part in Slice}
    why = (
        _why_not(trace, slices, age, device)
        or _contradicted(slices, job, busy, device)
        or (_lacks_work(slices, gpus) if device == "gpu" else None)
    )
    if why is not None:
        return replace(estimate, trace=trace, age=age, not_counted=why)
    rest, notes = _rest(trace, slices), tuple(_beside(slices, job))
    return Running("trace", slices, rest, notes, trace, age)


# The estimate ------------------------------------------------------------------------------------
def _estimate(job: Reading, busy: _Busy, device: Device | None) -> Running:
    waits = {part: _share(job.get(metric)) for part, metric in ORDER.items()}
    measured = {part for part, share in waits.items() if share is not None}
    if busy.least is not None:
        measured.add(Slice.COMPUTE)
    if sync := waits[Slice.IDLE_SYNC]:
        waits[Slice.IDLE_SYNC] = max(0.0, sync - busy.most)
        if busy.least is None:
            # Whether anything computed meanwhile is not known.
            measured.discard(Slice.IDLE_SYNC)
    left = WHOLE
    slices: dict[Slice, int] = {}
    for part, share in ((Slice.COMPUTE, busy.least), *waits.items()):
        slices[part] = min(left, math.floor((share or 0.0) * WHOLE))
        left -= slices[part]
    slices[Slice.IDLE_UNKNOWN] = left
    rest = {"gpu": ON_GPU, "cpu": ON_CPU, None: NOWHERE}[device] if left >= LEAST * WHOLE else None
    notes = tuple(_notes(job, busy, device))
    if busy.least is None and WHOLE - left < LEAST * WHOLE:
        return Running("estimate", {}, rest, notes)
    whole = {s: slices.get(s, 0) for s in Slice}
    return Running("estimate", whole, rest, notes, measured=frozenset(measured))


def _busy(gpus: Sequence[Reading]) -> _Busy:
    """Return what the counters prove: kernels ran in the utilisation, at most.

    It counts a moment also where a kernel filled one of a hundred multiprocessors, and coarsely;
    their own activity is the least that can be meant by it.
    """
    activity, utilisation = (_mean(gpus, x) for x in (m.GPU_SM_ACTIVITY, m.GPU_UTILISATION))
    if utilisation is None and activity is None:
        return _Busy(why="; ".join(_reasons(gpus)) or None)
    if activity is None:
        return _Busy(utilisation, utilisation or 0.0)
    most = 1.0 if utilisation is None else max(utilisation, activity)
    why = None
    if most - activity >= 0.1 and utilisation is not None:
        why = f"kernels ran for up to {most:.0%} of the time, and filled {activity:.0%} of the SMs"
    return _Busy(activity, most, why)


def ran(gpu: Reading) -> tuple[float | None, float | None]:
    """Return between which shares of the time kernels ran: by cycles, and by the utilisation.

    The first is ``None`` where no counter of cycles is read, both where nothing is.
    """
    engine, activity, used = (
        _share(gpu.get(x)) for x in (m.GPU_ENGINE_ACTIVITY, m.GPU_SM_ACTIVITY, m.GPU_UTILISATION)
    )
    if engine is not None:
        exact = max(engine, activity or 0.0)
        return exact, exact
    if activity is None:
        return None, used
    return activity, 1.0 if used is None else max(used, activity)


def _reasons(gpus: Sequence[Reading]) -> list[str]:
    metric = m.GPU_UTILISATION
    return by_reason((metric, gpu.unknown[metric]) for gpu in gpus if metric in gpu.unknown)


def _mean(gpus: Sequence[Reading], metric: Metric) -> float | None:
    values = [_share(gpu.get(metric)) for gpu in gpus]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _share(value: float | None) -> float | None:
    """Return a share that makes sense; a job may report anything."""
    return None if value is None or not math.isfinite(value) else min(1.0, max(0.0, value))


def _notes(job: Reading, busy: _Busy, device: Device | None) -> Iterator[str]:
    """Yield what is missing, or measured and no part of the bar."""
    if busy.why:
        yield busy.why
    sync = _share(job.get(m.JOB_SYNC_WAIT)) or 0.0
    if device != "gpu" and sync >= LEAST:
        yield f"reads of values take {sync:.0%}: there it computes, or waits for it"
    missing = ((x, job.unknown[x]) for x in ORDER.values() if x in job.unknown)
    yield from by_reason((metric, why) for metric, why in missing if why not in ABSENT)


# The trace ---------------------------------------------------------------------------------------
def _why_not(
    trace: TraceSummary, slices: Mapping[Slice, int], age: float, device: Device | None
) -> str | None:
    if not any(slices.values()):
        return NO_WORK
    if device == "gpu" and set(trace.kinds) <= {"cpu"}:
        return NO_GPU_IN_IT
    if trace.window is not None and (short := too_short(trace.window)):
        return f"it covers {short}"
    return TOO_OLD if age > TRACE_SECONDS else None


def _rest(trace: TraceSummary, slices: Mapping[Slice, int]) -> str | None:
    """Return all that is known of the unknown part, where it is a part to speak of."""
    details = trace.account.get("details", {}).get(Slice.IDLE_UNKNOWN) or {}
    if not details or slices[Slice.IDLE_UNKNOWN] < NOTABLE * sum(slices.values()):
        return None
    return str(max(details, key=lambda label: details[label]))


def _beside(slices: Mapping[Slice, int], job: Reading) -> Iterator[str]:
    """Yield what is measured now and was not in the trace: its window is short."""
    total = sum(slices.values())
    for part in SEEN:
        now, then = _share(job.get(ORDER[part])) or 0.0, slices[part] / total
        if now - then >= NOTABLE:
            what = LOOKS[part].words.removeprefix("idle: ")
            yield f"{what} takes {now:.0%} of the main thread now, and {then:.0%} of the trace"


def _contradicted(
    slices: Mapping[Slice, int], job: Reading, busy: _Busy, device: Device | None
) -> str | None:
    """Say so where the trace claims more than the counters of this moment allow."""
    total = sum(slices.values())
    most = {part: _share(job.get(ORDER[part])) for part in SEEN}
    # On a CPU no one computes while the main thread does any of these.
    elsewhere = max(most[part] or 0.0 for part in SEEN)
    most[Slice.COMPUTE] = 1.0 - elsewhere if device == "cpu" else busy.most
    for part, bound in most.items():
        if bound is not None and slices[part] / total > bound + CHANGED:
            return IT_CHANGED
    return None


def _lacks_work(slices: Mapping[Slice, int], gpus: Sequence[Reading]) -> str | None:
    """Say so where the trace shows less work than cycles were counted on each of the GPUs."""
    counted = [ran(gpu)[0] for gpu in gpus]
    known = [share for share in counted if share is not None]
    works = sum(ns for part, ns in slices.items() if not part.idle) / sum(slices.values())
    is_less = len(known) == len(counted) > 0 and works < min(known) - CHANGED
    return IT_LACKS_WORK if is_less else None
