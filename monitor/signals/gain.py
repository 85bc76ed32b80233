"""What a step gains by a fix: one model, by whose time the fix saves.

Two work on a step, the main thread and the device. Side by side the slower one sets the pace; in
turns they add up. Which of the two holds is seen only in part: the new step takes at least the
longer of what is left of both, at most their sum, and never more than the old one. Where a CPU
computes, both need its cores, and whoever loads takes them from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import MOST_LOST, Gain
from whyidle.monitor.core.host_class import AWAITS
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.cores import FULL, Runner, busy_processes
from whyidle.monitor.signals.loading import Loader

if TYPE_CHECKING:
    from whyidle.monitor.signals.traced import Traced
    from whyidle.monitor.signals.window import Window

# Of five measured pairs: workers take from the launching thread 0.67 of what the host is late by.
TAKEN_BY_WORKERS: Final = 0.67
# What part of a wait comes back at least, on a GPU and where only counters show it (60-73%).
BACK_LEAST: Final = 0.6
# To hand a batch over costs the workers some of their time (measured: 1% of threads, 11% of
# processes).
HANDING_OVER: Final = 0.1
# Where a trace puts time in which the main thread did what no profiler records.
UNRECORDED: Final = (Slice.IDLE_INPUT, Slice.IDLE_DISPATCH, Slice.IDLE_UNKNOWN)
# While somebody waits for a core the job's own work runs on it: half of it comes later instead.
NO_CORE_LEAST: Final = 0.5
# Of several processes with a pool each the others work on meanwhile: of 0.48 that two with four
# threads each waited on two cores 0.11 came back with one thread each.
NO_CORE_LEAST_OF_SEVERAL: Final = 0.2
# Where the job's threads take the cores from each other, they also keep waiting for those of them
# that have none: that is no wait for a core, and comes back with it.
NO_CORE_MOST: Final = 1.25


class Side(StrEnum):
    """Whose time a fix saves. What comes back in full needs no model: ``Gain.between``."""

    # The main thread has less to do.
    HOST = "host"
    # It waits for what it reads, and can prepare the next step instead.
    AHEAD = "ahead"
    # It loads what others can load ahead.
    LOADS = "loads"
    # It waits for a loader, or loads by one that has no workers.
    LOADER = "loader"
    # It waits for a compiler. What the device does meanwhile stays, where a trace shows it.
    COMPILER = "compiler"
    # Of the host's time what a GPU stands idle in.
    GPU = "gpu"
    # Cores, not shares of the time: others compute on them.
    CORES = "cores"
    # The main thread could run, and others of the job have the cores.
    NO_CORE = "no core"


def busy(trace: Traced) -> float:
    """Return the share of the time in which the device works or copies."""
    return trace.taken(*(part for part in Slice if not part.idle))


def idle_slice(trace: Traced | None) -> Slice:
    """Return the slice that holds most of what the device does nothing in, for no named cause."""
    parts = (Slice.IDLE_DISPATCH, Slice.IDLE_SYNC, Slice.IDLE_UNKNOWN)
    shares = {} if trace is None else {part: trace.share(part) for part in parts}
    return max(parts, key=lambda part: share.value if (share := shares.get(part)) else 0.0)


def comes_back(window: Window, low: float, high: float, side: Side) -> Gain:
    """Return what a step gains where a fix saves between two shares of somebody's time."""
    if side is Side.LOADS:
        least, most = _loads(window, low, high)
    else:
        least, most = _MODELS[side](window, low)[0], _MODELS[side](window, high)[1]
    return Gain.between(min(least, most), most)


def _of_host(window: Window, saved: float) -> tuple[float, float]:
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
    freed = _freed(window, saved) if window.device == "cpu" else (0.0, 0.0)
    return min(saved, max(low, freed[0])), max(high, freed[1])


def waits_for_device(window: Window) -> float | None:
    """Return the time in which the main thread waits for the device; ``None``: not known."""
    if window.host is not None:
        return window.host.share(*AWAITS)
    return window.job.means.get(m.JOB_SYNC_WAIT)


def _works(window: Window) -> tuple[float, float] | None:
    """Return the least and the most of the time in which the device works; ``None``: not known."""
    trace, account, runs = window.trace, window.core_account, window.computing
    known = [] if trace is None else [busy(trace)]
    if account is not None and runs is not None and window.works_ahead:
        if trace is not None and not account.is_full:
            # An execution that is open computes while a thread runs; a wait for ranks needs none.
            ranks = trace.taken(Slice.EXPOSED_COMM)
            most = runs + account.runs[Runner.MAIN_THREAD] + ranks
            known = [min(most, known[0])]
        # Other threads compute: side by side on all cores at best, one after the other at worst.
        # A trace is of a moment, and slows what it shows: what they run by the kernel counts too.
        known += [runs / account.cores, min(1.0, runs)]
    return (min(known), max(known)) if known else None


def _loads(window: Window, low: float, high: float) -> tuple[float, float]:
    trace, cores = window.whole_steps, window.cores
    if trace is None or cores is None:
        return _of_host(window, low)[0], _of_host(window, high)[1]
    # A host that reads records nothing: a trace of it is mostly unknown, and counts all the same.
    idle = trace.taken(*UNRECORDED)
    # Threads divide it; then the device, or the rest of the main thread, is the slowest. Both may
    # need one of the same cores; where these abound the main thread still takes over each batch.
    rest = max(1 - idle, 1 - (low + high) / 2)
    least = min(low * (1 - HANDING_OVER), 1 - ((1 + HANDING_OVER) * high + rest) / cores.value)
    return least, min(high, idle, 1 - low / cores.value)


