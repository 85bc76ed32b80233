"""The probe ``python``: garbage collector, memory, threads, and where the main thread is."""

from __future__ import annotations

import sys
import time

from .duties import EARLY, LATE, SECOND, Duty
from .gil import NO_GIL, has_gil
from .marks import Marks
from .memory import Peak
from .meter import BUDGET_SHARE, WINDOW_NS, Meter
from .pauses import Pauses
from .stacks import Stacks
from .wire import GC_COLLECTIONS, GC_NS, PYTHON_THREADS, RSS_PEAK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .room import Room

# A few hundred a minute say where it is; each wakes the thread up, and that is what costs.
SAMPLES_A_SECOND = 5
# With every other sample.
LOOK_AT_PAUSES_NS = 2 * SECOND // SAMPLES_A_SECOND
# Slower than this the stacks say nothing.
SLOWEST_SAMPLES_A_SECOND = 2


def refusal() -> str | None:
    """Say why the probe cannot run on this Python; ``None`` when it can."""
    if sys.implementation.name != "cpython":
        return f"it knows CPython, and this is {sys.implementation.name}"
    if not has_gil():
        return NO_GIL
    return None


class PythonProbe:
    """One life of the probe."""

    name = "python"

    def __init__(self, room: Room) -> None:
        self._room = room
        self._pauses = Pauses()
        self._marks = Marks(room)
        self._meter = Meter()
        self._peak = Peak(time.monotonic_ns())
        self._stacks = Stacks(room.main, time.monotonic_ns()) if room.main is not None else None
        self._sampling: Duty | None = None

    def begin(self) -> str | None:
        """Install everything; returns why not, where it cannot."""
        why = refusal()
        if why is not None:
            return why
        room = self._room
        self._pauses.install(room.hooks)
        room.every(Duty(LOOK_AT_PAUSES_NS, self._take_pauses, EARLY, LATE))
        room.every(Duty(WINDOW_NS, self._weigh, EARLY, LATE))
        if self._stacks is not None:
            self._sampling = Duty(SECOND // SAMPLES_A_SECOND, self._stacks.look)
            room.every(self._sampling)
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
                self._room.put(record)
        return {
            RSS_PEAK_BYTES: self._peak.look(now),
            PYTHON_THREADS: threads,
            GC_NS: self._pauses.total_ns,
            GC_COLLECTIONS: self._pauses.collections,
        }

    def lost(self) -> int:
        """Return how often something was missed."""
        return self._pauses.lost

    def _take_pauses(self, _now: int) -> None:
        for record in self._pauses.take():
            self._room.put(record)

    def _weigh(self, _now: int) -> None:
        """Sample less often when the thread costs too much, and in the end not at all."""
        if self._sampling is None or not self._meter.is_over():
            return
        cost = f"the agent took more than {BUDGET_SHARE:.1%} of a core"
        self._sampling.period *= 2
        samples = SECOND / self._sampling.period
        if samples < SLOWEST_SAMPLES_A_SECOND:
            self._room.duties.remove(self._sampling)
            self._sampling = None
            self._room.tell(f"no stack samples: {cost}")
        else:
            self._room.tell(f"{samples:g} stack samples a second: {cost}")
