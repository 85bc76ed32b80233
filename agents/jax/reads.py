"""Values that the job reads back from its devices: how often, how long, and where in its code.

``float(loss)``, ``numpy.asarray(x)``, ``jax.device_get`` and whatever else needs the value of an
array go through one property, which caches what it has fetched: only fetches count.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from time import monotonic_ns

from ..counted_reads import SAMPLE_NS, CountedReads
from ..lines import lines
from ..modules import Missing, need
from .internals import folder, own, replace_in_class, users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..lines import Line

MODULE = "jax._src.array"
KIND = "ArrayImpl"


class Reads(CountedReads):
    """Hooks what all of them go through."""

    def begin(self) -> None:
        """Replace the property."""
        kind = need(MODULE, KIND)
        need(MODULE, KIND, "_npy_value")
        was = own(kind, "_value")
        if not isinstance(was, property) or was.fget is None:
            raise Missing(f"no property {MODULE}.{KIND}._value")
        on = self.prepare()
        ours = _reading(was.fget, on, self.figures.extend, self.samples.append, folder())
        replace_in_class(self.hooks, kind, "_value", property(ours, doc=was.__doc__))


def _reading(
    original: Callable[[Any], Any],
    on: list[bool],
    note: Callable[[tuple[int, int]], None],
    sample: Callable[[tuple[int, list[Line]]], None],
    jax: str,
) -> Callable[[Any], Any]:
    """Return the getter; nothing of ours in it can fail, and what the original raises goes on."""
    clock, caller, due = monotonic_ns, sys._getframe, [0]
    see, here = users.__setitem__, get_ident

    def read(array: Any) -> Any:
        if not on or array._npy_value is not None:
            return original(array)
        began = clock()
        value = original(array)
        ended = clock()
        note((ended - began, getattr(value, "nbytes", 0)))
        see(here(), ended)
        if ended > due[0]:
            due[0] = ended + SAMPLE_NS
            sample((ended - began, lines(caller(1), jax)))
        return value

    return read
