"""The part ``reads``: values that the job reads back, for which the host waits for the device.

A method of ``torch.Tensor`` is C, and must stay what it is for all who look at the class: torch
itself hands it to classes of the user's own, and compares it. So what lies there instead is only
seen by an instance that calls it; the class shows the original. What an optimizer reads of its own
steps, for each parameter in each step, is its own affair, and only passes.

What torch warns of at a read is told of the line of Python that runs then, and the job's filters go
by its file. So no line of ours runs around one that may warn: what Python itself calls for
``float(x)`` is a chain of C, and where torch warns of every read, they all pass.

A job may read far too often for that, or its optimizer. Then the part goes, for good, and says so.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections import deque
from functools import partial
from itertools import count, repeat
from time import monotonic_ns
from types import MethodType

from ..framework import Part
from ..modules import Missing, loaded, need
from ..takings import take
from ..wire import LONGEST_FILE, LONGEST_NAME, SYNC_NS, SYNCS
from .patch import hide, look_alike, replace
from .steps import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The methods that wait for a value, and what a person calls them.
METHODS = {
    "item": "item",
    "tolist": "tolist",
    "cpu": "cpu",
    "__bool__": "bool",
    "__float__": "float",
    "__int__": "int",
}
# Those that Python calls by itself, with nothing but the tensor.
IMPLICIT = {"__bool__", "__float__", "__int__"}
# What waits for the device alone: the module or class, and the name of its function.
WAITS = (
    ("torch._C", (), "_cuda_synchronize"),
    ("torch.cuda.streams", ("Stream",), "synchronize"),
    ("torch.cuda.streams", ("Event",), "synchronize"),
)
# Reads between two looks.
CAPACITY = 65_536
# Where there are more than so many in a second, one in so many tells where it was; and each that
# takes so long.
MANY = 100
ONE_IN = 17
LONG_NS = 1_000_000
# Of one record.
MOST_PLACES = 30
SECONDS_BETWEEN = 5
# What one costs the job, measured; what all of them may.
COST_NS = 750
INSIDE_COST_NS = 250
SHARE = 0.004
# So many seconds must be over it: a job may read a lot when it writes a checkpoint.
MOST_OVER = 3


class Reads(Part):
    """Counts the reads and times them."""

    name = "reads"

    def __init__(self, room: Any) -> None:
        super().__init__(room)
        self._took: deque[int] = deque(maxlen=CAPACITY)
        # By turns what was read, how long that took, how many it stands for, and where: file,
        # line, function. No tuples, which the job's garbage collector would count.
        self._sampled: deque[Any] = deque(maxlen=6 * 1024)
        # A list of one, which the hooks read.
        self._one_in = [1]
        self._passed = count()
        # The counter counts our own looks, too.
        self._looks = self._passed_before = self._over = self._seconds = 0
        self._total = self._ns = self._missed = 0
        self._last: int | None = None
        self._places: dict[str, dict[tuple[str, int, str], list[int]]] = {}

    def begin(self) -> None:
        """Take the places."""
        tensor = need("torch", "Tensor")
        number = 0
        for name, kind in METHODS.items():
            original = need("torch._C", "TensorBase", name)
            # Somebody has put something else there: it is not ours to know.
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
            ours = _timed(original, self._notes("synchronize"))
            replace(self.hooks, need(module, *path) if path else sys.modules[module], name, ours)

    def second(self, now: int) -> dict[str, int | None]:
        """Add up the reads, and see what they cost."""
        number = len(self._took)
        if number == CAPACITY:
            self._missed += 1
        self._ns += sum(take(self._took, number))
        self._total += number
        self._one_in[0] = ONE_IN if number > MANY else 1
        self._weigh(now, number)
        pop = self._sampled.popleft
        for _ in range(len(self._sampled) // 6):
            kind, took, weight = pop(), pop(), pop()
            self._place(kind, (pop(), pop(), pop()), took, weight)
        self._seconds += 1
        if self._seconds % SECONDS_BETWEEN == 0:
            self._tell(now)
        return {SYNCS: self._total, SYNC_NS: self._ns}

    def lost(self) -> int:
        """Return how often it was too much."""
        return self._missed

    def _of_tensors(self, original: Any, kind: str) -> Any:
        passed, notes = self._passed.__next__, self._notes(kind)
        if original.__name__ in IMPLICIT:
            return _implicit(original, notes, passed)
        return _explicit(original, _timed(original, notes), passed)

    def _notes(self, kind: str) -> _Notes:
        return _Notes(kind, self._took, self._sampled, self._one_in)

    def _weigh(self, now: int, number: int) -> None:
        """Give up when so many are read that counting them is felt."""
        passed = next(self._passed) - self._looks
        self._looks += 1
        inside_now, self._passed_before = passed - self._passed_before, passed
        span = None if self._last is None else now - self._last
        self._last = now
        if span is None:
            return
        cost = number * COST_NS + inside_now * INSIDE_COST_NS
        self._over = self._over + 1 if cost > SHARE * span else 0
        if self._over >= MOST_OVER:
            a_second = (number + inside_now) * 1_000_000_000 // max(span, 1)
            raise Missing(f"counting {a_second} a second would be felt")

    def _place(self, kind: str, at: tuple[str, int | None, str], took: int, weight: int) -> None:
        places = self._places.setdefault(kind, {})
        file, line, name = at
        frame = file[-LONGEST_FILE:], line or 0, name[:LONGEST_NAME]
        if frame in places or len(places) < MOST_PLACES:
            found = places.setdefault(frame, [0, 0])
            found[0] += weight
            found[1] += took * weight

    def _tell(self, now: int) -> None:
        for kind, places in self._places.items():
            rows = [[number, ns, list(frame)] for frame, (number, ns) in places.items()]
            self.room.put(["reads", now, kind, rows])
        self._places = {}


MethodDescriptor = type(str.join)


class _Notes:
    """What the hooks of one kind of read do with what they saw."""

    def __init__(self, kind: str, took: deque[int], sampled: deque[Any], one_in: list[int]) -> None:
        self.took = took.append
        self.one_in = one_in
        self.number = count().__next__
        self.sample = _sampling(kind, sampled, one_in)


def _sampling(kind: str, sampled: deque[Any], one_in: list[int]) -> Callable[[int, int], None]:
    put, length, frame = sampled.extend, sampled.__len__, sys._getframe

    def sample(ns: int, above: int) -> None:
        # A thread may have begun with nothing but this.
        at = frame().f_back
        while above and at is not None:
            at = at.f_back
            above -= 1
        if at is not None:
            code = at.f_code
            weight = 1 if ns > LONG_NS else one_in[0]
            put((kind, ns, weight, code.co_filename, at.f_lineno, code.co_name))
            if length() > 6 * MANY:
                # Sooner than the next look.
                one_in[0] = ONE_IN

    hide(sample)
    return sample


def _timed(original: Callable[..., Any], notes: _Notes) -> Callable[..., Any]:
    clock, took, number = monotonic_ns, notes.took, notes.number
    one_in, sample = notes.one_in, notes.sample

    def read(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            # To hand on what is not there costs as much as all the rest.
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            ns = clock() - began
            took(ns)
            if ns > LONG_NS or not number() % one_in[0]:
                sample(ns, 1)

    hide(read)
    look_alike(read, original)
    return read


def _explicit(original: Any, read: Callable[..., Any], passed: Callable[[], int]) -> Any:
    names = loaded("torch._C") or {}
    traced = names.get("_get_tracing_state", bool)
    warns = names.get("_cuda_get_sync_debug_mode", bool)

    def either() -> bool:
        return bool(traced() or warns())

    hide(either)
    # A build without CUDA never warns.
    must_pass = traced if warns is bool else either
    return _seen_by_instances(original, partial(MethodType, read), must_pass, passed)


def _implicit(original: Any, notes: _Notes, passed: Callable[[], int]) -> Any:
    clock, took, number = monotonic_ns, notes.took, notes.number
    one_in, sample = notes.one_in, notes.sample
    # The time, again and again.
    times = iter(monotonic_ns, -1)

    def note(began: int, result: Any) -> Any:
        ns = clock() - began
        took(ns)
        if ns > LONG_NS or not number() % one_in[0]:
            sample(ns, 1)
        return result

    def chain(tensor: Any) -> Callable[[], Any]:
        return map(note, times, map(original, repeat(tensor))).__next__

    hide(note, chain)
    return _seen_by_instances(original, chain, bool, passed)


def _seen_by_instances(
    original: Any,
    ours: Callable[[Any], Callable[..., Any]],
    must_pass: Callable[[], Any],
    passed: Callable[[], int],
) -> Any:
    bind, begun, ident = original.__get__, inside, get_ident

    class Read:
        """What an instance calls is timed; what the class shows is the original."""

        __slots__ = ()

        def __get__(self, tensor: Any, kind: Any = None) -> Any:
            if tensor is None:
                return original
            if begun and ident() in begun:
                passed()
                return bind(tensor)
            return bind(tensor) if must_pass() else ours(tensor)

    hide(Read.__get__)
    return Read()
