"""GPU memory is held by a process that does no work.

## What it sees
A process on the job's GPUs that holds much memory and computes nothing, memory of no live process,
or unused memory in a job stuck for ten minutes.

## Why it costs
The memory is missing for this job.

## How to fix
`ps -fp PID` shows what a leftover process is: end it. Memory without a process is freed when the
last thread in the driver ends, or by a reset of the GPU.

## When it is wrong
A server holds its model on purpose. Managed memory, graphics and processes outside a container may
not be listed.

## Documents
D2 §2 (releasing memory). Its code for Flux.jl was not run here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import A_MINUTE_S, NEARLY_ALL
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.core.measure import SAMPLES
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window, both
from whyidle.monitor.rules.job_stands_still import LONG_S
from whyidle.monitor.signals.memory import device_memory
from whyidle.monitor.signals.recorded import GpuUser, SeenGpu

# A context alone takes half a gigabyte; of a large GPU a gigabyte is little.
LEAST_BYTES: Final = 1 << 30
# The driver counts whole percents.
IDLE: Final = 0.01


def detect(window: Window) -> Verdict:
    """Judge who holds memory."""
    gpus = window.gpus
    if not gpus:
        return window.lacks(Need.GPU)
    if window.job.seconds < A_MINUTE_S:
        return window.lacks(Need.LONGER)
    looks = (find(window, gpu) for find in (_by_others, _by_nobody, _by_itself) for gpu in gpus)
    some = [found for found in looks if found is not None]
    if some:
        # The most of it; what is shown first is what is held.
        return max(some, key=lambda found: float(found.evidence[0].value))
    is_known = any(gpu.users or m.GPU_MEMORY_UNCLAIMED in gpu.means for gpu in gpus)
    return None if is_known else window.lacks(Need.GPU, "the processes on it")


def _by_others(window: Window, gpu: SeenGpu) -> Found | None:
    """Look for processes that rest, beside one that works."""
    resting = sorted(_resting(gpu), key=lambda user: -(user.memory or 0.0))
    held = sum(user.memory or 0.0 for user in resting)
    if not _is_much(gpu, held):
        return None
    measure = window.job.measure
    named = [Evidence.of("memory that they hold", measure(held, "bytes", "nvml"))]
    for user in resting[:3]:
        name = f"process {user.pid}{f' ({user.name})' if user.name else ''}"
        named.append(Evidence.of(name, measure(user.memory or 0.0, "bytes", "nvml")))
    is_ours, number = resting[0].is_ours, len(resting)
    who = "An idle process of the job holds" if is_ours else "Another idle program holds"
    if number > 1:
        who = f"{number} idle {'processes of the job' if is_ours else 'other programs'} hold"
    title = f"{who} {held / 2**30:.1f} GiB of GPU {gpu.index}"
    return _found(window, gpu, title, named, _OWN if is_ours else _OTHERS)


def _resting(gpu: SeenGpu) -> Iterator[GpuUser]:
    """Yield who takes no time of the GPU; its main user is whoever takes most, or holds most."""
    ours = [user for user in gpu.users if user.is_ours]
    main = max(ours, key=lambda user: (user.sm_share or 0.0, user.memory or 0.0), default=None)
    # Of a process that rests the driver has no share, where it has that of others.
    is_idle = gpu.means.get(m.GPU_UTILISATION, 1.0) < IDLE
    known = is_idle or any(user.sm_share is not None for user in gpu.users)
    # Of a GPU that the job does not use nobody takes anything from it.
    for user in gpu.users if ours and known else ():
        if user != main and (user.sm_share or 0.0) < IDLE:
            yield user


def _by_nobody(window: Window, gpu: SeenGpu) -> Found | None:
    """Look for memory that is in use by no process."""
    held = gpu.means.get(m.GPU_MEMORY_UNCLAIMED, 0.0)
    if not _is_much(gpu, held):
        return None
    measure = window.job.measure(held, "bytes", "nvml")
    title = f"{held / 2**30:.1f} GiB of GPU {gpu.index} are held by no live process"
    evidence = [Evidence.of("memory that no live process holds", measure)]
    return _found(window, gpu, title, evidence, _NOBODY)


def _by_itself(window: Window, gpu: SeenGpu) -> Found | None:
    """Look at a job that does nothing any more."""
    still = window.job.standstill
    held = sum(user.memory or 0.0 for user in gpu.users if user.is_ours)
    if still is None or still.seconds < LONG_S or not _is_much(gpu, held):
        return None
    if gpu.means.get(m.GPU_UTILISATION, 1.0) >= IDLE:
        return None
    measure = window.job.measure
    evidence = [
        Evidence.of("memory that it holds", measure(held, "bytes", "nvml")),
        Evidence.of("it has been idle for", measure(still.seconds, "s", SAMPLES)),
    ]
    used, kept = (window.job.mean(x) for x in (m.PROCESS_POOL_USED, m.PROCESS_POOL_RESERVED))
    if used is not None and kept is not None and window.uses("pytorch"):
        evidence.append(Evidence.of("of it only kept", measure(kept.value - used.value, "bytes")))
    title = f"The job does no work and holds {held / 2**30:.1f} GiB of GPU {gpu.index}"
    return _found(window, gpu, title, evidence, None)


def _is_much(gpu: SeenGpu, held: float) -> bool:
    return held >= max(LEAST_BYTES, Severity.MEDIUM.least * gpu.means.get(m.GPU_MEMORY_TOTAL, 0.0))


def _found(
    window: Window, gpu: SeenGpu, title: str, evidence: list[Evidence], fix: str | None
) -> Found:
    measure, memory = window.job.measure, device_memory(window)
    total, used = gpu.means.get(m.GPU_MEMORY_TOTAL), gpu.last(m.GPU_MEMORY_USED)
    if total and used is not None:
        evidence.append(
            Evidence.of("memory of the GPU in use", measure(used / total, "ratio", "nvml"))
        )
    # What is missing to a job that works; one that stands still is a finding of its own.
    is_full = bool(total) and used is not None and used >= NEARLY_ALL * (total or 0.0)
    is_missing = is_full and memory is not None and memory.is_tight
    return Found(
        gain=None,
        evidence=tuple(evidence),
        severity=Severity.MEDIUM if is_missing and fix is not None else Severity.LOW,
        confidence=Confidence.MEASURED if fix is not _NOBODY else Confidence.INFERRED,
        title=title,
        fixes=None if fix is None else both(fix),
    )


_OTHERS: Final = "Find its owner (ps -fp PID), and end it if it is left over. Or move."
_OWN: Final = (
    "Let each rank use only its own GPU. Call torch.cuda.set_device(local_rank) before anything"
    " else, and let processes that only load data touch none: no tensor of the device in a"
    " dataset or a collate function. End those that are done."
)
_NOBODY: Final = (
    "Look for processes in state D or Z, and in other containers. ps -eo pid,stat,cmd lists"
    " them; if there are none, and nothing else uses the GPU: nvidia-smi --gpu-reset -i N."
)

rule = Rule(
    title="An idle process holds device memory",
    documents=("D2 §2",),
    fixes={
        "pytorch": Fix(
            "Delete the tensors, then call torch.cuda.empty_cache() once. Do it after training,"
            " never inside the loop."
        ),
        "jax": Fix("Delete the arrays, then call jax.clear_caches()."),
        "flux": Fix("Call GC.gc() first, then CUDA.reclaim()."),
    },
    kind=Kind.MEMORY,
)
