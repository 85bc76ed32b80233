"""Memory is allocated and freed again in every step.

## What it sees
On a CPU: page faults, or lines that make new arrays. In Julia: bytes allocated. On a GPU: waits for
the driver, or calls of `torch.cuda.empty_cache()`.

## Why it costs
The kernel clears each new page. On a GPU, freeing waits for all work.

## How to fix
If your lines make the array, write into it: `out=`, `zero_()`, `copy_()`; in Julia `mul!`,
`copyto!`, `.=` and `@views`. If the framework makes it, let glibc keep freed memory:
`MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296 python train.py`. This
removed 90% or more of that time in most programs, but small XLA programs may take three times the
memory. jemalloc did not help. On a GPU keep shapes the same, never call `torch.cuda.empty_cache()`
in the loop, and leave the caching allocator on (`PYTORCH_NO_CUDA_MEMORY_CACHING` is for debugging).

## When it is wrong
With the settings four programs made 1.3 to 2.1 times as many steps, another one fewer: keep them
only if steps get faster. Pages of files mapped in each step count too, and stay.

## Documents
D2 §3 (preallocated buffers). Its code for Julia was run on a CPU; with CUDA.jl it was not run here.
"""

from __future__ import annotations

import math
import re
from typing import Final

from whyidle.monitor.code.source import called
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Confidence, Evidence, Found, Gain, Place, SourceLine
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window, both
from whyidle.monitor.signals.account import HostRow
from whyidle.monitor.signals.gain import Side, comes_back
from whyidle.monitor.signals.memory import PAGE, new_pages
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.traced import LEAST_STEPS
from whyidle.monitor.signals.user_lines import is_julia, of_slice, own, seen

# Of the driver's time some covers work that the device still has to do.
BACK_LEAST: Final = 0.7
# What is written into it is still written, and in memory that is in the caches.
KEPT_BACK_LEAST: Final = 0.5
_FILLS: Final = re.compile(r"(np|numpy|torch)\.(zeros|ones|empty|full)(_like)?")
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
    "Leave the caching allocator on, and do not empty it in the loop. Unset"
    " PYTORCH_NO_CUDA_MEMORY_CACHING, and keep shapes the same from step to step.",
    """\
for batch in batches:
    train(batch)  # no torch.cuda.empty_cache() in here
torch.cuda.empty_cache()  # once, after the training, if at all""",
)
# A glibc before 2.35 refuses a high MALLOC_MMAP_THRESHOLD_, and XLA's threads free arenas of
# their own whatever the other two say.
BY_ALLOCATOR: Final = both(
    "Let glibc keep freed memory. Start the job with MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0"
    " MALLOC_TRIM_THRESHOLD_=4294967296, and keep that only if steps get faster.",
)
_DRIVER: Final = r"(cuda|hip)(Malloc|Free|MemCreate|MemMap|MemUnmap|MallocAsync|FreeAsync)"


def detect(window: Window) -> Verdict:
    """Judge what is allocated in each step."""
    lines = _of_samples(window)
    if window.device == "gpu" and not is_julia(window):
        said = _on_gpu(window) if window.computes("pytorch") else None
        return said if isinstance(said, Found) else lines or said
    said = _of_pages(window)
    if lines is None or not isinstance(said, Found) or not lines.gain or not said.gain:
        return lines or said
    # Lines that take as much make all that is new, and their cure is the better one.
    return lines if lines.gain.high >= said.gain.low else said


def _of_samples(window: Window) -> Found | None:
    """Judge lines that make arrays of one value, by how often the thread was found there."""
    samples = step_samples(window.job)
    share = sum(line.share for line in samples.lines if _makes_anew(line))
    error = samples.error(share)
    if share - error < Severity.MEDIUM.least:
        return None
    return Found(
        gain=Gain.between((share - error) * KEPT_BACK_LEAST, share + error),
        evidence=(Evidence.of("main thread makes new arrays", window.job.sampled(share)),),
        where=seen(window.job, _makes_anew),
        confidence=Confidence.INFERRED,
    )


def _makes_anew(line: SourceLine) -> bool:
    # Of a line that does something else as well it is not known which of the two takes the time.
    names = called(line.file, line.line)
    return bool(names) and all(map(_FILLS.fullmatch, names))


def _of_pages(window: Window) -> Verdict:
    """Judge the part of the job's CPU time in which the kernel hands out pages that do not stay."""
    job = window.job
    most = math.inf
    if is_julia(window):
        what = "what the collector of this Julia allocates"
        # Pages beyond what was allocated are of something else.
        most = window.needed(job.mean(m.PROCESS_ALLOCATED), Need.RECORDING, what).value / PAGE
    taken = new_pages(job, most)
    if taken is None:
        return window.lacks(Need.RECORDING)
    low, high = taken
    if low < Severity.MEDIUM.least:
        return None
    per_step = window.per_step(m.JOB_MINOR_FAULTS)
    measures = {
        "new memory": None if per_step is None else per_step.times(PAGE, "bytes/step"),
        "pages handed out by the kernel": job.mean(m.JOB_MINOR_FAULTS),
        "CPU time of the job": job.mean(m.JOB_CPU),
        "of that in the kernel": job.mean(m.JOB_KERNEL),
    }
    return Found(
        gain=Gain.between(low, high),
        evidence=Evidence.known(measures),
        confidence=Confidence.INFERRED,
        # No line of the program is wrong: a setting of its environment keeps the memory.
        severity=None if is_julia(window) else Severity.LOW,
        fixes=None if is_julia(window) else BY_ALLOCATOR,
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
    measures = {
        "waiting for the driver's allocator": waits,
        "allocations and frees": trace.calls_per_step(_DRIVER),
    }
    return Found(
        gain=Gain.between(waits.value * BACK_LEAST, waits.value),
        evidence=Evidence.known(measures),
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


rule = Rule(
    title="Memory is allocated and freed again in every step",
    documents=("D2 §3",),
    fixes={
        **KEPT,
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
)
