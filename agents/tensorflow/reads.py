"""Values that the job's main thread reads: how often, how long, and where in its code.

``.numpy()``, ``float(loss)``, ``np.asarray(x)`` and ``if loss > 0:`` all go through one method.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from time import monotonic_ns

from ..counted_reads import SAMPLE_NS, CountedReads
from ..jax.internals import own, replace_in_class
from ..lines import lines
from ..modules import need
from .internals import dress, folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..lines import Line

MODULE = "tensorflow.python.framework.ops"
KIND = "_EagerTensorBase"


class Reads(CountedReads):
    """Hooks what all of them go through."""

    def begin(self) -> None:
        """Wrap the method that fetches a value."""
        kind = need(MODULE, KIND)
        was = own(kind, "_numpy")
        on = self.prepare()
        ours = _reading(*(was, on, self.context.main, self.figures.extend, self.samples.append))
        replace_in_class(self.hooks, kind, "_numpy", ours)


def _reading(
    original: Callable[[Any], Any],
    on: list[bool],
    main: int | None,
    note: Callable[[tuple[int, int]], None],
    sample: Callable[[tuple[int, list[Line]]], None],
) -> Any:
    clock, caller, ident, due = monotonic_ns, sys._getframe, get_ident, [0]
    skipped = folders()

    def read(tensor: Any) -> Any:
        if not on or (main is not None and ident() != main):
            return original(tensor)
        began = clock()
        value = original(tensor)
        ended = clock()
        note((ended - began, getattr(value, "nbytes", 0)))
        if ended > due[0]:
            due[0] = ended + SAMPLE_NS
            sample((ended - began, lines(caller(1), skipped)))
        return value

    return dress(read, original)
