"""How much of the host's time the GPU has nothing to do: what both do at once is not lost."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.window import Window

# Nobody says.
_UNKNOWN: Final = (0.0, 1.0)


def idle(window: Window) -> tuple[float, float]:
    """Return the least and the most of the time in which the job's GPU stands idle."""
    trace = window.gpu_trace
    if trace is not None:
        parts = [trace.share(part) for part in Slice if part.idle]
        share = min(1.0, sum(part.value for part in parts if part is not None))
        return share, share
    used = [g.means.get(m.GPU_UTILISATION) for g in window.job.gpus if g.owned]
    known = [share for share in used if share is not None]
    # A moment counts as used where any kernel ran in it: at least the rest is idle.
    return (1 - max(known), 1.0) if known else _UNKNOWN


def lost_in(window: Window, share: float, error: float = 0.0) -> tuple[float, float]:
    """Return how much of a share of the host's time is also time in which the GPU is idle."""
    least, most = idle(window)
    return max(0.0, share - error + least - 1), min(share + error, most, 1.0)
