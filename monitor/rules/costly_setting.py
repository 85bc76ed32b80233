"""A setting takes time that another one would not.

## What it sees
Deterministic algorithms, JAX optimizations off, `XLA_PYTHON_CLIENT_ALLOCATOR=platform`,
preallocation off, `NCCL_P2P_DISABLE`, `NCCL_SHM_DISABLE`, `NCCL_IB_DISABLE`, TF32 or
`torch.compile` off, flags of XLA. No gain is predicted.

## Why it costs
Deterministic kernels are often slower. The platform allocator waits for the device. NCCL's
variables send collectives through host memory or TCP.

## How to fix
Unset the variable before the start. `monitor compare` shows whether a difference was chance.

## When it is wrong
Repeatable results, broken links or a shared GPU may need it.

## Documents
Beyond the five documents. D2 §3 keeps memory, as the allocators do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from whyidle.monitor.core.settings import Purpose
from whyidle.monitor.rules import Fix, Need, Rule, Verdict, Window
from whyidle.monitor.rules._settings import finding, is_known, switched_on

ADVICE: Final = "Set it back, and compare step times."


def detect(window: Window) -> Verdict:
    """Judge what the frameworks say is set, and what the job was started with."""
    on = switched_on(window, Purpose.OTHER)
    if not on:
        return None if is_known(window, Purpose.OTHER) else window.lacks(Need.INSIDE)
    found = finding(window, on, ADVICE)
    return replace(found, title=f"{on[0].setting.name} {on[0].setting.does}")


rule = Rule(
    title="A setting takes time",
    fixes={
        "pytorch": Fix(
            ADVICE,
            """\
torch.use_deterministic_algorithms(False)
torch.backends.cudnn.deterministic = False""",
        ),
        "jax": Fix(ADVICE, 'jax.config.update("jax_disable_most_optimizations", False)'),
    },
)
