"""Heavy work beside a job: in slices, and slowly while the job needs the cores.

A thread within ``unhurried`` takes at most a twentieth of a core as long as no core is idle: it
waits wherever it calls ``breathe``, and before each module that it imports. A process of its own is
held to as much by the kernel, see ``give_way``. ``WHYIDLE_CORE_SHARE`` says another share of a
core; 1 is without a limit.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VARIABLE: Final = "WHYIDLE_CORE_SHARE"
# Of a core. A job whose threads wait for each other is as late as the one that shares its core.
USUAL: Final = 0.05
LEAST: Final = 0.001
# What is taken before the next wait, and how soon a core that became idle is seen.
SLICE_SECONDS: Final = 0.005
NAP_SECONDS: Final = 0.05
# With each step of niceness the kernel gives a thread so much less than its neighbor has.
STEP: Final = 1.25
LOWEST: Final = 19
_LOAD: Final = Path("/proc/loadavg")
_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")


def share() -> float:
    """Return what is set, else the usual share; what is no share counts as not set."""
    try:
        found = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        return USUAL
    return found if LEAST <= found <= 1 else USUAL


def niceness() -> int:
    """Return at which niceness a thread has this share of a core that another one uses."""
    rest = 1 / share() - 1
    return min(round(math.log(rest, STEP)), LOWEST) if rest > 1 else 0


class _Pace(threading.local):
    """What a thread has taken of a core, and what it had the time to earn."""

    is_held = False
    # From the beginning of the thread: the start of a program is paid for, too.
    _paid = 0.0

    def wait(self) -> None:
        """Wait until what was taken since the last call is earned, or a core is idle."""
        taken = time.thread_time() - self._paid
        if not self.is_held or taken < SLICE_SECONDS:
            return
        until = time.monotonic() + taken / share() - taken
        while (left := until - time.monotonic()) > 0 and not _hurry.is_set() and is_crowded():
            time.sleep(min(left, NAP_SECONDS))
        self._paid = time.thread_time()


class _Importing:
    """Finds nothing, and has whoever imports at a pace wait before each module."""

    def find_spec(self, *_: object, **__: object) -> None:
        """Wait; others find it."""
        breathe()


_pace: Final = _Pace()
# Somebody waits for what is held.
_hurry: Final = threading.Event()
_importing: Final = _Importing()


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """Hold this thread to its share of a core."""
    _hurry.clear()
    _pace.is_held = True
    if _importing not in sys.meta_path:
        sys.meta_path.insert(0, _importing)
    try:
        yield
    finally:
        _pace.is_held = False


def hurry() -> None:
    """Let whoever is held go on at once: a person waits, or needs the modules that it imports."""
    _hurry.set()


def breathe() -> None:
    """Wait, where this thread is held to its share, until it may go on."""
    _pace.wait()


def is_crowded() -> bool:
    """Tell whether every core that we may use is in use at this moment."""
    try:
        running = int(_LOAD.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return False
    # One of those that run reads this.
    return running > min(len(os.sched_getaffinity(0)), _limit())


def _limit() -> float:
    """Return how many cores a container may use."""
    try:
        quota, period = _LIMIT.read_text().split()
        return float(quota) / float(period)
    except (OSError, ValueError):
        return math.inf


def give_way(pid: int) -> None:
    """Let a process that leads a session of its own have only what others leave of the cores.

    Where the kernel shares the cores among sessions first, niceness counts within one alone.
    """
    _weigh(pid, niceness())


def insist(pid: int) -> None:
    """Let it have its part again: whoever holds what others wait for is quick."""
    _weigh(pid, 0)


def _weigh(pid: int, niceness: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
