"""Whether a pid from the GPU driver is the process with this pid here.

In a container the driver may report the host's pids. If the process here has mapped the driver's
files, we take it for the reported one; this check holds its memory lock, so it is made seldom.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from whyidle.monitor.processes.procfs import ProcFs

# The kernel fixes the inode of the first pid namespace (PROC_PID_INIT_INO).
FIRST_NAMESPACE = "pid:[4026531836]"
_GPU_FILES = ("/libcuda.so", "/dev/nvidia")
# A process begins to use the GPU some time after its start: check a no again, but not a yes.
LOOK_AGAIN_SECONDS = (2.0, 5.0, 15.0, 60.0)
LATER_LOOKS_EVERY_SECONDS = 300.0
MOST_VERDICTS = 4096


@dataclass(slots=True)
class _Verdict:
    start_ticks: int
    since: float
    matches: bool
    looks: int = 1

    def is_due(self, now: float) -> bool:
        if self.matches:
            return False
        late = self.looks - len(LOOK_AGAIN_SECONDS)
        if late < 0:
            return now - self.since >= LOOK_AGAIN_SECONDS[self.looks - 1]
        return now - self.since >= LOOK_AGAIN_SECONDS[-1] + late * LATER_LOOKS_EVERY_SECONDS


_verdicts: WeakKeyDictionary[ProcFs, dict[int, _Verdict]] = WeakKeyDictionary()


def pids_match(fs: ProcFs, pid: int, now: float | None = None) -> bool:
    """Tell whether the driver's pid is ours: in a container it may be the host's."""
    if fs.namespace == FIRST_NAMESPACE:
        return True
    now = time.monotonic() if now is None else now
    known = _verdicts.setdefault(fs, {})
    start_ticks = fs.followed.get(pid) or _follow(fs, pid)
    if start_ticks is None:
        return uses_gpu(fs, pid)
    verdict = known.get(pid)
    if verdict is None or verdict.start_ticks != start_ticks:
        known[pid] = _Verdict(start_ticks, now, uses_gpu(fs, pid))
        _make_room(fs, known)
        return known[pid].matches
    if verdict.is_due(now):
        verdict.looks += 1
        verdict.matches = uses_gpu(fs, pid)
    return verdict.matches


def uses_gpu(fs: ProcFs, pid: int) -> bool:
    """Tell whether a process has mapped the driver's files; holds its memory lock for a moment."""
    files = fs.mapped_files(pid) or set()
    return any(mark in file for file in files for mark in _GPU_FILES)


def _follow(fs: ProcFs, pid: int) -> int | None:
    """Have each later read of this pid's stat line keep the start time, at no cost."""
    stat = fs.stat(pid)
    if stat is not None:
        fs.followed[pid] = stat.start_ticks
    return None if stat is None else stat.start_ticks


def _make_room(fs: ProcFs, known: dict[int, _Verdict]) -> None:
    while len(known) > MOST_VERDICTS:
        oldest = next(iter(known))
        del known[oldest]
        fs.followed.pop(oldest, None)
