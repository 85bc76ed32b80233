"""The part ``compilations``: what ``torch.compile`` compiles, for how long, and why again.

The compiler keeps metrics of its last compilations. They are read once a second; nothing in the job
is changed. What was compiled before we came is left out.
"""

from __future__ import annotations

import time

from ..framework import Part
from ..modules import loaded, need
from ..wire import COMPILE_NS, COMPILES, LONGEST_FILE, LONGEST_NAME, LONGEST_REASON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODULE = "torch._dynamo.utils"
KEPT = "_compilation_metrics"
# A longer duration, or an end longer ago, means that the clock was set meanwhile.
LONGEST_NS = 6 * 3600 * 1_000_000_000
LONGEST_AGO_NS = 60 * 1_000_000_000
# Of a reason that is a whole sentence, not a condition.
SENTENCE = ("mismatch", "expected", "deallocated", "invalidated")
NO_REASON = "Unable to find"


class Compilations(Part):
    """Totals, and each compilation as a record."""

    name = "compilations"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._last: Any = None
        self._totals = dict.fromkeys((COMPILES, COMPILE_NS), 0)
        self._missed = 0

    def begin(self) -> None:
        """Skip what was compiled before."""
        if loaded(MODULE) is not None:
            kept = need(MODULE, KEPT)
            self._last = kept[-1] if kept else None

    def second(self, now: int) -> dict[str, int | None]:
        """Put a record of each compilation since the last second."""
        # Nothing is compiled before the compiler is imported.
        for one in self._fresh() if loaded(MODULE) is not None else ():
            self._put(one, now)
        return dict(self._totals)

    def lost(self) -> int:
        """Return how often more were compiled than the compiler remembers."""
        return self._missed

    def _fresh(self) -> list[Any]:
        there = need(MODULE, KEPT)
        kept = list(there)
        last, self._last = self._last, kept[-1] if kept else None
        known = next((n for n in reversed(range(len(kept))) if kept[n] is last), None)
        # The job may have cleared it; full, it drops the oldest.
        if known is None and len(kept) == there.maxlen:
            self._missed += 1
        return kept if known is None else kept[known + 1 :]

    def _put(self, one: Any, now: int) -> None:
        took = _nanoseconds(one)
        self._totals[COMPILE_NS] += took
        name, file = getattr(one, "co_name", None), getattr(one, "co_filename", None)
        # Of a backward pass, or of one that was given up, only the time is counted.
        if type(name) is not str or type(file) is not str:
            return
        self._totals[COMPILES] += 1
        line = getattr(one, "co_firstlineno", None)
        where = [file[-LONGEST_FILE:], line if type(line) is int else 0, name[:LONGEST_NAME]]
        why = _reason(getattr(one, "recompile_reason", None))
        end = _ended(one, now)
        self.context.put(["compile", end, "torch", name[:LONGEST_NAME], took, why, where, False])


def _nanoseconds(one: Any) -> int:
    """Return how long it took; the field of older versions is in seconds."""
    micros = getattr(one, "duration_us", None)
    seconds = getattr(one, "entire_frame_compile_time_s", None)
    took = 0
    if type(micros) is int:
        took = micros * 1000
    elif type(seconds) is float:
        took = int(seconds * 1e9)
    return took if 0 <= took <= LONGEST_NS else 0


def _ended(one: Any, now: int) -> int:
    """Return when it ended on our clock: the compiler notes it on the wall clock."""
    micros = getattr(one, "end_time_us", None)
    if type(micros) is not int:
        return now
    ago = time.time_ns() - micros * 1000
    return now - ago if 0 <= ago <= LONGEST_AGO_NS else now


def _reason(text: Any) -> str | None:
    """Return what no longer held: the first line, without its number and source."""
    if type(text) is not str or not text or NO_REASON in text:
        return None
    first = text.split("\n", 1)[0].partition(" # ")[0]
    number, colon, rest = first.partition(": ")
    bare = (rest if colon and number.replace("/", "").isdigit() else first).strip()
    if not any(word in bare for word in SENTENCE):
        bare = f"no longer true: {bare}"
    return bare[:LONGEST_REASON]
