"""Which threads of the job to use: /proc tells where each is, without stopping it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from whyidle.monitor.attach.ptrace.calls import Comfort, comfort

# So long a better moment is awaited before a thread is taken whose call will end with EINTR.
PATIENCE_SECONDS = 0.3
# Of one look at all threads no more are tried: the look is old by then.
_TRIES_A_LOOK = 3
_BETWEEN_LOOKS = 0.001
# What hinders (a storm of signals) may last: the looks come ever more seldom.
_SLOWER = 1.3


class Thread(NamedTuple):
    """Where a thread is. ``comfort`` is ``None`` while it runs."""

    tid: int
    comfort: Comfort | None

    @property
    def runs(self) -> bool:
        """Tell whether it runs, and waits for nothing."""
        return self.comfort is None


def candidates(pid: int, deadline: float) -> Iterator[Thread]:
    """Yield threads to try, until the deadline.

    One that waits can start a thread at once. Of those that run one is taken when the main thread
    runs, too: it will come to the pending call soon.
    """
    patience = time.monotonic() + PATIENCE_SECONDS
    pause = _BETWEEN_LOOKS
    while (now := time.monotonic()) < deadline:
        found = threads(pid)
        late = now > patience
        main_runs = any(t.runs for t in found if t.tid == pid)
        suits = [t for t in found if _suits(t, late=late, main_runs=main_runs)]
        yield from suits[:_TRIES_A_LOOK]
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause *= _SLOWER


def _suits(thread: Thread, *, late: bool, main_runs: bool) -> bool:
    if thread.comfort is None:
        return main_runs or late
    return thread.comfort < Comfort.EINTR or late


def threads(pid: int) -> list[Thread]:
    """Return the threads that can be used, the best first: parked ones, and not the main one."""
    found = [t for tid in _tids(pid) if (t := _look(pid, tid)) is not None]
    cores = {t.tid: _cores(t.tid) for t in found}
    widest = max(cores.values(), default=0)

    def order(thread: Thread) -> tuple[bool, bool, int, bool]:
        # A new thread inherits the cores, and the class, of the one that makes it.
        bound = cores[thread.tid] < widest
        return (thread.runs, bound, thread.comfort or Comfort.BEST, thread.tid == pid)

    return sorted(found, key=order)


def _tids(pid: int) -> list[int]:
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def _cores(tid: int) -> int:
    """Return how many cores a thread may use; none for one that is gone or has a hard deadline."""
    try:
        common = os.sched_getscheduler(tid) == os.SCHED_OTHER
        return len(os.sched_getaffinity(tid)) if common else 0
    except OSError:
        return 0


def _look(pid: int, tid: int) -> Thread | None:
    """Read one thread's line: ``running``, or the call, its six arguments, stack and place."""
    try:
        words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text("ascii").split()
    except OSError:
        return None
    if words[:1] == ["running"]:
        return Thread(tid, None)
    if len(words) < 9:  # "-1 stack place": blocked, but in no system call
        return None
    rated = comfort(int(words[0]), tuple(int(w, 16) for w in words[1:7]))
    return None if rated is None else Thread(tid, rated)
