"""Which threads of the job to use: /proc shows where each is, without stopping it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from whyidle.monitor.attach.ptrace.calls import Interruptibility, interruptibility

# How long to wait for a better moment before using a thread whose call will end with EINTR.
PATIENCE_SECONDS = 0.3
# No more threads are tried by one scan: it is old by then.
_TRIES_A_SCAN = 3
_BETWEEN_SCANS = 0.001
# What hinders (a storm of signals) may last: scans become ever rarer.
_SLOWER = 1.3


class Thread(NamedTuple):
    """Where a thread is. ``interruptibility`` is ``None`` while it runs."""

    tid: int
    interruptibility: Interruptibility | None

    @property
    def runs(self) -> bool:
        """Tell whether it runs, rather than wait in a system call."""
        return self.interruptibility is None


def candidates(pid: int, deadline: float) -> Iterator[Thread]:
    """Yield threads to try, until the deadline.

    One that waits can start a thread at once. One that runs is used when the main thread runs, too:
    that will come to the pending call soon.
    """
    patience = time.monotonic() + PATIENCE_SECONDS
    pause = _BETWEEN_SCANS
    while (now := time.monotonic()) < deadline:
        found = threads(pid)
        late = now > patience
        main_runs = any(t.runs for t in found if t.tid == pid)
        suits = [t for t in found if _suits(t, late=late, main_runs=main_runs)]
        yield from suits[:_TRIES_A_SCAN]
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause *= _SLOWER


def _suits(thread: Thread, *, late: bool, main_runs: bool) -> bool:
    if thread.interruptibility is None:
        return main_runs or late
    return thread.interruptibility < Interruptibility.EINTR or late


def threads(pid: int) -> list[Thread]:
    """Return the usable threads, the best first: waiting ones, and not the main thread."""
    found = [t for tid in _tids(pid) if (t := _read(pid, tid)) is not None]
    cores = {t.tid: _cores(t.tid) for t in found}
    widest = max(cores.values(), default=0)

    def order(thread: Thread) -> tuple[bool, bool, int, bool]:
        # A new thread inherits the cores, and the class, of the one that makes it.
        bound = cores[thread.tid] < widest
        rating = thread.interruptibility or Interruptibility.BEST
        return (thread.runs, bound, rating, thread.tid == pid)

    return sorted(found, key=order)


def _tids(pid: int) -> list[int]:
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def _cores(tid: int) -> int:
    """Return how many cores a thread may use; 0 for one that is gone or of a real-time class."""
    try:
        common = os.sched_getscheduler(tid) == os.SCHED_OTHER
        return len(os.sched_getaffinity(tid)) if common else 0
    except OSError:
        return 0


def _read(pid: int, tid: int) -> Thread | None:
    """Read one thread's line: ``running``, or the call, its six arguments, stack and address."""
    try:
        words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text("ascii").split()
    except OSError:
        return None
    if words[:1] == ["running"]:
        return Thread(tid, None)
    if len(words) < 9:  # "-1 stack address": blocked, but in no system call
        return None
    rated = interruptibility(int(words[0]), tuple(int(w, 16) for w in words[1:7]))
    return None if rated is None else Thread(tid, rated)