def _waits_for_loader(window: Window, waiting: float) -> tuple[float, float]:
    trace, cores, job = window.trace, window.cores, window.job
    least, most = waiting * BACK_LEAST, waiting
    if trace is not None and trace.taken(Slice.IDLE_INPUT) >= waiting:
        late = trace.taken(Slice.IDLE_DISPATCH)
        # However little the host is late by: what workers decode, a GPU still has to get.
        at_most = least if window.device == "gpu" else waiting
        least, most = min(at_most, waiting - TAKEN_BY_WORKERS * late), waiting + late
    if cores is None:
        return least, most
    waiting = max(waiting, job.means.get(m.JOB_LOADER_WAIT, 0.0))
    # A batch takes one worker so long, in steps: workers that cannot follow take all of the step.
    load = next((each.get("workers") for each in window.loaders), None) or waiting
    most = min(most, waiting, 1 - load / cores.value)
    # The rest of the step needs one of the same cores.
    handed = HANDING_OVER * load
    least = min(least, 1 - (load + handed + 1 - waiting) / cores.value)
    if window.device != "cpu":
        return least, most
    # So do other threads and ranks, where the main thread is to hand its loading over.
    account, loads = window.core_account, window.loading
    if account is not None and loads is not None and loads.who is Loader.MAIN:
        least = min(least, (account.runs[Runner.FREE] - handed) / account.cores)
    # A backend that works ahead may do meanwhile what the thread waits for afterwards.
    return least - (waits_for_device(window) or 0.0) * window.works_ahead, most


def _compiling(window: Window, saved: float) -> tuple[float, float]:
    if window.trace is None:
        return saved, saved
    least, most = _of_host(window, saved)
    # A CPU computes for longer beside a compiler.
    return least, saved if window.device == "cpu" else most


def _ahead(window: Window, waiting: float) -> tuple[float, float]:
    trace, cores = window.trace, window.cores
    works, host = _works(window), 1.0 - waiting
    if trace is None:
        # It works at least as long as the cores that it takes say, and perhaps all of the time.
        return 0.0, max(0.0, 1.0 - max(0.0 if works is None else works[0], host))
    work = busy(trace)
    # At best its operations are all that is left of the wait. What lies between them is the way to
    # a thread that has gone to sleep, and one with work ahead of it does not.
    high = max(0.0, 1.0 - max(work, host))
    if window.device == "gpu" or cores is None:
        return high / 2, high
    # Or who waits for a CPU backend waits for work, also between two operations of it.
    work = max(work + trace.taken(Slice.IDLE_SYNC), min(waiting, 1.0))
    # A CPU backend of JAX computes in the calling thread where it has nothing else in hand, as
    # it has not when the host is the slower one.
    if host > work:
        return 0.0, 0.0
    # At worst the device's work fills all cores.
    return max(0.0, min(high, 1.0 - work - host / cores.value)), high


def _freed(window: Window, taken: float) -> tuple[float, float]:
    """Return the least and the most that a step gains by cores that compute and are freed for it.

    Nothing where some are free, or how many is not known. At least the work is less by so much. At
    most a step stands still while any of its threads has no core.
    """
    account = window.core_account
    if account is None or not account.is_full:
        return 0.0, 0.0
    if window.device != "cpu" or account.runs[Runner.THREADS] <= (1 - FULL) * account.cores:
        # One thread alone needs a core: how long it waits for that is measured.
        return 0.0, window.job.means.get(m.JOB_MAIN_THREAD_WAIT, 0.0)
    share = min(1.0, taken / account.cores)
    return share, 1.0 - (1.0 - share) ** max(1.0, account.cores)


def _has_no_core(window: Window, waiting: float) -> tuple[float, float]:
    """Return the least and the most that a step gains where the main thread need not wait so long.

    Beside others that compute it catches up in the time that it sleeps.
    """
    account, lost = window.core_account, min(waiting, window.not_computing)
    if window.works_ahead:
        runs = window.job.means.get(m.JOB_MAIN_THREAD, 1.0)
        lost = max(0.0, lost - max(0.0, 1.0 - runs - waiting))
    alone = busy_processes(window.job) < 2 and not (account is not None and account.is_taken)
    least = NO_CORE_LEAST if alone else NO_CORE_LEAST_OF_SEVERAL
    return least * lost, min(window.not_computing, NO_CORE_MOST * lost)


def _of_gpu(window: Window, saved: float) -> tuple[float, float]:
    """Return what comes back of the host's time by how long the job's GPU stands idle."""
    trace = window.gpu_trace
    if trace is not None:
        idle = min(1.0, trace.taken(*(part for part in Slice if part.idle)))
        return saved + idle - 1, min(saved, idle)
    used = [g.means.get(m.GPU_UTILISATION) for g in window.gpus]
    known = [share for share in used if share is not None]
    # A moment counts as used where any kernel ran in it: at least the rest is idle.
    return saved - max(known, default=1.0), saved


_MODELS: Final[Mapping[Side, Callable[[Window, float], tuple[float, float]]]] = {
    Side.HOST: _of_host,
    Side.LOADER: _waits_for_loader,
    Side.COMPILER: _compiling,
    Side.AHEAD: _ahead,
    Side.GPU: _of_gpu,
    Side.CORES: _freed,
    Side.NO_CORE: _has_no_core,
}
