"""The part ``reads``: values that the job reads back, for which the host waits for the device.

A method of ``torch.Tensor`` is C, and must stay the same for all who access it on the class: torch
itself passes it to classes of the user's, and compares it. So only an instance that calls it gets
our replacement; the class shows the original. What an optimizer reads in its own step, for each
parameter in each step, passes untimed.

Where torch warns at a read, the warning names the line of Python that runs then, and the job's
filters go by its file. So no line of ours runs around one that may warn: what Python itself calls
for ``float(x)`` is a chain of C, and where torch warns of every read, all of them pass.

Where there are very many, some of them are timed and stand for all; the others pass. A job may read
too often even for that, or its optimizer may. Then the part ends for good, and says why.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import count
from time import monotonic_ns

from ..downsampling import Downsampler
from ..framework import Part
from ..modules import Missing, need
from ..ring import drain
from ..timers import SECOND
from ..wire import LONGEST_FILE, LONGEST_NAME, SYNC_NS, SYNCS
from .patch import replace
from .read_hooks import IMPLICIT, LONG_NS, MANY, ONE_IN, Notes, explicit, implicit, timed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The methods that wait for a value, and their names in records.
METHODS = {
    "item": "item",
    "tolist": "tolist",
    "cpu": "cpu",
    "__bool__": "bool",
    "__float__": "float",
    "__int__": "int",
}
# What only waits for the device: the module or class, and the name of its function.
WAITS = (
    ("torch._C", (), "_cuda_synchronize"),
    ("torch.cuda.streams", ("Stream",), "synchronize"),
    ("torch.cuda.streams", ("Event",), "synchronize"),
)
WAIT = "synchronize"
# Reads between two seconds.
CAPACITY = 65_536
# Lines in one record.
MOST_PLACES = 30
SECONDS_BETWEEN = 5
# From so many in a second on, some are timed, while long ones among them are less than a share of
# the time: one that is rare and long stands for no other. Now and then all are timed again.
VERY_MANY = 4000
UNEVEN = 0.05
ALL_AGAIN = 16
# What one read costs the job, as measured; and the share of the time that all of them may.
COST_NS = 750
INSIDE_COST_NS = 250
SHARE = 0.004
# So many seconds in a row must be over it: a job may read a lot when it writes a checkpoint.
MOST_OVER = 3


class Reads(Part):
    """Counts the reads and times them."""

    name = "reads"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._took: deque[int] = deque(maxlen=CAPACITY)
        # Plain waits for the device, each of which is timed.
        self._waited: deque[int] = deque(maxlen=CAPACITY)
        self._downsampler = Downsampler(monotonic_ns(), VERY_MANY)
        # In turn: what was read, how long that took, how many it stands for, and where: file, line,
        # function. No tuples, which the job's garbage collector would count.
        self._sampled: deque[Any] = deque(maxlen=6 * 1024)
        # A list of one, which the hooks read.
        self._one_in = [1]
        self._passed = count()
        # The counter also counts our own readings of it.
        self._counter_reads = self._passed_before = self._over = self._seconds = 0
        self._total = self._ns = self._missed = 0
        self._last = monotonic_ns()
        self._places: dict[str, dict[tuple[str, int, str], list[float]]] = {}

    def begin(self) -> None:
        """Replace the methods."""
        tensor = need("torch", "Tensor")
        number = 0
        for name, kind in METHODS.items():
            original = need("torch._C", "TensorBase", name)
            # Somebody has replaced it: leave it alone.
            if name in vars(tensor) or type(original) is not MethodDescriptor:
                continue
            replace(self.hooks, tensor, name, self._of_tensors(original, kind))
            number += 1
        if not number:
            raise Missing("no method of torch.Tensor is where it was")
        for module, path, name in WAITS:
            try:
                original = need(module, *path, name)
            except Missing:
                # A build without CUDA.
                continue
            ours = timed(original, self._notes(WAIT, self._waited))
            replace(self.hooks, need(module, *path) if path else sys.modules[module], name, ours)

    def second(self, now: int) -> dict[str, int | None]:
        """Add up the reads, and check what they cost."""
        number, waits = len(self._took), len(self._waited)
        if CAPACITY in {number, waits}:
            self._missed += 1
        times = drain(self._took, number)
        weight = self._downsampler.second(now, number, may=self._are_even(times))
        self._ns += round(weight * sum(times)) + sum(drain(self._waited, waits))
        self._total += round(weight * number) + waits
        self._check_cost(now, number + waits)
        pop = self._sampled.popleft
        for _ in range(len(self._sampled) // 6):
            kind, took, stands = pop(), pop(), pop()
            stands *= 1 if kind == WAIT else weight
            self._add_sample(kind, (pop(), pop(), pop()), took, stands)
        self._seconds += 1
        if self._seconds % SECONDS_BETWEEN == 0:
            self._put_samples(now)
        return {SYNCS: self._total, SYNC_NS: self._ns}

    def facts(self) -> dict[str, Any]:
        """Return which share of the reads is timed."""
        return self._downsampler.facts("reads")

    def lost(self) -> int:
        """Return how often there were too many."""
        return self._missed

    def _are_even(self, times: list[int]) -> bool:
        """Tell whether some of them may stand for all."""
        long = sum(filter(LONG_NS.__lt__, times))
        return (self._seconds + 1) % ALL_AGAIN != 0 and long <= UNEVEN * sum(times)

    def _of_tensors(self, original: Any, kind: str) -> Any:
        passed, notes = self._passed.__next__, self._notes(kind, self._took)
        if original.__name__ in IMPLICIT:
            return implicit(original, notes, passed, self._downsampler)
        return explicit(original, timed(original, notes), passed, self._downsampler)

    def _notes(self, kind: str, took: deque[int]) -> Notes:
        return Notes(kind, took, self._sampled, self._one_in)

    def _check_cost(self, now: int, number: int) -> None:
        """Sample fewer where there are many; give up where counting them is felt."""
        passed = next(self._passed) - self._counter_reads
        self._counter_reads += 1
        inside_now, self._passed_before = passed - self._passed_before, passed
        span = max(1, now - self._last)
        self._last = now
        self._one_in[0] = ONE_IN if number * SECOND > MANY * span else 1
        if self._downsampler.is_on:
            inside_now += max(0, self._downsampler.came - number)
        cost = number * COST_NS + inside_now * INSIDE_COST_NS
        self._over = self._over + 1 if cost > SHARE * span else 0
        if self._over >= MOST_OVER:
            a_second = (number + inside_now) * SECOND // span
            raise Missing(f"counting {a_second} a second would be felt")

    def _add_sample(
        self, kind: str, at: tuple[str, int | None, str], took: int, weight: float
    ) -> None:
        places = self._places.setdefault(kind, {})
        file, line, name = at
        frame = file[-LONGEST_FILE:], line or 0, name[:LONGEST_NAME]
        if frame in places or len(places) < MOST_PLACES:
            found = places.setdefault(frame, [0, 0])
            found[0] += weight
            found[1] += took * weight

    def _put_samples(self, now: int) -> None:
        for kind, places in self._places.items():
            rows = [
                [round(number), round(ns), list(frame)] for frame, (number, ns) in places.items()
            ]
            self.context.put(["reads", now, kind, rows])
        self._places = {}


MethodDescriptor = type(str.join)
