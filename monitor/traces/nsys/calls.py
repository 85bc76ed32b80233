"""The names of CUDA's functions without the version of their interface."""

from __future__ import annotations

import re
from typing import Final

# cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000; cuMemcpyHtoD_v2 is a name of the driver's own.
_VERSION: Final = re.compile(r"(?:_pt[sd][zs])?_v\d{4,5}$")


def plain_call(name: str) -> str:
    """Return a function's name as people write it, and as other profilers do."""
    return _VERSION.sub("", name)
