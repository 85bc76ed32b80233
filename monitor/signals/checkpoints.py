"""Where PyTorch wraps layers to compute their activations again in the backward pass."""

from __future__ import annotations

from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import Chain


def in_checkpoint(chain: Chain) -> bool:
    """Tell whether a thread was found in what wraps them."""
    return plays(Role.RECOMPUTE, chain.called, chain.leaf)
