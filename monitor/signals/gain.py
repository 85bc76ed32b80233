"""What a step gains when its main thread has less to do, or waits no longer: the model of it.

Two work on a step, the main thread and the device. Side by side the slower one sets the pace; in
turns they add up. Which of the two holds is seen only in part: the new step takes at least the
longer of what is left of both, at most their sum, and never more than the old one. Where a CPU
computes, both need its cores.
"""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import MOST_LOST, Gain
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.cores import FULL, Runner
from whyidle.monitor.signals.waiting import busy
from whyidle.monitor.signals.window import Window


def of_work(window: Window, least: float, most: float) -> Gain:
    """Return what comes back when the main thread saves between two shares of its time."""
    return Gain(_back(window, least)[0], _back(window, most)[1])


def _back(window: Window, saved: float) -> tuple[float, float]:
    saved = min(MOST_LOST, max(0.0, saved))
    device = _works(window)
    if window.device == "cpu" and not window.works_ahead:
        # PyTorch computes there in the thread that calls it: in that time nothing was saved.
        return (saved if device is None else min(saved, 1.0 - device[1])), saved
    # Of what the main thread waits for the device it does nothing.
    waited = waits_for_device(window)
    sure = max(0.0, saved - (1.0 if waited is None else waited))
    if device is None:
        return sure, saved
    turns = device[1] + max(0.0, 1.0 - (waited or 0.0) - saved)
    low, high = (max(0.0, min(saved, 1.0 - max(works, 1.0 - saved))) for works in device[::-1])
    # Whoever waits for nothing keeps the device waiting; a wait for a GPU's queue is not seen.
    low = min(low, max(sure if window.device == "cpu" else 0.0, 1.0 - turns))
    freed = freed_cores(window, saved) if window.device == "cpu" else None
    return (low, high) if freed is None else (min(saved, max(low, freed[0])), max(high, freed[1]))


def waits_for_device(window: Window) -> float | None:
    """Return the time in which the main thread waits for the device; ``None``: not known."""
    if window.host is not None:
        return window.host.share(HostClass.FRAMEWORK_WAIT, HostClass.READ)
    return window.job.means.get(m.JOB_SYNC_WAIT)


def _works(window: Window) -> tuple[float, float] | None:
    """Return the least and the most of the time in which the device works; ``None``: not known."""
    trace, account, runs = window.trace, window.core_account, window.computing
    known = [] if trace is None else [busy(trace)]
    if account is not None and runs is not None and window.works_ahead:
        if trace is not None and not account.is_full:
            # An execution that is open computes while a thread runs; a wait for ranks needs none.
            ranks = trace.share(Slice.EXPOSED_COMM)
            most = runs + account.runs[Runner.MAIN_THREAD] + (ranks.value if ranks else 0.0)
            known = [min(most, known[0])]
        # Other threads compute: side by side on all cores at best, one after the other at worst.
        # A trace is of a moment, and slows what it shows: what they run by the kernel counts too.
        known += [runs / account.cores, min(1.0, runs)]
    return (min(known), max(known)) if known else None


def of_waits(window: Window, waiting: float) -> Gain:
    """Return what comes back when the main thread prepares the next step while the device works.

    ``waiting`` is the share of its time in which it waits for what it reads.
    """
    trace, cores = window.trace, window.cores
    if trace is None:
        # How long the device works is not known: perhaps all of the time.
        return Gain(0.0, waiting)
    work, host = busy(trace), 1.0 - waiting
    if window.device == "gpu" or cores is None:
        high = max(0.0, 1.0 - max(work, host))
        return Gain(high / 2, high)
    # At best its operations are all that is left of the wait. What lies between them is the way to
    # a thread that has gone to sleep, and one with work ahead of it does not.
    high = max(0.0, 1.0 - max(work, host))
    # Or who waits for a CPU backend waits for work, also between two operations of it.
    sync = trace.share(Slice.IDLE_SYNC)
    work = max(work + (sync.value if sync else 0.0), min(waiting, 1.0))
    # A CPU backend of JAX computes in the calling thread where it has nothing else in hand, as
    # it has not when the host is the slower one.
    if host > work:
        return Gain(0.0, 0.0)
    # At worst the device's work fills all cores.
    return Gain(max(0.0, min(high, 1.0 - work - host / cores.value)), high)


def freed_cores(window: Window, taken: float) -> tuple[float, float] | None:
    """Return the least and the most that a step gains by cores that compute and are freed for it.

    ``taken`` is in cores. ``None``: some are free, or how many is not known. At least the work is
    less by so much. At most a step stands still while any of its threads has no core.
    """
    account = window.core_account
    if account is None or not account.is_full:
        return None
    if account.runs[Runner.THREADS] <= (1 - FULL) * account.cores:
        # One thread alone needs a core: how long it waits for that is measured.
        return 0.0, window.job.means.get(m.JOB_MAIN_THREAD_WAIT, 0.0)
    share = min(1.0, taken / account.cores)
    return share, 1.0 - (1.0 - share) ** max(1.0, account.cores)
