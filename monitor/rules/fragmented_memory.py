"""Free device memory is in pieces too small to use.

## What it sees
Allocations fail or are tried again while the allocator holds unused memory. In JAX: free memory
outside the largest free block.

## Why it costs
PyTorch waits, empties its cache and asks the driver. In the end the allocation fails.

## How to fix
Growing segments keep free memory in one piece; changing sizes break it up.

## When it is wrong
Memory free in the middle of a step is no fault.

## Documents
D3 trap 2 (fragmentation and OOM).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import LITTLE
from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.signals.memory import device_memory

# Of what the allocator holds, in pieces, where no allocation has failed so far.
WITHOUT_FAILURES: Final = 0.3
# Less is no room for anything.
LEAST_BYTES: Final = 256 << 20


def detect(window: Window) -> Verdict:
    """Judge what is free in pieces."""
    memory, job = device_memory(window), window.job
    split, held = job.mean(m.PROCESS_POOL_SPLIT), job.mean(m.PROCESS_POOL_RESERVED)
    if memory is None or split is None or held is None:
        return window.lacks(Need.GPU if window.device == "cpu" else Need.INSIDE)
    if split.value < max(LEAST_BYTES, LITTLE * held.value):
        return None
    # Without failures it is only a risk, and only where the rest is used.
    is_risk = memory.is_near and split.value >= WITHOUT_FAILURES * held.value
    if not memory.is_tight and not is_risk:
        return None
    return Found(
        gain=None,
        evidence=(
            Evidence.of("free in pieces", split),
            Evidence.of("memory that the framework holds", held),
            *memory.evidence(window),
        ),
        severity=Severity.MEDIUM if memory.is_tight else Severity.LOW,
        confidence=Confidence.MEASURED if memory.is_tight else Confidence.INFERRED,
    )


rule = Rule(
    title="Free device memory is in pieces too small to use",
    documents=("D3 trap 2",),
    fixes={
        "pytorch": Fix(
            "Start it with PYTORCH_ALLOC_CONF=expandable_segments:True. The older name is"
            " PYTORCH_CUDA_ALLOC_CONF. Pad batches to a few lengths."
        ),
        "jax": Fix(
            "Leave preallocation on, with XLA_CLIENT_MEM_FRACTION=0.9. Keep fewer temporaries,"
            " and shard what is large."
        ),
    },
    kind=Kind.MEMORY,
)
