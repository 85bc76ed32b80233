"""Memory is allocated and freed again in every step.

## What it sees
On a GPU the time in which the device waits for the driver to allocate or free memory, in a trace
of whole steps; without one, how often the main thread was found at a line of yours that calls
`torch.cuda.empty_cache()`. On a CPU the pages of memory that are new in each step: the kernel hands
out each of them, 4 kB, at its first touch, and counts it as a minor fault. Of huge pages there are
few: there the main thread is found at lines that make a new array of zeros or ones. Of Julia also
what its collector counts as allocated, read from outside; what collecting takes is `gc_pauses`.

## Why it costs
A tensor of more than 32 MB is given back to the system when it goes, and taken anew in the next
step. Each of its pages is then cleared by the kernel and mapped again, which takes longer than the
arithmetic on it. On a GPU an allocation that PyTorch's cache cannot serve goes to the driver, and
freeing waits until all work is done.

## How to fix
Take the memory once, before the loop, and write into it: `out=`, `zero_()`, `copy_()`. On a GPU
leave the caching allocator on (`PYTORCH_NO_CUDA_MEMORY_CACHING` is for debugging), call
`torch.cuda.empty_cache()` never inside the loop, and keep shapes the same from step to step. In
Julia write into arrays that are there: `mul!`, `copyto!`, `.=` and `@views`.

## When it is wrong
The first steps allocate whatever is done; a short recording of them says nothing. A job that keeps
more each step has new pages too: memory_growth is what to look at then.

## Documents
D2 §3 (preallocated buffers). Its code for Julia was run on a CPU; with CUDA.jl it was not run here.
"""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.code.source import called
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import (
    Confidence,
    Evidence,
    Fix,
    Found,
    Gain,
    Need,
    Place,
    Severity,
    SourceLine,
    Verdict,
)
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.rules import Rule, both
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.memory import FAULT_S, PAGE
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.traced import LEAST_STEPS
from whyidle.monitor.signals.user_lines import is_julia, of_slice, own, seen
from whyidle.monitor.signals.window import Window

# Less than 16 MB anew in a step is what gradients and activations of ordinary training take.
LEAST_PAGES: Final = 4096
# Of the driver's time some covers work that the device still has to do.
BACK_LEAST: Final = 0.7
# What makes a tensor of its own.
_MAKES: Final = re.compile(
    r"(.*\.)?(zeros|ones|empty|full|rand|randn|new_(zeros|ones|empty|full))(_like)?"
    r"|(.*\.)?(cat|concat|stack|pad|pad_sequence|clone|repeat|tile|tensor|contiguous)"
)
# What is written into it is still written, and in memory that is in the caches.
KEPT_BACK_LEAST: Final = 0.5
_FILLS: Final = re.compile(r"(np|numpy|torch)\.(zeros|ones|empty|full)(_like)?")
_MAKERS: Final = frozenset({HostClass.LIBRARY, HostClass.FRAMEWORK, HostClass.UNCLEAR})
_EMPTIES: Final = re.compile(r"(.*\.)?empty_cache")
KEPT: Final = both(
    "Make the array once, before the loop, and write into it.",
    """\
mask = np.ones((batch_size, longest), dtype=np.float32)
for rows in batches:
    mask.fill(1.0)
    train(rows, mask)""",
)
ON_GPU: Final = Fix(
    "Leave the caching allocator on (unset PYTORCH_NO_CUDA_MEMORY_CACHING), give nothing back to "
    "the driver inside the loop, and keep shapes the same from step to step.",
    """\
for batch in batches:
    train(batch)  # no torch.cuda.empty_cache() in here
torch.cuda.empty_cache()  # once, after the training, if at all""",
)
BY_ALLOCATOR: Final = Fix(
    "The framework's own operators make them: have the process keep what it was given, by an "
    "allocator that does, or by glibc's thresholds.",
    """\
MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 python train.py
# or: LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 python train.py""",
)
_DRIVER: Final = r"(cuda|hip)(Malloc|Free|MemCreate|MemMap|MemUnmap|MallocAsync|FreeAsync)"


def detect(window: Window) -> Verdict:
    """Judge what is allocated in each step."""
    if is_julia(window):
        return _of_julia(window)
    found = None
    if window.computes("pytorch"):
        found = _on_gpu(window) if window.device == "gpu" else _on_cpu(window)
    return found if isinstance(found, Found) else _of_samples(window) or found


def _of_samples(window: Window) -> Found | None:
    """Judge lines that make arrays of one value, by how often the thread was found there."""
    account = window.host
    if account is None:
        return None
    made = account.lines(_makes_anew)
    share = sum(place.share or 0.0 for place in made)
    error = account.error(share)
    if share - error < Severity.MEDIUM.least:
        return None
    return Found(
        gain=Gain.between((share - error) * KEPT_BACK_LEAST, share + error),
        evidence=(Evidence.of("main thread makes new arrays", window.job.sampled(share)),),
        where=own(made),
        confidence=Confidence.INFERRED,
        fixes=KEPT,
    )


def _makes_anew(row: HostRow) -> bool:
    # Of a line that does something else as well it is not known which of the two takes the time.
    names = called(row.frames[0].file, row.frames[0].line) if row.doing in _MAKERS else ()
    return bool(names) and all(map(_FILLS.fullmatch, names))


