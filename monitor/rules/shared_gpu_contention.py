"""Other processes compute on the same GPU.

## What it sees
Processes outside the job on its GPUs, with their GPU time and memory.

## Why it costs
Processes take turns on a GPU, and share its memory.

## How to fix
One after the other, both jobs finish no later than together. If small jobs have to share, MPS runs
their kernels at the same time, and MIG gives each its own part.

## When it is wrong
Others cost nothing while the job has no work for the GPU.

## Documents
D5 (memory limit per process). Its memory fraction is a cap; it makes nothing faster.
"""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Found, Gain
from whyidle.monitor.rules import Fix, Need, Rule, Severity, Slice, Verdict, Window
from whyidle.monitor.traces.causes import MEANING, Cause


def detect(window: Window) -> Verdict:
    """Judge what neighbours take."""
    gpus = [gpu for gpu in window.job.gpus if gpu.is_held]
    if not any(gpu.users for gpu in gpus):
        return window.lacks(Need.GPU, "the processes on it")
    if any(gpu.others and gpu.taken_by_others is None for gpu in gpus):
        return window.lacks(Need.GPU, "the share of its time that each process takes")
    worst = max(gpus, key=lambda gpu: gpu.taken_by_others or 0.0)
    taken = worst.taken_by_others or 0.0
    # Less is a desktop, or a monitor.
    if taken < Severity.MEDIUM.least:
        return None
    # Launched work surely did not start for so long, by the trace.
    trace, causes = window.gpu_trace, (Cause.QUEUED, Cause.LONG_QUEUE)
    parts = [trace.detail(*MEANING[cause]) for cause in causes] if trace else []
    gain = Gain.between(min(taken, sum(x.value for x in parts if x is not None)), taken)
    severity, used = None, worst.means.get(m.GPU_UTILISATION)
    if Severity.of_share(gain.low) is Severity.INFO:
        # The range begins at nothing.
        is_much = gain.high >= Severity.HIGH.least and (used or 0.0) >= NEARLY_ALL
        severity = Severity.MEDIUM if is_much else Severity.LOW
    measure, evidence = window.job.measure, []
    for user in sorted(worst.others, key=lambda user: -(user.sm_share or 0.0))[:3]:
        who = f"pid {user.pid}{f' ({user.name})' if user.name else ''}"
        evidence.append(Evidence.of(who, measure(user.sm_share or 0.0, "ratio", "nvml")))
        if user.memory is not None:
            evidence.append(Evidence.of("its memory", measure(user.memory, "bytes", "nvml")))
    ours = [user.sm_share for user in worst.users if user.is_ours and user.sm_share is not None]
    shares = {"this job": min(1.0, sum(ours)) if ours else None, "utilisation by all": used}
    evidence += [
        Evidence.of(name, measure(share, "ratio", "nvml"))
        for name, share in shares.items()
        if share is not None
    ]
    return Found(
        gain=gain,
        evidence=tuple(evidence),
        slice=Slice.IDLE_OTHER_PROCESS,
        severity=severity,
        title=f"GPU {worst.index} is shared: other processes take {taken:.0%} of its time",
    )


rule = Rule(
    title="Other processes compute on the same GPU",
    documents=("D5",),
    fixes={
        "pytorch": Fix(
            "Move one of the jobs to another GPU. torch.cuda.set_per_process_memory_fraction"
            " only caps the memory (more than that fails); it makes nothing faster."
        ),
        "jax": Fix(
            "Move one of the jobs to another GPU. XLA_CLIENT_MEM_FRACTION only caps the memory;"
            " it replaces XLA_PYTHON_CLIENT_MEM_FRACTION, and JAX refuses both together."
        ),
    },
)
