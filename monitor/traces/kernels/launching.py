"""How the host submits work: how often, how long a call takes, how long the work then queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from whyidle.monitor.traces.launches import BY_CORRELATION, Launches
from whyidle.monitor.traces.model import Flags, Ids, Ints, Ops


@dataclass(frozen=True, slots=True)
class Samples:
    """What the figures are made of; those of one window after the other add up."""

    operations: int
    graph_operations: int
    skewed: int
    launched: int
    calls_in_steps: int
    took: Ints | Ids  # by each call
    delay: Ints | Ids
    first: int
    last: int


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
    samples: Samples  # what the figures are made of


def launching(
    devices: Iterable[tuple[Ops, Launches]], ticks_per_ns: int, steps: tuple[Ints, Ints]
) -> Launching:
    """Measure how operations are submitted; ``steps`` are start and end of the whole steps."""
    return figures([samples(devices, steps)], ticks_per_ns, len(steps[0]))


def samples(devices: Iterable[tuple[Ops, Launches]], steps: tuple[Ints, Ints]) -> Samples:
    """Look at the operations of one window."""
    pairs = list(devices)
    known = [launches.how == BY_CORRELATION for _, launches in pairs]
    queued = [_queued(launches, mask) for (_, launches), mask in zip(pairs, known, strict=True)]
    calls = _calls([launches.take(mask) for (_, launches), mask in zip(pairs, known, strict=True)])
    delay = _joined(o.start[q] - la.end[q] for (o, la), q in zip(pairs, queued, strict=True))
    lag = _joined(o.start[m] - la.start[m] for (o, la), m in zip(pairs, known, strict=True))
    first, last = _span(ops for ops, _ in pairs)
    return Samples(
        operations=sum(len(ops) for ops, _ in pairs),
        graph_operations=sum(int(np.sum(launches.graph)) for _, launches in pairs),
        skewed=int(np.sum(lag < 0)),
        launched=len(lag),
        calls_in_steps=_within(calls.start, *steps),
        took=_small(calls.end - calls.start),
        delay=_small(delay),
        first=first,
        last=last,
    )


def figures(parts: Sequence[Samples], ticks_per_ns: int, steps: int) -> Launching:
    """Return the figures over all of it; ``steps``: how many there are."""
    took, delay = _joined(part.took for part in parts), _joined(part.delay for part in parts)
    there = [part for part in parts if part.operations]
    span = max(p.last for p in there) - min(p.first for p in there) if there else 0
    seconds, calls = span / (1e9 * ticks_per_ns), len(took)
    in_steps = sum(part.calls_in_steps for part in parts)
    return Launching(
        operations=sum(part.operations for part in parts),
        launched=sum(part.launched for part in parts),
        calls=calls,
        graph_operations=sum(part.graph_operations for part in parts),
        calls_per_second=calls / seconds if calls and seconds else None,
        calls_per_step=in_steps / steps if steps and calls else None,
        call_median=_quantile(took, 0.5),
        delay_median=_quantile(delay, 0.5),
        delay_p95=_quantile(delay, 0.95),
        skewed=sum(part.skewed for part in parts),
        samples=parts[0],
    )


def _small(times: Ints) -> Ints | Ids:
    """Take half of the memory, where it is enough."""
    fits = len(times) and int(np.abs(times).max()) < 1 << 31
    return times.astype(np.int32) if fits else times


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


def _span(devices: Iterable[Ops]) -> tuple[int, int]:
    edges = [(int(ops.start[0]), int(ops.end.max())) for ops in devices if len(ops)]
    return min((s for s, _ in edges), default=0), max((e for _, e in edges), default=0)


def _within(calls: Ints, start: Ints, end: Ints) -> int:
    return int((np.searchsorted(calls, end) - np.searchsorted(calls, start)).sum())


def _quantile(values: Ints, share: float) -> int | None:
    return int(np.quantile(values, share)) if len(values) else None
