"""What comes back of time that the main thread saves, beside a device that works meanwhile."""

from __future__ import annotations

from whyidle.monitor.core.finding import MOST_LOST
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.signals.account import HostAccount
from whyidle.monitor.signals.waiting import busy
from whyidle.monitor.signals.window import Window


def back(window: Window, account: HostAccount, saved: float) -> tuple[float, float]:
    """Return the least and the most that a step gains when its main thread saves such a share.

    With host and device side by side the slower one sets the pace; in turns they add up. Which of
    the two holds is seen only in part: the new step lies between both. Where a CPU computes, both
    need its cores.
    """
    saved = min(MOST_LOST, max(0.0, saved))
    if window.device == "cpu" and not window.uses("jax"):
        # PyTorch computes there in the thread that calls it.
        return saved, saved
    waits = account.share(HostClass.FRAMEWORK_WAIT, HostClass.READ)
    device = None if window.trace is None else busy(window.trace)
    if device is None:
        return max(0.0, saved - waits), saved
    # Of what the main thread waits for the device it does nothing.
    turns = device + max(0.0, 1.0 - waits - saved)
    beside = max(device, 1.0 - saved)
    low, high = max(0.0, min(saved, 1.0 - turns)), max(0.0, min(saved, 1.0 - beside))
    freed = freed_cores(window, saved) if window.device == "cpu" else None
    return (low, high) if freed is None else (min(saved, max(low, freed[0])), max(high, freed[1]))


def freed_cores(window: Window, taken: float) -> tuple[float, float] | None:
    """Return the least and the most that a step gains by cores that compute and are freed for it.

    ``taken`` is in cores. ``None``: some are free, or how many is not known. At least the work is
    less by so much. At most a step stands still while any of its threads has no core.
    """
    account = window.core_account
    if account is None or not account.is_full:
        return None
    share = min(1.0, taken / account.cores)
    return share, 1.0 - (1.0 - share) ** max(1.0, account.cores)
