"""What each host thread did at every instant."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from whyidle.monitor.traces.causes import Cause
from whyidle.monitor.traces.grouping import present
from whyidle.monitor.traces.intervals import Timeline, blended, sweep
from whyidle.monitor.traces.model import Flags, Ids, Kinds, Thread, Trace

# More time without any host event is no dispatch: what happened was not recorded.
HOLE_NS: Final = 1_000_000
# So many launching threads have each a line of what all others did.
FEW: Final = 4
# Added to a cause that another thread than the launching one shows.
OTHERS: Final = np.int8(64)
_HELD_UP: Final = (Cause.DRIVER_CALL, Cause.SLOW_CALL)
_HOLDS_UP: Final = (Cause.PROFILER, Cause.COMPILE)
# On a thread that never launches these are about itself, not about the device.
_BYSTANDS: Final = np.isin(np.arange(len(Cause)), (Cause.PYTHON, Cause.DRIVER_CALL))
_KINDS: Final = np.arange(len(Cause), dtype=np.int8)
# What it waits for is an effect, no cause.
_OF_BYSTANDERS: Final = np.where(_BYSTANDS, np.int8(-1), _KINDS)
_OF_BYSTANDERS[Cause.SYNC] = Cause.BLOCKED
# Every thread of a pool waits in a call of the system, and Nsight Systems records them all.
_OWN_AFFAIR: Final = np.isin(np.arange(len(Cause)), (Cause.BLOCKED,))


class HostTimelines:
    """The threads of a trace, each as a line of causes; made when first asked for."""

    def __init__(self, trace: Trace) -> None:
        self._host = trace.host
        self._rows = _by_thread(trace)
        self._hole = HOLE_NS * trace.ticks_per_ns
        self._hidden = _OWN_AFFAIR if trace.format == "nsys" else np.zeros_like(_OWN_AFFAIR)
        self._own: dict[int, Timeline] = {}
        self._others: dict[tuple[int, int, frozenset[int]], Timeline] = {}
        self._pythons = _python_lines(trace)
        self._process = _processes(trace)

    def own(self, thread: int) -> Timeline:
        """What this thread did."""
        if thread not in self._own:
            rows = self._rows[thread] if thread >= 0 else np.zeros(0, np.int32)
            s = self._host
            self._own[thread] = sweep(s.start, s.end, s.kind, Cause.HOLE, rows)
        return self._own[thread]

    def others(self, thread: int, launchers: frozenset[int]) -> Timeline:
        """What any other thread did that can explain why a launcher shows nothing.

        A thread that never launches and waits for the device is an effect, no cause.
        """
        launchers |= self._pythons
        # Including its own activity changes nothing where the thread is silent, and lets
        # threads share the line.
        process = self._process[thread]
        thread = thread if len(launchers) <= FEW else -1
        if (process, thread, launchers) not in self._others:
            s = self._host
            kind = self._of_others(process, thread, launchers)[s.thread, s.kind]
            line = sweep(s.start, s.end, kind, Cause.HOLE, np.flatnonzero(kind >= 0))
            self._others[process, thread, launchers] = line
        return self._others[process, thread, launchers]

    def _of_others(self, process: int, thread: int, launchers: frozenset[int]) -> Kinds:
        """By thread and kind, what a span of others counts as; -1 where it does not count."""
        launches = _marked(launchers, len(self._rows))[:, None]
        kind = np.where(launches, _KINDS, _OF_BYSTANDERS)
        kind[:, self._hidden] = -1
        if process >= 0:
            kind[~np.isin(self._process[:-1], (process, -1))] = -1
        if thread >= 0:
            kind[thread] = -1
        return kind

    def between(self, thread: int, launchers: frozenset[int], start: int, end: int) -> Timeline:
        """What a launching thread did between two times; where it shows nothing, what others did.

        Labels of others are ``OTHERS`` more than their cause.
        """
        own = self.own(thread).within(start, end)
        others = self.others(thread, launchers).within(start, end)
        line = blended(own, others, _BOTH).since(_both_begun(own, others, start))
        until = np.append(line.time[1:], max(end, int(line.time[-1])))
        long = (line.label == Cause.HOLE) & (until - line.time > self._hole)
        return Timeline(line.time, np.where(long, np.int8(Cause.SILENT), line.label), Cause.HOLE)


def most_telling(threads: list[Thread], operators: Sequence[int], spans: Sequence[int]) -> int:
    """The main thread, else that which most but plain operators happen on; -1 for none.

    For each thread: how many of its spans are operators, and how many it has.
    """
    if not threads:
        return -1
    rest = [n - of_them for n, of_them in zip(spans, operators, strict=True)]
    mains = [n > 0 and thread.main for n, thread in zip(spans, threads, strict=True)]
    return int(np.lexsort((operators, rest, mains))[-1])


def _both() -> Kinds:
    """What holds: what a thread does, and where it does nothing, what others do.

    Kineto writes what the profiler and the loading of kernels cost apart from the thread that
    they held up in a driver call. A row is for what the thread does.
    """
    mine, theirs = np.ogrid[: len(Cause), : len(Cause)]
    held_up = np.isin(mine, _HELD_UP) & np.isin(theirs, _HOLDS_UP)
    silent = (mine == Cause.HOLE) & (theirs != Cause.HOLE)
    return np.where(held_up | silent, theirs + OTHERS, mine).astype(np.int8)


_BOTH: Final = _both()


def _both_begun(own: Timeline, others: Timeline, start: int) -> int:
    """When the later of two lines said what still holds at the start."""
    begun = [int(line.time[0]) for line in (own, others) if len(line.time)]
    return max((time for time in begun if time <= start), default=start)


def _by_thread(trace: Trace) -> list[Ids]:
    """The rows of each thread; short numbers are sorted by radix."""
    thread = trace.host.thread
    if len(trace.threads) < 1 << 15:
        thread = thread.astype(np.int16)
    order = np.argsort(thread, kind="stable").astype(np.int32)
    edges = np.searchsorted(thread[order], np.arange(len(trace.threads) + 1))
    return [order[a:b] for a, b in pairwise(edges)]


def _processes(trace: Trace) -> list[int]:
    """For each thread its process, where several of the file launch work; -1 for all others.

    What one rank does explains nothing of another one's device. The last entry is for no thread.
    """
    pids = [-1 if thread.pid is None else thread.pid for thread in trace.threads]
    launching = {pids[i] for i in present(trace.host.thread[trace.calls.row])} - {-1}
    several = launching if len(launching) > 1 else set()
    return [*(pid if pid in several else -1 for pid in pids), -1]


def _python_lines(trace: Trace) -> frozenset[int]:
    """ROCm XPlanes put the launches on lines of their own; then the Python line launches."""
    labels = [thread.label for thread in trace.threads]
    if not any(label.startswith("Host Threads") for label in labels):
        return frozenset()
    if any(label.startswith("py_xla_execute") for label in labels):
        return frozenset()
    return frozenset(i for i, label in enumerate(labels) if label.startswith("python"))


def _marked(ids: frozenset[int], size: int) -> Flags:
    """A column that is true at these places."""
    column = np.zeros(size, np.bool_)
    column[[i for i in ids if i >= 0]] = True
    return column


def threads_of(ids: Ids) -> frozenset[int]:
    """The distinct threads, without -1."""
    return frozenset(i for i in present(ids) if i >= 0)
