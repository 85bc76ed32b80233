"""A setting takes time that another one would not.

## What it sees
The agent reads switches of the frameworks: deterministic algorithms, JAX programs that are hardly
optimized. From outside it sees the variables that the job was started with: an allocator that asks
the driver each time (`XLA_PYTHON_CLIENT_ALLOCATOR=platform`), preallocation that is off, paths
between GPUs that are switched off (`NCCL_P2P_DISABLE`, `NCCL_SHM_DISABLE`, `NCCL_IB_DISABLE`), TF32
or `torch.compile` switched off, flags of XLA. Nothing shows how much each costs, so no gain is
given.

## Why it costs
Deterministic kernels add in a fixed order, and are often not the fastest; PyTorch then also fills
new tensors. The platform allocator waits for the device. Without direct paths between GPUs each
collective goes through the host's memory, or over TCP.

## How to fix
Unset the variable before the job starts, or set the switch back, and compare the time of a step
before and after: `monitor compare` shows whether the difference was chance.

## When it is wrong
There may be a reason for the setting: repeatable results, a machine with broken links, two programs
that share a GPU. Then the time is its price, and the finding is only information.

## Documents
Beyond the documents. D2 §3 keeps memory instead of allocating it again, as the allocators do.
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
