"""What one device of a job brings to the others: its collectives and its steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whyidle.monitor.traces.analysis import Analysis, DeviceReport
from whyidle.monitor.traces.budgets.budget import Segments
from whyidle.monitor.traces.causes import COPIES, Cause
from whyidle.monitor.traces.intervals import union
from whyidle.monitor.traces.kernels.collectives import read_name
from whyidle.monitor.traces.model import DeviceKind, Ids, Ints, Trace
from whyidle.monitor.traces.names import HOST_COLLECTIVE
from whyidle.monitor.traces.pieces import merge_to_fit

# Where all ranks wait for all others; a root that sends waits for nobody, and what two stages of a
# pipeline send each other is no meeting.
WAIT_FOR_ALL: Final = frozenset({"AllReduce", "AllGather", "ReduceScatter", "AllToAll"})
_NUMBER: Final = re.compile(r"(\d{1,18})$")
# The group of a CPU's collectives, where the file names none.
ON_HOST: Final = "host"
# How finely it is kept which part of a collective computing covers.
PARTS: Final = 16
# A rank with more is cut there: no late rank needs as many to show.
MOST: Final = 200_000
# Of the account of one rank; a screen has a thousandth of them.
PIECES_MOST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Member:
    """One device; times in nanoseconds on its own clock, in the order of their starts."""

    device: int  # its place among those of its file
    kind: DeviceKind
    world: int | None
    # Unix time of its 0, where the file says.
    origin_ns: int | None
    start: Ints
    end: Ints
    what: Ids  # an index into whats
    whats: list[str]
    group: Ids  # an index into groups
    groups: list[str]
    sequence: Ints
    bytes: Ints
    # Time from the start of a collective to each part of it in which the device also computes.
    covered: NDArray[np.float32]
    step_start: Ints
    step_end: Ints
    step_number: Ints  # as the job counts them, or -1
    # What it did and why it idled; short pieces are merged where there are many.
    segments: Segments
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.start)


def members(analysis: Analysis, pieces: int = PIECES_MOST) -> list[Member]:
    """Return what each device of a trace brings; ``pieces``: of its account, about so many."""
    return [_member(analysis, i, report, pieces) for i, report in enumerate(analysis.devices)]


@dataclass(slots=True)
class _Rows:
    """Collectives in ticks, on the clock of their device."""

    start: Ints
    end: Ints
    name: Ids  # of the collective as it is known best, an index into the names of the trace
    group: list[str]
    sequence: Ints
    bytes: Ints


def _member(analysis: Analysis, at: int, report: DeviceReport, pieces: int) -> Member:
    trace, each = analysis.trace, analysis.trace.ticks_per_ns
    rows = _on_host(trace) if report.device.kind == "cpu" else _on_device(trace, report)
    left_out = max(0, len(rows.start) - MOST)
    start, end = rows.start[:MOST], rows.end[:MOST]
    kinds = {name: read_name(trace.names[name])[0] for name in np.unique(rows.name).tolist()}
    texts = [
        _label(kinds[n], b) for n, b in zip(rows.name.tolist(), rows.bytes.tolist(), strict=True)
    ]
    whats, what = _numbered(texts[:MOST])
    groups, group = _numbered(rows.group[:MOST])
    # Steps are on the host's clock.
    skew = 0 if report.device.kind == "cpu" else report.budget.skew
    steps = analysis.steps
    return Member(
        device=at,
        kind=report.device.kind,
        world=trace.world,
        origin_ns=trace.origin_ns,
        start=start // each,
        end=end // each,
        what=what,
        whats=whats,
        group=group,
        groups=groups,
        sequence=rows.sequence[:MOST],
        bytes=rows.bytes[:MOST],
        covered=(_covered(report, start, end) / each).astype(np.float32),
        step_start=(steps.start - skew) // each,
        step_end=(steps.end - skew) // each,
        step_number=_numbers(trace, steps.start),
        segments=_segments(report.budget.segments, each, pieces),
        left_out=left_out,
    )


def _segments(all_: Segments, each: int, pieces: int) -> Segments:
    """Return the account in nanoseconds, as fine as so many pieces can be."""
    start, end, cause = all_.start // each, all_.end // each, all_.cause.astype(np.int64)
    if len(all_) > pieces:
        span = int(end[-1] - start[0])
        (some,) = merge_to_fit([(start, end, cause)], span, pieces, finest=1 / pieces)
        start, end, cause = some.start, some.end, some.kind.astype(np.int64)
    return Segments.of(start=start, end=end, cause=cause)


def _label(kind: str, size: int) -> str:
    return kind if size < 0 else f"{kind}, {size} bytes"


def _numbered(texts: list[str]) -> tuple[list[str], Ids]:
    known: dict[str, int] = {}
    ids = np.array([known.setdefault(text, len(known)) for text in texts], np.int32)
    return list(known), ids


def _on_device(trace: Trace, report: DeviceReport) -> _Rows:
    """The communication of a GPU or TPU, with what the file notes beside it."""
    device = report.device
    ops, notes = device.ops, device.messages
    rows = np.flatnonzero((ops.kind == Cause.COMM) & (ops.end > ops.start))
    name, sequence = ops.name[rows].copy(), np.full(len(rows), -1, np.int64)
    size, group = sequence.copy(), _groups_by_stream(trace, ops.stream[rows])
    at = np.searchsorted(notes.row, rows)
    noted = np.flatnonzero(np.append(notes.row, -1)[at] == rows)
    of = at[noted]
    name[noted], sequence[noted], size[noted] = notes.name[of], notes.sequence[of], notes.bytes[of]
    for row, named in zip(noted.tolist(), notes.group[of].tolist(), strict=True):
        if named >= 0:
            group[row] = trace.names[named]
    return _Rows(ops.start[rows], ops.end[rows], name, group, sequence, size)


def _groups_by_stream(trace: Trace, stream: Ids) -> list[str]:
    """Name the groups of which the file says nothing: each has a stream of its own."""
    if trace.group is not None:
        return [trace.group] * len(stream)
    names = sorted({trace.names[s] for s in stream.tolist()}, key=lambda text: (len(text), text))
    words = {text: f"stream {i}" for i, text in enumerate(names)}
    return [words[trace.names[s]] for s in stream.tolist()]


def _on_host(trace: Trace) -> _Rows:
    """The communication of a CPU: gloo and its like note when a collective began and ended."""
    host = trace.host
    like = np.array([bool(HOST_COLLECTIVE.match(name)) for name in trace.names], np.bool_)
    rows = np.flatnonzero(np.append(like, False)[host.name] & (host.end > host.start))
    none = np.full(len(rows), -1, np.int64)
    group = [trace.group or ON_HOST] * len(rows)
    return _Rows(host.start[rows], host.end[rows], host.name[rows], group, none, none)


def _covered(report: DeviceReport, start: Ints, end: Ints) -> NDArray[np.float64]:
    """Return how long the device computes between the start of each collective and its parts."""
    ops = report.device.ops
    computes = ~np.isin(ops.kind, (Cause.COMM, *COPIES))
    if report.device.kind == "cpu" or not len(start) or not computes.any():
        # Threads that send and compute are not told apart on a CPU: nothing is known to be covered.
        return np.zeros((len(start), PARTS + 1))
    a, b = union(ops.start[computes], ops.end[computes])
    before = np.append(0, np.cumsum(b - a))
    at = start[:, None] + (end - start)[:, None] * (np.arange(PARTS + 1) / PARTS)
    i = np.searchsorted(a, at, "right")
    within = np.minimum(at, b[np.maximum(i - 1, 0)]) - a[np.maximum(i - 1, 0)]
    busy = np.where(i > 0, before[np.maximum(i - 1, 0)] + within, 0.0)
    found: NDArray[np.float64] = busy - busy[:, :1]
    return found


def _numbers(trace: Trace, start: Ints) -> Ints:
    """Return the numbers that the job's own markers give its steps."""
    marks = trace.marks
    found = np.full(len(start), -1, np.int64)
    at = np.searchsorted(marks.start, start)
    for i in np.flatnonzero(np.append(marks.start, -1)[at] == start).tolist():
        name = int(marks.name[at[i]])
        number = _NUMBER.search(trace.names[name]) if name >= 0 else None
        found[i] = int(number[1]) if number else -1
    return found