def _of_julia(window: Window) -> Verdict:
    """Judge the pages that the kernel hands out to a program that allocates all the time."""
    allocated, rate = window.job.mean(m.PROCESS_ALLOCATED), window.job.mean(m.JOB_MINOR_FAULTS)
    cores = window.job.mean(m.JOB_CPU)
    if allocated is None or rate is None or cores is None or not cores.value:
        return window.lacks(Need.RECORDING, "what the collector of this Julia allocates")
    # Pages beyond what was allocated are of something else.
    pages = min(rate.value, allocated.value / PAGE)
    low, high = (pages * each / max(1.0, cores.value) for each in FAULT_S)
    if low < Severity.MEDIUM.least or _grows(window, rate):
        return None
    return Found(
        gain=Gain.between(low, high),
        evidence=(
            Evidence.of("allocated anew", allocated),
            Evidence.of("pages handed out by the kernel", rate),
        ),
        slice=Slice.COMPUTE,
        confidence=Confidence.INFERRED,
    )


def _on_gpu(window: Window) -> Verdict:
    host, trace = window.host, window.gpu_trace
    # Who gives the cache back to the driver.
    emptied = () if host is None else own(host.lines(_empties))
    if trace is None:
        return _of_emptied(window, emptied) or window.lacks(Need.GPU_TRACE)
    # While a job starts it has to allocate.
    if trace.steps < LEAST_STEPS:
        return window.lacks(Need.LONGER_TRACE)
    waits = trace.share(Slice.IDLE_ALLOC)
    if waits is None or waits.value < Severity.LOW.least:
        return None
    return Found(
        gain=Gain.between(waits.value * BACK_LEAST, waits.value),
        evidence=Evidence.known(
            {
                "waiting for the driver's allocator": waits,
                "allocations and frees": trace.calls_per_step(_DRIVER),
            }
        ),
        where=emptied or of_slice(window, Slice.IDLE_ALLOC),
        slice=Slice.IDLE_ALLOC,
        fixes={"pytorch": ON_GPU},
    )


def _empties(row: HostRow) -> bool:
    return any(map(_EMPTIES.fullmatch, called(row.frames[0].file, row.frames[0].line)))


def _of_emptied(window: Window, where: tuple[Place, ...]) -> Found | None:
    """Judge them by how often the thread was found there: it waits for the GPU there, too."""
    share = sum(place.share or 0.0 for place in where)
    error = 0.0 if window.host is None else window.host.error(share)
    if share - error < Severity.LOW.least:
        return None
    return Found(
        gain=comes_back(window, share - error, share + error, Side.GPU),
        evidence=(Evidence.of("main thread empties the cache", window.job.sampled(share)),),
        where=where,
        slice=Slice.IDLE_ALLOC,
        confidence=Confidence.INFERRED,
        fixes={"pytorch": ON_GPU},
    )


def _on_cpu(window: Window) -> Verdict:
    rate, cores = window.job.mean(m.JOB_MINOR_FAULTS), window.job.mean(m.JOB_CPU)
    pages = window.per_step(m.JOB_MINOR_FAULTS)
    if rate is None or cores is None or not cores.value:
        return window.lacks(Need.RECORDING)
    if pages is None:
        return window.lacks(Need.STEPS)
    if pages.value < LEAST_PAGES or _grows(window, rate):
        return None
    # Of the time in which it ran: on a busy machine a job does not have a core to itself.
    low, high = (rate.value * each / min(1.0, cores.value) for each in FAULT_S)
    # Pages are new at the lines that make tensors; what is made in the code of others, or in the
    # backward pass, has no such line.
    samples = step_samples(window.job)
    making = sum(line.share for line in samples.lines if _allocates(line))
    most = min(1.0, making + samples.error(making)) if making else 1.0
    where = seen(window.job, _allocates)
    return Found(
        gain=Gain.between(low, min(high, most)),
        evidence=(
            Evidence.of("new memory", pages.times(PAGE, "bytes/step")),
            Evidence.of("pages handed out by the kernel", rate),
        ),
        where=where,
        slice=Slice.COMPUTE,
        # Where no line of the user's makes tensors there is none to change.
        severity=None if where else Severity.LOW,
        fixes=None if where else {"pytorch": BY_ALLOCATOR},
    )


def _allocates(line: SourceLine) -> bool:
    return any(map(_MAKES.fullmatch, called(line.file, line.line)))


def _grows(window: Window, rate: Measure) -> bool:
    """Tell whether these pages are kept: that is another fault."""
    trend = window.job.trends.get(m.JOB_RSS)
    return trend is not None and trend.per_s > 0.5 * rate.value * PAGE


rule = Rule(
    title="Memory is allocated and freed again in every step",
    documents=("D2 §3",),
    fixes={
        "pytorch": Fix(
            "Take large tensors once, before the loop, and write into them.",
            """\
padded = torch.empty(batch_size, longest, device=device)
for rows in batches:
    padded.zero_()
    for row, values in zip(padded, rows):
        row[: len(values)] = values
    train(padded)""",
        ),
        "flux": Fix(
            "Make the arrays once, before the loop, and write into them.",
            """\
using LinearAlgebra: mul!
hidden = similar(weights, size(weights, 1), size(first(batches), 2))
for batch in batches
    mul!(hidden, weights, batch)  # not: hidden = weights * batch
    hidden .= max.(hidden, 0)
    train(hidden)
end""",
        ),
    },
    detect=detect,
)
