"""Heavy work beside a job: in slices, and slowly while the job needs the cores.

A thread within ``unhurried`` takes a twentieth of a core as long as no core is idle: it waits
wherever it calls ``breathe``, and before each module that it imports. A process of its own is held
to as much by the kernel, see ``give_way``. ``WHYIDLE_CORE_SHARE`` says another share of a core; 1
is without a limit.
"""

from __future__ import annotations

import _imp
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
# A module that takes long to import is not waited for in full.
LONGEST_WAIT_SECONDS: Final = 2.0
# With each step of niceness the kernel gives a thread so much less than its neighbor has.
STEP: Final = 1.25
# Anybody but root may set the weight of a session ten times a second, all together.
PATIENCE_SECONDS: Final = 0.3
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
    """What a thread has taken of a core since it is held, and what of that it has waited for."""

    is_held = False
    _paid = 0.0

    def begin(self) -> None:
        """Hold it from now on: what it took before is not asked for."""
        self.is_held, self._paid = True, time.thread_time()

    def wait(self) -> None:
        """Wait until what was taken since the last call is earned, or a core is idle."""
        taken = time.thread_time() - self._paid
        if not self.is_held or taken < SLICE_SECONDS:
            return
        until = time.monotonic() + min(taken / share() - taken, LONGEST_WAIT_SECONDS)
        while (left := until - time.monotonic()) > 0 and not _hurry.is_set() and is_crowded():
            time.sleep(min(left, NAP_SECONDS))
        self._paid = time.thread_time()


class _Importing:
    """Finds nothing, and has whoever imports at a pace wait before each module."""

    def find_spec(self, *_: object, **__: object) -> None:
        """Wait; others find it. What is asked holds a lock that all imports need."""
        if not _pace.is_held:
            return
        _imp.release_lock()
        try:
            breathe()
        finally:
            _imp.acquire_lock()


_pace: Final = _Pace()
# Somebody waits for what is held.
_hurry: Final = threading.Event()
_importing: Final = _Importing()


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """Hold this thread to its share of a core."""
    _pace.begin()
    if _importing not in sys.meta_path:
        sys.meta_path.insert(0, _importing)
    try:
        yield
    finally:
        _pace.is_held = False


def hurry() -> None:
    """Let whoever is held go on at once: a person waits, or needs the modules that it imports."""
    _hurry.set()


def take_time() -> None:
    """Hold again whoever is to be held: nobody waits any more."""
    _hurry.clear()


def breathe() -> None:
    """Wait, where this thread is held to its share, until it may go on."""
    _pace.wait()


def is_crowded() -> bool:
    """Tell whether more threads run at this moment, of the machine, than we may use cores."""
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
    until = time.monotonic() + PATIENCE_SECONDS
    while not _weigh(pid, 0) and time.monotonic() < until:
        time.sleep(PATIENCE_SECONDS / 10)


def _weigh(pid: int, nice: int) -> bool:
    """Set the weight of a session; return whether that is done, or can not be."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
