"""What is won when the main thread no longer waits for the device in the middle of its work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

# While a read of PyTorch's runs, Python is in its own line or in these helpers of a tensor.
HELPERS: Final = re.compile(r".*/torch/(_tensor|functional|utils/_contextlib)\.py")
# What is made of large values on the host is done in these.
ARRAYS: Final = re.compile(rf"{HELPERS.pattern}|.*/(numpy|pandas|scipy|sklearn)/.*\.py")


def busy(trace: Traced) -> float:
    """Return the share of the time in which the device works or copies."""
    parts = (trace.share(part) for part in Slice if not part.idle)
    return sum(part.value for part in parts if part is not None)


def idle_slice(trace: Traced | None) -> Slice:
    """Return the slice that holds most of what the device does nothing in, for no named cause."""
    parts = (Slice.IDLE_DISPATCH, Slice.IDLE_SYNC, Slice.IDLE_UNKNOWN)
    shares = {} if trace is None else {part: trace.share(part) for part in parts}
    return max(parts, key=lambda part: share.value if (share := shares.get(part)) else 0.0)


def overlapped(window: Window, waiting: float) -> tuple[float, float]:
    """Return what comes back when the host prepares the next step while the device works.

    ``waiting`` is the share of the time that the main thread gives to the reads. Without them the
    slower of the two sets the pace: the device, or what else the main thread has to do. Without a
    trace it is not known how long the device works.
    """
    trace, cores = window.trace, window.cores
    if trace is None:
        # How long the device works is not known: perhaps all of the time.
        return 0.0, waiting
    work, host = busy(trace), 1.0 - waiting
    if window.device == "gpu" or cores is None:
        high = max(0.0, 1.0 - max(work, host))
        return high / 2, high
    # At best its operations are all that is left of the wait. What lies between them is the way to
    # a thread that has gone to sleep, and one with work ahead of it does not.
    high = max(0.0, 1.0 - max(work, host))
    # Or who waits for a CPU backend waits for work, also between two operations of it.
    sync = trace.share(Slice.IDLE_SYNC)
    work = max(work + (sync.value if sync else 0.0), min(waiting, 1.0))
    # A CPU backend of JAX computes in the calling thread where it has nothing else in hand, as
    # it has not when the host is the slower one.
    if host > work:
        return 0.0, 0.0
    # Both need the same cores: at worst the device's work fills them all.
    return max(0.0, min(high, 1.0 - work - host / cores.value)), high


def share_of_lines(
    job: Recorded, places: Iterable[tuple[str, int]], helpers: re.Pattern[str] = HELPERS
) -> Measure | None:
    """Return how much of the main thread's time goes to these lines; ``None``: not sampled.

    Only samples count that found it at the line itself, or in helpers: a line may also call a
    whole model.
    """
    if not job.lines:
        return None
    seen, wanted = step_samples(job), set(places)
    own = sum(line.share for line in seen.lines if (line.file, line.line) in wanted)
    at = seen.at_leaves(
        lambda leaf: (leaf.file, leaf.line) in wanted or bool(helpers.fullmatch(leaf.file))
    )
    return job.measure(min(own, at), "ratio")
