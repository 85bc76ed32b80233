"""Where PyTorch wraps layers to compute their activations again in the backward pass."""

from __future__ import annotations

import re
from typing import Final

from whyidle.monitor.runs.stacks import Chain

_CHECKPOINT: Final = re.compile(r".*/torch/utils/checkpoint\.py")


def in_checkpoint(chain: Chain) -> bool:
    """Tell whether a thread was found in what wraps them."""
    lines = (line for line in (chain.called, chain.leaf) if line is not None)
    return any(_CHECKPOINT.fullmatch(line.file) for line in lines)
