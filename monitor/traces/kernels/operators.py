"""Which framework operators the host itself spent its time in."""

from __future__ import annotations

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.kernels.tallies import Tally, tally
from whyidle.monitor.traces.model import Ints, Ops, Spans, Trace


def operators(trace: Trace) -> Tally:
    """Add up the time of each operator, without that of the operators it calls."""
    ops = trace.host.take((trace.host.kind == Cause.OP) & (trace.host.end > trace.host.start))
    threads = np.unique(ops.thread).tolist()
    parts = [ops.take(ops.thread == thread) for thread in threads]
    if not parts:
        return Tally.of()
    return tally(
        np.concatenate([part.name for part in parts]),
        np.concatenate([self_time(part) for part in parts]),
    )


def self_time(spans: Spans | Ops) -> Ints:
    """Return the time of nested spans of one line that none of their own spans takes.

    They come by their starts, the longer one first.
    """
    row = np.arange(len(spans))
    depth = row - np.searchsorted(np.sort(spans.end), spans.start, "right")
    # The parent is the last span before it that lies one level further out.
    key = np.sort(depth * len(spans) + row)
    parent_level = (depth - 1) * len(spans)
    found = key[np.maximum(np.searchsorted(key, parent_level + row) - 1, 0)]
    inner = np.flatnonzero((found >= parent_level) & (depth > 0) & (found < parent_level + row))
    parent = found[inner] - parent_level[inner]
    # Spans that overlap instead of nesting count up to where the outer one ends.
    taken = np.minimum(spans.end[inner], spans.end[parent]) - spans.start[inner]
    own: Ints = spans.end - spans.start
    np.subtract.at(own, parent, np.maximum(taken, 0))
    return own.clip(0)
