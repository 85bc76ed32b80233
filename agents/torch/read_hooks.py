"""The hooks of the part ``reads``: what replaces a method of ``torch.Tensor``.

An optimizer's own reads during its step pass untimed, and so do the reads that are left out where
there are very many. A step that is given a closure runs the job's code inside: gradients are on
there, and off in the rest of the step.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from functools import partial
from itertools import count, repeat
from time import monotonic_ns
from types import MethodType

from ..downsampling import BURST, ROUND, Downsampler
from ..modules import loaded
from .patch import copy_names, hide
from .steps import GIVEN, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable
    from typing import Any

# Those that Python calls by itself, with nothing but the tensor.
IMPLICIT = {"__bool__", "__float__", "__int__"}
# Where there are more than so many in a second, one in so many is sampled; and each that takes so
# long.
MANY = 30
ONE_IN = 17
LONG_NS = 1_000_000


class Notes:
    """What the hooks of one kind of read note."""

    def __init__(self, kind: str, took: deque[int], sampled: deque[Any], one_in: list[int]) -> None:
        self.took = took.append
        self.one_in = one_in
        self.number = count().__next__
        self.sample = _sampling(kind, sampled, one_in)


def _sampling(kind: str, sampled: deque[Any], one_in: list[int]) -> Callable[[int, int], None]:
    put, length, frame = sampled.extend, sampled.__len__, sys._getframe

    def sample(ns: int, above: int) -> None:
        # A thread may have begun with this call.
        at = frame().f_back
        while above and at is not None:
            at = at.f_back
            above -= 1
        if at is not None:
            code = at.f_code
            weight = 1 if ns > LONG_NS else one_in[0]
            put((kind, ns, weight, code.co_filename, at.f_lineno, code.co_name))
            if length() > 6 * MANY:
                # Before the next second does.
                one_in[0] = ONE_IN

    hide(sample)
    return sample


def timed(original: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    """Return a function that calls the original, and notes how long that took."""
    clock, took, number = monotonic_ns, notes.took, notes.number
    one_in, sample = notes.one_in, notes.sample

    def read(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            # Passing on empty keyword arguments would cost as much as all the rest.
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            ns = clock() - began
            took(ns)
            if ns > LONG_NS or not number() % one_in[0]:
                sample(ns, 1)

    hide(read)
    copy_names(read, original)
    return read


def explicit(
    original: Any, read: Callable[..., Any], passed: Callable[[], int], downsampler: Downsampler
) -> Any:
    """Return what replaces a method that is called by its name."""
    names = loaded("torch._C") or {}
    traced = names.get("_get_tracing_state", bool)
    warns = names.get("_cuda_get_sync_debug_mode", bool)

    def either() -> bool:
        return bool(traced() or warns())

    hide(either)
    # A build without CUDA never warns.
    must_pass = traced if warns is bool else either
    return _seen_by_instances(original, partial(MethodType, read), must_pass, passed, downsampler)


def implicit(
    original: Any, notes: Notes, passed: Callable[[], int], downsampler: Downsampler
) -> Any:
    """Return what replaces a method that Python calls by itself."""
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
    return _seen_by_instances(original, chain, bool, passed, downsampler)


def _seen_by_instances(
    original: Any,
    ours: Callable[[Any], Callable[..., Any]],
    must_pass: Callable[[], Any],
    passed: Callable[[], int],
    downsampler: Downsampler,
) -> Any:
    bind, begun, ident = original.__get__, inside, get_ident
    is_grad_on = (loaded("torch") or {}).get("is_grad_enabled", bool)
    number, active = downsampler.number, downsampler.active

    class Read:
        """Times what an instance calls; the class shows the original."""

        __slots__ = ()

        def __get__(self, tensor: Any, kind: Any = None) -> Any:
            if tensor is None:
                return original
            if begun and (at := begun.get(ident())) and (at != GIVEN or not is_grad_on()):
                passed()
                return bind(tensor)
            if active and number() % ROUND >= BURST:
                return bind(tensor)
            return bind(tensor) if must_pass() else ours(tensor)

    hide(Read.__get__)
    return Read()
