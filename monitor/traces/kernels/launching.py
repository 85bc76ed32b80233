"""How the host submits work: how often, how long a call takes, how long the work then queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from whyidle.monitor.traces.launches import BY_CORRELATION, Launches
from whyidle.monitor.traces.model import Flags, Ids, Ints, Ops


@dataclass(frozen=True, slots=True)
class Launching:
    """Figures over all devices, in ticks; None where the file has no launches to measure."""

    operations: int  # all of them
    launched: int  # those whose call is in the file
    calls: int  # a CUDA graph launches many operations with one call
    graph_operations: int
    calls_per_second: float | None
    calls_per_step: float | None
    call_median: int | None
    delay_median: int | None  # from the return of the call to the start of the operation
    delay_p95: int | None
    # Operations that start before their call does: the clocks of host and device disagree.
    skewed: int


def launching(
    devices: Iterable[tuple[Ops, Launches]], ticks_per_ns: int, steps: tuple[Ints, Ints]
) -> Launching:
    """Measure how operations are submitted; ``steps`` are start and end of the whole steps."""
    pairs = list(devices)
    known = [launches.how == BY_CORRELATION for _, launches in pairs]
    queued = [_queued(launches, mask) for (_, launches), mask in zip(pairs, known, strict=True)]
    calls = _calls([launches.take(mask) for (_, launches), mask in zip(pairs, known, strict=True)])
    delay = _joined(o.start[q] - la.end[q] for (o, la), q in zip(pairs, queued, strict=True))
    lag = _joined(o.start[m] - la.start[m] for (o, la), m in zip(pairs, known, strict=True))
    seconds = _span(ops for ops, _ in pairs) / (1e9 * ticks_per_ns)
    return Launching(
        operations=sum(len(ops) for ops, _ in pairs),
        launched=len(lag),
        calls=len(calls.start),
        graph_operations=sum(int(np.sum(launches.graph)) for _, launches in pairs),
        calls_per_second=len(calls.start) / seconds if len(calls.start) and seconds else None,
        calls_per_step=_per_step(calls.start, *steps),
        call_median=_quantile(calls.end - calls.start, 0.5),
        delay_median=_quantile(delay, 0.5),
        delay_p95=_quantile(delay, 0.95),
        skewed=int(np.sum(lag < 0)),
    )


def _queued(launches: Launches, known: Flags) -> Flags:
    """Operations launched one by one: within a graph they wait for each other, not for a call."""
    return known & ~launches.graph


def _calls(parts: list[Launches]) -> Launches:
    """Each call once, by start; operations that one call launched share its thread and times."""
    start, end = _joined(p.start for p in parts), _joined(p.end for p in parts)
    thread = _joined(p.thread for p in parts)
    order = np.lexsort((thread, start))
    start, end, thread = start[order], end[order], thread[order]
    first = np.ones(len(start), np.bool_)
    first[1:] = (start[1:] != start[:-1]) | (thread[1:] != thread[:-1])
    return Launches.of(start=start[first], end=end[first], thread=thread[first])


def _joined(parts: Iterable[Ints | Ids]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _span(devices: Iterable[Ops]) -> int:
    edges = [(int(ops.start[0]), int(ops.end.max())) for ops in devices if len(ops)]
    return max(e for _, e in edges) - min(s for s, _ in edges) if edges else 0


def _per_step(calls: Ints, start: Ints, end: Ints) -> float | None:
    if not len(start) or not len(calls):
        return None
    within = np.searchsorted(calls, end) - np.searchsorted(calls, start)
    return float(within.sum() / len(start))


def _quantile(values: Ints, share: float) -> int | None:
    return int(np.quantile(values, share)) if len(values) else None
