"""What the devices ran: kernels, collectives, copies, and how the host submitted them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.kernels.collectives import Collective, collectives
from whyidle.monitor.traces.kernels.copies import Copies, copies
from whyidle.monitor.traces.kernels.launching import Launching, launching
from whyidle.monitor.traces.kernels.precision import TENSOR_WORK, KernelFacts, facts
from whyidle.monitor.traces.kernels.tallies import Named, Tally, named, tally
from whyidle.monitor.traces.launches import Launches
from whyidle.monitor.traces.model import Device, Flags, Ints, Ops, Spans, Trace
from whyidle.monitor.traces.steps.finding import TraceSteps

# TraceLens (AMD) calls kernels below this short: the launch costs as much as the work.
SHORT_NS: Final = 10_000

_KERNELS: Final = (Cause.KERNEL, Cause.COMM, Cause.COPY_KERNEL)


@dataclass(frozen=True, slots=True)
class Kernel:
    """All runs of the kernels of one name, and what the name says."""

    runs: Named
    facts: KernelFacts
    communicates: bool


@dataclass(frozen=True, slots=True)
class Kernels:
    """The work of all GPUs or TPUs of a trace. Times are ticks and summed over kernels."""

    ticks_per_ns: int
    count: int
    total: int
    short_count: int
    short_total: int
    kernels: list[Kernel]  # the longest total first
    collectives: list[Collective]
    copies: list[Copies]
    launching: Launching
    hlo_modules: list[Named]
    hlo_ops: list[tuple[str, Named]]  # the module, and the operation in it
    operators: list[Named]  # of a CPU, without the operators they call

    def families(self) -> dict[str, int]:
        """Ticks by what is computed; kernels whose names say nothing are "unknown"."""
        return _sums(
            ("communication" if kernel.communicates else kernel.facts.family, kernel)
            for kernel in self.kernels
        )

    def dtypes(self) -> dict[str, int]:
        """Ticks of the kernels that compute, by type; "unknown" where names do not say."""
        return _sums((kernel.facts.dtype or "unknown", kernel) for kernel in self._computing())

    def tensor_cores(self) -> dict[str, int]:
        """Ticks of the kernels that tensor cores could help, by whether they use them."""
        words = {True: "used", False: "not used", None: "unknown"}
        eligible = (*TENSOR_WORK, "unknown")
        return _sums(
            (words[kernel.facts.tensor_cores], kernel)
            for kernel in self._computing()
            if kernel.facts.family in eligible
        )

    def tensor_share(self) -> tuple[float, float] | None:
        """At least and at most so much of the kernel time uses tensor cores; None: no name says."""
        ticks = self.tensor_cores()
        used, unknown = ticks.get("used", 0), ticks.get("unknown", 0)
        if not self.total or unknown == sum(ticks.values()) > 0:
            return None
        return used / self.total, (used + unknown) / self.total

    def _computing(self) -> Iterable[Kernel]:
        return (kernel for kernel in self.kernels if not kernel.communicates)


def summarise(trace: Trace, launches: list[Launches], steps: TraceSteps | None = None) -> Kernels:
    """Sum up what the devices of a trace ran; ``launches`` has one entry a device."""
    pairs = [(d.ops, la) for d, la in zip(trace.devices, launches, strict=True) if d.kind != "cpu"]
    devices = [ops for ops, _ in pairs]
    parts = [_kernels(device) for device in trace.devices if device.kind != "cpu"]
    ran = Ops.joined(ops for ops, _ in parts)
    took = np.concatenate([np.zeros(0, np.int64), *(own for _, own in parts)])
    total = int(took.sum())
    short = ran.end - ran.start < SHORT_NS * trace.ticks_per_ns
    within = (steps.start, steps.end) if steps else (took[:0], took[:0])
    return Kernels(
        ticks_per_ns=trace.ticks_per_ns,
        count=len(ran),
        total=total,
        short_count=int(short.sum()),
        short_total=int(took[short].sum()),
        kernels=_by_name(ran, took, trace.names, total),
        collectives=_collectives(ran, took, trace.names, total),
        copies=copies(devices, trace.names),
        launching=launching(pairs, trace.ticks_per_ns, within),
        hlo_modules=named(tally(ran.hlo_module, took), trace.names, total),
        hlo_ops=_hlo_ops(ran, took, trace.names, total),
        operators=_operators(trace),
    )


def _kernels(device: Device) -> tuple[Ops, Ints]:
    """Return the kernels that a device ran, and what each took."""
    ran = device.ops.take(np.isin(device.ops.kind, _KERNELS))
    if device.kind != "tpu":
        return ran, ran.end - ran.start
    # On a TPU operations nest: a loop lies around its body, and has not the time of it.
    ran = ran.take(np.lexsort((-ran.end, ran.start, ran.stream)))
    own = np.zeros(len(ran), np.int64)
    for stream in np.unique(ran.stream).tolist():
        rows = np.flatnonzero((ran.stream == stream) & (ran.end > ran.start))
        own[rows] = self_time(ran.take(rows))
    return ran, own


def _by_name(ran: Ops, took: Ints, names: list[str], total: int) -> list[Kernel]:
    """The name of a kernel also decides whether it communicates."""
    comm = np.unique(ran.name[ran.kind == Cause.COMM])
    found = tally(ran.name, took)
    communicates: Flags = np.isin(found.id, comm)
    return [
        Kernel(runs, facts(runs.name), talks)
        for runs, talks in zip(named(found, names, total), communicates.tolist(), strict=True)
    ]


def _collectives(ran: Ops, took: Ints, names: list[str], total: int) -> list[Collective]:
    rows = ran.kind == Cause.COMM
    return collectives(named(tally(ran.name[rows], took[rows]), names, total))


def _hlo_ops(ran: Ops, took: Ints, names: list[str], total: int) -> list[tuple[str, Named]]:
    """Operations of one name in two modules are two operations."""
    known = (ran.hlo_op >= 0) & (ran.hlo_module >= 0)
    both = ran.take(known)
    width = len(names) + 1
    key = both.hlo_module.astype(np.int64) * width + both.hlo_op
    found = tally(key, took[known])
    modules = [names[module] for module in (found.id // width).tolist()]
    found.id = found.id % width
    return list(zip(modules, named(found, names, total), strict=True))


def _operators(trace: Trace) -> list[Named]:
    if not any(device.kind == "cpu" for device in trace.devices):
        return []
    found = operators(trace)
    return named(found, trace.names, int(found.total.sum()))


def _sums(parts: Iterable[tuple[str, Kernel]]) -> dict[str, int]:
    """Ticks by label, most first."""
    sums: dict[str, int] = {}
    for label, kernel in parts:
        sums[label] = sums.get(label, 0) + kernel.runs.total
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def operators(trace: Trace) -> Tally:
    """Add up the time of each operator, without that of the operators it calls."""
    ops = trace.host.take((trace.host.kind == Cause.OP) & (trace.host.end > trace.host.start))
    threads = np.unique(ops.thread).tolist()
    parts = [ops.take(ops.thread == thread) for thread in threads]
    if not parts:
        return Tally.of()
    return tally(
        np.concatenate([part.name for part in parts]),
        np.concatenate([self_time(part) for part in parts]),
    )


def self_time(spans: Spans | Ops) -> Ints:
    """Return the time of nested spans of one line that none of their own spans takes.

    They come by their starts, the longer one first.
    """
    row = np.arange(len(spans))
    depth = row - np.searchsorted(np.sort(spans.end), spans.start, "right")
    # The parent is the last span before it that lies one level further out.
    key = np.sort(depth * len(spans) + row)
    parent_level = (depth - 1) * len(spans)
    found = key[np.maximum(np.searchsorted(key, parent_level + row) - 1, 0)]
    inner = np.flatnonzero((found >= parent_level) & (depth > 0) & (found < parent_level + row))
    parent = found[inner] - parent_level[inner]
    # Spans that overlap instead of nesting count up to where the outer one ends.
    taken = np.minimum(spans.end[inner], spans.end[parent]) - spans.start[inner]
    own: Ints = spans.end - spans.start
    np.subtract.at(own, parent, np.maximum(taken, 0))
    return own.clip(0)
