"""How long the device works, and how long the main thread reads from it."""

from __future__ import annotations

from collections.abc import Iterable

from whyidle.monitor.core.measure import Measure
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.libraries.frames import kind_of, plays
from whyidle.monitor.libraries.table import Kind, Role
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import step_samples
from whyidle.monitor.signals.traced import Traced


def busy(trace: Traced) -> float:
    """Return the share of the time in which the device works or copies."""
    parts = (trace.share(part) for part in Slice if not part.idle)
    return sum(part.value for part in parts if part is not None)


def idle_slice(trace: Traced | None) -> Slice:
    """Return the slice that holds most of what the device does nothing in, for no named cause."""
    parts = (Slice.IDLE_DISPATCH, Slice.IDLE_SYNC, Slice.IDLE_UNKNOWN)
    shares = {} if trace is None else {part: trace.share(part) for part in parts}
    return max(parts, key=lambda part: share.value if (share := shares.get(part)) else 0.0)


def share_of_lines(
    job: Recorded, places: Iterable[tuple[str, int]], *, arrays: bool = False
) -> Measure | None:
    """Return how much of the main thread's time goes to these lines; ``None``: not sampled.

    Only samples count that found it at the line itself, or in helpers of a tensor: a line may also
    call a whole model. ``arrays``: what is made of large values on the host counts, too.
    """
    if not job.lines:
        return None
    seen, wanted = step_samples(job), set(places)
    own = sum(line.share for line in seen.lines if (line.file, line.line) in wanted)
    at = seen.at_leaves(
        lambda leaf: (
            (leaf.file, leaf.line) in wanted
            or plays(Role.TENSOR, leaf)
            or (arrays and kind_of(leaf.file) is Kind.ARRAYS)
        )
    )
    return job.sampled(min(own, at))
