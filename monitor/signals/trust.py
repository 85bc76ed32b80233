"""Whether a trace can be believed: its idle time, beside what the counters of the GPUs count.

A profiler may leave out the kernels of CUDA graphs, drop records, slow the host down, and it sees
a moment. The counters need no profiler and count all the time: where the two cannot both be true,
they say how busy the devices are, and the trace how what is left of the idle time divides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_WHILE_S, LITTLE
from whyidle.monitor.core.contracts.trace import BudgetJson, MissingJson
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.estimate import CHANGED, ran
from whyidle.monitor.signals.blended import with_idle
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.traced import Traced

NOTHING: Final[MissingJson] = {"graph_launches": 0, "graph_launches_shown": 0, "dropped": 0}
NOT_IN_TRACE: Final = "by the counters of the GPU, not in the trace"
OUTSIDE: Final = "by the counters of the GPU, outside of the trace"
HIDDEN: Final = "the trace lacks work, and no counter says how much"


@dataclass(frozen=True, slots=True)
class Counted:
    """The share of the time in which kernels of the job's ran, counted without a profiler."""

    # Counted in cycles; ``None``: not on this GPU.
    least: float | None
    # By the driver's utilisation, which is coarse; ``None`` where it is not needed.
    coarse: float | None
    most: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Believed:
    """The account of a trace as it is believed, and what a reader must know of it."""

    account: BudgetJson
    warnings: tuple[str, ...] = ()


def counted(job: Recorded) -> Counted | None:
    """Return what the counters say of the job's GPUs; ``None``: too little.

    A trace may be of one of them only: the bounds hold for each.
    """
    gpus = [gpu for gpu in job.gpus if gpu.is_held]
    bounds: list[tuple[float | None, float | None, float]] = []
    for gpu in gpus:
        least, most = ran(Reading(dict(gpu.means)))
        others = gpu.taken_by_others
        if most is None or others is None:
            return None
        # What neighbours do is in the counters, and in no trace of the job's.
        coarse = None if m.GPU_ENGINE_ACTIVITY in gpu.means else max(0.0, most - others)
        bounds.append((None if least is None else max(0.0, least - others), coarse, most))
    if job.seconds < A_WHILE_S or not bounds:
        return None
    leasts, coarses, mosts = zip(*bounds, strict=True)
    least, coarse = (None if None in some else min(some) for some in (leasts, coarses))
    return Counted(least, coarse, max(mosts), job.seconds)


def believed(traces: Sequence[Traced], account: BudgetJson, job: Recorded) -> Believed:
    """Return the account of some traces, made to agree with the counters."""
    total = sum(account["slices"].values())
    if not total or not any("gpu" in trace.kinds for trace in traces):
        return Believed(account)
    said, lacks = counted(job), list(_lacks(traces))
    if said is None:
        return Believed(with_idle(account, None, HIDDEN) if lacks else account)
    works = sum(account["slices"].get(part, 0) for part in Slice if not part.idle) / total
    if works > said.most + CHANGED:
        text = (
            f"The trace shows the GPU at work for {works:.0%} of the time; by its counters it was"
            f" for {said.most:.0%} at most, over {said.seconds:.0f} s: the trace is of a busier"
            " moment."
        )
        # Where no step is known the seconds may hold the start of the job, too.
        is_known = m.JOB_STEPS in job.means
        return Believed(
            with_idle(account, 1 - said.most, OUTSIDE) if is_known else account, (text,)
        )
    if said.least is not None and works < said.least - LITTLE:
        ran_for, why = said.least, lacks or list(_others(traces, works))
    elif said.coarse is None or works >= said.coarse - CHANGED:
        return Believed(account)
    elif lacks:
        # Utilisation decides where the trace lacks work by its own account, and else warns.
        ran_for, why = said.coarse, lacks
    else:
        text = (
            f"The trace shows the GPU idle for {1 - works:.0%} of the time, though its utilisation"
            f" was {said.coarse:.0%} over {said.seconds:.0f} s. That is a coarse figure, and this"
            " GPU has no finer one: the idle time may be less than the trace shows."
        )
        return Believed(account, (text,))
    because = "; ".join(why) or "the profiler slowed the job down, or this was an unusual moment"
    text = (
        f"The trace shows the GPU idle for {1 - works:.0%} of the time; by its counters it was at"
        f" work for {ran_for:.0%}, over {said.seconds:.0f} s: {because}."
        " What is said of idle time here goes by the counters."
    )
    return Believed(with_idle(account, 1 - ran_for, NOT_IN_TRACE), (text,))


def _lacks(traces: Sequence[Traced]) -> Iterator[str]:
    """Yield why traces surely lack work."""
    missing = [trace.answer.get("missing", NOTHING) for trace in traces]
    launched, shown, dropped = (
        sum(each[name] for each in missing)
        for name in ("graph_launches", "graph_launches_shown", "dropped")
    )
    # Some launches of graphs lie at the ends of a trace; some records are always lost.
    if launched - shown > LITTLE * launched:
        yield (
            f"of {launched - shown:,} of {launched:,} launches of CUDA graphs it has no kernel,"
            " as profilers do not show these one by one"
        )
    if dropped > LITTLE * sum(trace.answer.get("events", 0) for trace in traces):
        yield f"the profiler dropped {dropped:,} records"


def _others(traces: Sequence[Traced], works: float) -> Iterator[str]:
    """Yield what makes a job idle that is profiled, and only then."""
    then = [ran(Reading(dict(gpu)))[0] for trace in traces for gpu in trace.then]
    known = [share for share in then if share is not None]
    if known and len(known) == len(then):
        does = "they see that idle time, too" if min(known) < works + LITTLE else "it lacks work"
        yield f"in its own seconds they say {min(known):.0%}, {does}"
    if any(trace.answer["format"] == "xplane" for trace in traces):
        # XLA's option xla_enable_command_buffers_during_profiling is off.
        yield "JAX launches one by one, while it is profiled, what it puts into CUDA graphs else"
