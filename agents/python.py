"""The probe ``python``: garbage collector, memory, threads, and where the main thread is.

It also watches what the agent costs, and samples less often where that is too much.
"""

from __future__ import annotations

import os
import sys
import time

from .facts import NO_GIL, has_gil
from .gc_pauses import GcPauses
from .marks import Marks
from .stacks import StackSampler
from .timers import EARLY, LATE, SECOND, Timer
from .wire import GC_COLLECTIONS, GC_NS, PHASE_AT, PYTHON_THREADS, RSS_PEAK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import ProbeContext

# The share of a core that the agent's thread may take, measured over windows.
BUDGET_SHARE = 0.005
WINDOW_NS = 5 * SECOND
# One window may hold a garbage collection of the job's that happened to run on our thread.
WINDOWS = 2
# A few hundred a minute show where it is; each wakes the thread, and that is what costs.
SAMPLES_A_SECOND = 5
# With every second stack sample.
LOOK_AT_PAUSES_NS = 2 * SECOND // SAMPLES_A_SECOND
# Slower than this the stacks say nothing.
SLOWEST_SAMPLES_A_SECOND = 2

# Reading the peak takes three system calls, which is felt; nothing is lost in between. The older
# the probe, the rarer: after this share of its age, up to this.
_PEAK_SHARE = 1 / 8
_PEAK_LONGEST_NS = 5 * SECOND
# A tick that comes a little early must not miss one.
_PEAK_EARLY_NS = SECOND // 2
_KIB = 1024
_PEAK_LINE = b"\nVmHWM:"
_MOST_BYTES = 8192


def refusal() -> str | None:
    """Say why the probe cannot run on this Python; ``None`` when it can."""
    if sys.implementation.name != "cpython":
        return f"it knows CPython, and this is {sys.implementation.name}"
    if not has_gil():
        return NO_GIL
    return None


class PythonProbe:
    """The probe, from on to off."""

    name = "python"

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._pauses = GcPauses()
        self._marks = Marks(context)
        self._overhead = OverheadMeter()
        self._peak = PeakMemory(time.monotonic_ns())
        self._stacks = (
            StackSampler(context.main, time.monotonic_ns(), self._marks.phase)
            if context.main is not None
            else None
        )
        self._sampling: Timer | None = None

    def begin(self) -> str | None:
        """Install everything; returns why not, where it cannot."""
        why = refusal()
        if why is not None:
            return why
        context = self._context
        self._pauses.install(context.hooks)
        context.every(Timer(LOOK_AT_PAUSES_NS, self._take_pauses, EARLY, LATE))
        context.every(Timer(WINDOW_NS, self._check_overhead, EARLY, LATE))
        if self._stacks is not None:
            self._stacks.open(context.hooks)
            self._sampling = Timer(SECOND // SAMPLES_A_SECOND, self._stacks.sample)
            context.every(self._sampling)
        return None

    def gauges(self, now: int) -> dict[str, int | None]:
        """Return the figures of this second, and put the record of its stacks."""
        self._take_pauses(now)
        self._marks.look()
        threads = None
        if self._stacks is not None:
            threads = self._stacks.threads or None
            record = self._stacks.record(now)
            if record is not None:
                self._context.put(record)
        return {
            RSS_PEAK_BYTES: self._peak.read(now),
            PYTHON_THREADS: threads,
            PHASE_AT: self._marks.address(),
            GC_NS: self._pauses.total_ns,
            GC_COLLECTIONS: self._pauses.collections,
        }

    def lost(self) -> int:
        """Return how often something was missed."""
        return self._pauses.lost

    def _take_pauses(self, _now: int) -> None:
        for record in self._pauses.take():
            self._context.put(record)

    def _check_overhead(self, _now: int) -> None:
        """Sample less often when the thread costs too much, and in the end not at all."""
        if self._sampling is None or not self._overhead.is_over():
            return
        cost = f"the agent took more than {BUDGET_SHARE:.1%} of a core"
        self._sampling.period *= 2
        samples = SECOND / self._sampling.period
        if samples < SLOWEST_SAMPLES_A_SECOND:
            self._context.timers.remove(self._sampling)
            self._sampling = None
            self._context.tell(f"no stack samples: {cost}")
        else:
            self._context.tell(f"{samples:g} stack samples a second: {cost}")


class OverheadMeter:
    """Whether the thread that asks costs more than it may."""

    def __init__(self) -> None:
        self._cpu = time.thread_time_ns()
        self._over = 0

    def is_over(self) -> bool:
        """Tell once a window whether several windows in a row were over the budget."""
        cpu = time.thread_time_ns()
        # A new thread begins at nothing.
        used = cpu - self._cpu if cpu >= self._cpu else cpu
        self._cpu = cpu
        self._over = self._over + 1 if used > BUDGET_SHARE * WINDOW_NS else 0
        if self._over < WINDOWS:
            return False
        self._over = 0
        return True


class PeakMemory:
    """The most memory that the job has held, as the kernel remembers it; read now and then."""

    def __init__(self, now: int) -> None:
        self._began = self._due = now
        self._found: int | None = None

    def read(self, now: int) -> int | None:
        """Return the bytes at the last reading, which may be this one."""
        if now >= self._due:
            found = _peak_bytes()
            # A job without a free descriptor has still held what it held.
            self._found = self._found if found is None else found
            age = now - self._began
            self._due = now + min(_PEAK_LONGEST_NS, int(age * _PEAK_SHARE)) - _PEAK_EARLY_NS
        return self._found


def _peak_bytes() -> int | None:
    """Return the kernel's mark of this program's own memory.

    ``getrusage`` gives a program that was started by a bigger one the peak of its parent.
    """
    try:
        number = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(number, _MOST_BYTES)
    finally:
        os.close(number)
    _, found, rest = text.partition(_PEAK_LINE)
    words = rest.split(None, 1)
    return int(words[0]) * _KIB if found and words and words[0].isdigit() else None
