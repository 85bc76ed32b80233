"""Every device holds all parameters; memory is nearly full.

## What it sees
Replicated arrays (JAX), or ranks without sharding (PyTorch), on an allocator that has taken four
fifths of its limit.

## Why it costs
With optimizer moments each copy takes four times the parameters.

## How to fix
ZeroRedundancyOptimizer shards only the optimizer's state, and changes less.

## When it is wrong
With a large enough batch the copies do no harm. Sharding may cost more communication than it gains
on a slow network.

## Documents
D4 §6 (named sharding over a mesh).
"""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core.finding import Confidence, Evidence, Found
from whyidle.monitor.rules import Fix, Kind, Need, Rule, Severity, Verdict, Window
from whyidle.monitor.signals.memory import known_memory

# Of a device: less is not what fills it.
MUCH: Final = 0.25
# Parameters, and gradients of the same size: what is surely there.
WITH_GRADIENTS: Final = 2


def detect(window: Window) -> Verdict:
    """Judge what each device holds a copy of."""
    memory, fact = known_memory(window), window.fact
    if not memory.is_near:
        return None
    if window.uses("jax"):
        copies, devices = fact("replicated_bytes"), fact("devices_used")
        if not isinstance(copies, int) or not isinstance(devices, int):
            return window.lacks(Need.INSIDE)
        name, held = "whole on each device", copies / max(1, devices)
        is_copied = devices > 1
    else:
        devices, size = fact("world_size"), fact("parameter_bytes")
        if not isinstance(devices, int) or not isinstance(size, int):
            return window.lacks(Need.INSIDE, "the size of the model, of an optimizer that steps")
        name, held = "parameters and gradients on each GPU", WITH_GRADIENTS * size
        is_ddp = str(fact("parallel")) == "DistributedDataParallel"
        is_copied = devices > 1 and is_ddp and not fact("sharded")
    if not is_copied or held < MUCH * memory.limit / memory.devices:
        return None
    measure = window.job.measure
    return Found(
        gain=None,
        evidence=(
            Evidence.of(name, measure(held, "bytes")),
            Evidence.of("devices", measure(devices, "count")),
            *memory.evidence(window),
        ),
        severity=Severity.MEDIUM if memory.is_tight else Severity.LOW,
        confidence=Confidence.INFERRED,
    )


rule = Rule(
    title="Every device holds all parameters; memory is nearly full",
    documents=("D4 §6",),
    fixes={
        "jax": Fix(
            "Shard the parameters over an axis of the mesh.",
            """\
axes = (jax.sharding.AxisType.Auto,)
mesh = jax.make_mesh((8,), ("model",), axis_types=axes)
by_row = jax.NamedSharding(mesh, jax.P("model"))
params = jax.device_put(params, by_row)""",
        ),
        "pytorch": Fix(
            "Shard the parameters with fully_shard (FSDP2). Shard layer by layer, then the"
            " whole model.",
            """\
for layer in model.layers:
    torch.distributed.fsdp.fully_shard(layer)
torch.distributed.fsdp.fully_shard(model)""",
        ),
    },
    kind=Kind.MEMORY,
)
