"""Copies slow down because the device's memory is nearly full.

## What it sees
Memory used to 90% or more, and copies that slow down: by the byte in two traces, or at a line that
copies. In Julia also collector time.

## Why it costs
The allocator waits for work, empties its cache and asks the driver. D2 measured 0.1 s for a
transfer of 1 ms.

## How to fix
`del` the last batch and its outputs, and find what grows (`memory_growth`). Emptying the cache in
each step is no fix.

## When it is wrong
Larger batches take longer to copy. Other PCIe traffic slows copies, too.

## Documents
D2, causes. Its code for Flux.jl was not run here.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.source import called
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.signals.memory import DeviceMemory, known_memory
from whyidle.monitor.signals.recorded import SeenGpu
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.user_lines import is_julia, of_slice, own

# Copies of one loop differ by a third between two traces where nothing is wrong.
SLOWER: Final = 1.5
_COPIES: Final = re.compile(r"(.*\.)?(to|cuda|device_put|copy_|CuArray)")


def detect(window: Window) -> Verdict:
    """Judge the copies of a job whose memory is full."""
    if is_julia(window):
        return _of_julia(window)
    memory, pool = known_memory(window), window.job.mean(m.PROCESS_POOL_USED)
    # How full it is: of what the allocator may take, or of the fullest GPU. What the driver calls
    # used is what JAX took at its start.
    gpus = () if window.uses("jax") else window.gpus
    shares = [x for gpu in gpus if (x := _taken(gpu)) is not None]
    used = max([*shares, *([pool.value / memory.limit] if pool else ())], default=0.0)
    if used < NEARLY_ALL:
        return None
    # The oldest and the newest trace with copies to a GPU.
    traces = [t for t in window.traces if t.shows_work and "gpu" in t.kinds and _pace(t)]
    if len(traces) > 1:
        return _by_traces(window, memory, used, traces[-1], traces[0])
    drift = window.needed(window.job.drift, Need.GPU_TRACE, "twice, some minutes apart")
    at = [x for x in drift.lines[:1] if any(map(_COPIES.fullmatch, called(x.file, x.line)))]
    if not drift.rises or not at:
        return None
    measure = window.job.measure
    more = (drift.late_s - drift.early_s) / drift.late_s * at[0].share
    return Found(
        gain=Gain.between(0.0, more),
        evidence=(
            Evidence.of("memory in use", measure(used, "ratio")),
            Evidence.of("a step took at first", measure(drift.early_s, "s")),
            Evidence.of("a step takes now", measure(drift.late_s, "s")),
            *memory.evidence(window),
        ),
        where=own(Place.at(line) for line in at),
        severity=Severity.of_share(more) if memory.is_tight else Severity.LOW,
        confidence=Confidence.INFERRED,
    )


def _of_julia(window: Window) -> Verdict:
    """Judge by the driver's counters; CUDA.jl keeps what it frees: a full memory is usual."""
    shares = [(_taken(gpu), gpu.rises.get(m.GPU_PCIE_RX)) for gpu in window.gpus]
    known = [(used, rise) for used, rise in shares if used is not None and rise is not None]
    pauses = window.job.mean(m.JOB_GC_PAUSE)
    if not known or pauses is None:
        return window.lacks(Need.GPU)
    used, rise = max(known)
    # Less in the collector is what any program takes.
    if used < NEARLY_ALL or rise < SLOWER or pauses.value < Severity.MEDIUM.least:
        return None
    measure = window.job.measure
    return Found(
        gain=None,
        evidence=(
            Evidence.of("memory in use", measure(used, "ratio", "nvml")),
            Evidence.of(
                "copies to the device, compared with before", measure(rise, "times", "nvml")
            ),
            Evidence.of("time in the collector", pauses),
        ),
        severity=Severity.LOW,
        confidence=Confidence.HINTED,
    )


def _taken(gpu: SeenGpu) -> float | None:
    """Return how full a GPU is."""
    total, taken = gpu.means.get(m.GPU_MEMORY_TOTAL), gpu.last(m.GPU_MEMORY_USED)
    return taken / total if total and taken is not None else None


def _pace(trace: Traced) -> float | None:
    """Return how long a byte takes, in ns; by the copy where its bytes are not known."""
    copies = list(trace.copies("host to device"))
    much = sum(copy["bytes"] or copy["count"] for copy in copies)
    return sum(copy["total_ns"] for copy in copies) / much if much else None


def _by_traces(
    window: Window, memory: DeviceMemory, used: float, old: Traced, new: Traced
) -> Found | None:
    before, after = _pace(old), _pace(new)
    then, now = (trace.taken(Slice.EXPOSED_COPY, Slice.IDLE_ALLOC) for trace in (old, new))
    if not before or not after or after / before < SLOWER or now <= then:
        return None
    copy = "time of a copy, compared with an earlier trace"
    return Found(
        gain=Gain.between((now - then) / 2, now - then),
        evidence=(
            Evidence.of("memory in use", window.job.measure(used, "ratio")),
            Evidence.of(copy, new.measure(after / before, "times")),
            Evidence.of("copies and allocations that are waited for", new.measure(now, "ratio")),
            Evidence.of("of these then", old.measure(then, "ratio")),
            *memory.evidence(window),
        ),
        where=of_slice(window, Slice.EXPOSED_COPY),
        slice=Slice.EXPOSED_COPY,
    )


rule = Rule(
    title="Copies slow down because the device's memory is nearly full",
    documents=("D2 causes",),
    fixes={
        "pytorch": Fix("Free what is no longer needed before the copy, and prefetch less."),
        "jax": Fix("Donate the arguments that are replaced, and prefetch fewer batches."),
        "flux": Fix("Call GC.gc(false) every few steps, and use CuIterator(loader)."),
    },
)
