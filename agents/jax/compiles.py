"""What the job compiles: which function, for how long, why again, and the user's own line.

JAX calls its listeners on the thread that compiles, at the end of each phase: tracing, lowering,
compiling. A call of what is compiled already calls no listener, and costs nothing.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns

from ..code_owner import CodeOwner
from ..framework import Part
from ..lines import users
from ..modules import Missing, need
from ..phases import Phases
from ..retraces import Retraces
from ..wire import COMPILE_HITS, COMPILE_NS, COMPILES, LONGEST_NAME
from .internals import folder
from .internals import users as users_of_jax
from .listeners import DURATIONS, EVENTS, Listener, durations, hits, traced_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from .listeners import Heard

DISPATCH = "jax._src.dispatch"
PHASES = ("JAXPR_TRACE_EVENT", "JAXPR_TO_MLIR_MODULE_EVENT", "BACKEND_COMPILE_EVENT")
HIT = "/jax/compilation_cache/cache_hits"
# Events between two seconds.
CAPACITY = 4096
# Records of one second: the longest. Totals count all.
MOST_RECORDS = 30
MOST_THREADS = 64
# The agent's time for reasons in one second.
REASONS_NS = 2_000_000


class Compiles(Part):
    """Totals, and each compilation as a record."""

    name = "compilations"

    def begin(self) -> None:
        """Register two listeners."""
        self._events = (
            need(DISPATCH, PHASES[0]),
            need(DISPATCH, PHASES[1]),
            need(DISPATCH, PHASES[2]),
        )
        self._heard: deque[Heard] = deque(maxlen=CAPACITY)
        self._lost = 0
        self._owner = CodeOwner()
        self._retraces = Retraces(folder())
        self._reasons_ns = 0
        self._threads: dict[int, Phases] = {}
        self._totals = dict.fromkeys((COMPILES, COMPILE_NS, COMPILE_HITS), 0)
        note, on = self._heard.append, [True]
        self.hooks.add(on.clear)
        ours = durations(self._events, self._code(), folder(), note, on)
        self._listeners = [
            Listener(self.hooks, DURATIONS, ours),
            Listener(self.hooks, EVENTS, hits(HIT, note, on)),
        ]

    def second(self, _now: int) -> dict[str, int | None]:
        """Add up what was heard; the longest compilations become records."""
        for listener in self._listeners:
            listener.check()
        number = len(self._heard)
        self._lost += number == CAPACITY
        self._reasons_ns = 0
        found = [self._take(self._heard.popleft()) for _ in range(number)]
        records = [record for record in found if record is not None]
        if len(records) > MOST_RECORDS:
            records = sorted(records, key=_took, reverse=True)[:MOST_RECORDS]
            records.sort(key=_ended)
        for record in records:
            self.context.put(record)
        return dict(self._totals)

    def lost(self) -> int:
        """Return how often there were more events than room."""
        return self._lost

    def _code(self) -> CodeType | None:
        try:
            return traced_code()
        except Missing as error:
            self.context.tell(f"no reasons of compilations: {error}")
            return None

    def _take(self, heard: Heard) -> list[Any] | None:
        """Add one event; returns the record of the compilation that it ends, if any."""
        event, seconds, name, end, thread, more = heard
        users_of_jax[thread] = end
        if thread not in self._threads and len(self._threads) >= MOST_THREADS:
            self._threads.clear()
        phases = self._threads.setdefault(thread, Phases())
        if event == HIT:
            phases.hit = True
            return None
        self._totals[COMPILE_NS] += phases.add(end - max(0, int(seconds * 1e9)), end)
        function = _bare(str(name))
        if event == self._events[0]:
            phases.traced = function, self._reason(more)
        return self._end(phases, function, end, more) if event == self._events[2] else None

    def _end(self, phases: Phases, function: str, end: int, more: Any) -> list[Any]:
        cached, phases.hit = phases.hit, False
        self._totals[COMPILE_HITS if cached else COMPILES] += 1
        traced, reason = phases.traced
        phases.traced = "", None
        caller = users(more or [], self._owner)
        took = phases.take()
        if traced != function:
            reason = None
        return ["compile", end, "jax", function[:LONGEST_NAME], took, reason, caller, cached]

    def _reason(self, more: Any) -> str | None:
        if more is None or self._reasons_ns > REASONS_NS:
            return None
        began = monotonic_ns()
        reason = self._retraces.reason(more)
        self._reasons_ns += monotonic_ns() - began
        return reason


def _took(record: list[Any]) -> int:
    return int(record[4])


def _ended(record: list[Any]) -> int:
    return int(record[1])


def _bare(name: str) -> str:
    """Return the function's own name: "step" for "jit(step)"."""
    head, bracket, rest = name.partition("(")
    return rest[:-1] if bracket and head.isidentifier() and rest.endswith(")") else name
