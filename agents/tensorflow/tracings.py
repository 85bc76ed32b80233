"""What TensorFlow traces into graphs: which function, for how long, why again, and the user's line.

A call of what was traced already does not come here, and costs nothing.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections import deque
from contextlib import suppress
from time import monotonic_ns
from weakref import ref

from ..code_owner import CodeOwner
from ..framework import Part
from ..jax.internals import replace_in_module
from ..lines import lines, users
from ..modules import Missing, need
from ..phases import Phases
from ..retraces import Retraces
from ..wire import COMPILE_NS, COMPILES, LONGEST_NAME
from .internals import dress, folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..lines import Line
    from ..retraces import Traced

    # When it began and ended, the thread, the function's name, what it was traced for, the lines.
    Heard = tuple[int, int, int, Any, Traced, list[Line]]

MODULE = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
NAME = "_create_concrete_function"
ARGUMENTS = ("function_type", "type_context", "func_graph", "tracing_options")
# Tracings between two seconds, and the records of one second: the longest. Totals count all.
CAPACITY = 4096
MOST_RECORDS = 30
MOST_THREADS = 64
# The agent's time for reasons in one second.
REASONS_NS = 2_000_000
LONGEST_VALUE = 40
# Functions around a function.
MOST_WRAPPED = 32
# Whose ``repr`` runs nothing of the job's.
PLAIN = (bool, float, complex, type(None))
OTHER = (
    "all arguments are as before: what it captures, or the device or strategy it runs under changed"
)


class Tracings(Part):
    """Totals, and each tracing as a record."""

    name = "tracings"

    def begin(self) -> None:
        """Wrap the function that builds a graph."""
        original = need(MODULE, NAME)
        code = getattr(original, "__code__", None)
        if code is None or code.co_varnames[: code.co_argcount] != ARGUMENTS:
            raise Missing(f"{MODULE}.{NAME} takes other arguments")
        self._heard: deque[Heard] = deque(maxlen=CAPACITY)
        self._lost = 0
        self._owner = CodeOwner()
        self._retraces = Retraces(other=OTHER)
        self._threads: dict[int, Phases] = {}
        self._count = self._ns = 0
        on = [True]
        self.hooks.add(on.clear)
        ours = _tracing(original, on, self._heard.append, folders())
        replace_in_module(self.hooks, MODULE, NAME, ours)

    def second(self, _now: int) -> dict[str, int | None]:
        """Add up what was heard; the longest tracings become records."""
        number = len(self._heard)
        self._lost += number == CAPACITY
        self._spent_ns = 0
        found = [self._take(self._heard.popleft()) for _ in range(number)]
        found = sorted(sorted(found, key=_took)[-MOST_RECORDS:], key=_ended)
        for record in found:
            self.context.put(record)
        return {COMPILES: self._count, COMPILE_NS: self._ns}

    def lost(self) -> int:
        """Return how often there were more tracings than room."""
        return self._lost

    def _take(self, heard: Heard) -> list[Any]:
        began, ended, thread, name, traced, where = heard
        if thread not in self._threads and len(self._threads) >= MOST_THREADS:
            self._threads.clear()
        self._ns += self._threads.setdefault(thread, Phases()).add(began, ended)
        self._count += 1
        caller = users(where, self._owner)
        return [
            *("compile", ended, "tensorflow", str(name)[:LONGEST_NAME], ended - began),
            *(self._reason(traced), caller, False),
        ]

    def _reason(self, traced: Traced) -> str | None:
        if self._spent_ns > REASONS_NS:
            return None
        began = monotonic_ns()
        place, function, names, kinds = traced
        words = [_words(each) for each in kinds]
        reason = self._retraces.reason((place, function, names, words))
        self._spent_ns += monotonic_ns() - began
        return reason


def _tracing(
    original: Callable[..., Any],
    on: list[bool],
    note: Callable[[Heard], None],
    skipped: tuple[str, ...],
) -> Any:
    clock, ident, caller = monotonic_ns, get_ident, sys._getframe

    def trace(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
        began = clock()
        made = original(function_type, type_context, func_graph, tracing_options)
        if on:
            ended = clock()
            # What the function is, the job's own objects say: those may fail, and the job must not.
            with suppress(Exception):
                what = _what(function_type, tracing_options)
                name = getattr(tracing_options, "name", "?")
                note((began, ended, ident(), name, what, lines(caller(1), skipped)))
        return made

    return dress(trace, original)


def _what(function_type: Any, options: Any) -> Traced:
    """Return which function it is, and what for: names and types, no values of tensors."""
    function: Any = getattr(options, "python_function", None)
    for _ in range(MOST_WRAPPED):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        # AutoGraph puts its own into the one and leaves the other.
        other = getattr(function, "__original_wrapped__", None)
        function = inner if other is None else other
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    place = (
        getattr(code, "co_filename", ""),
        getattr(code, "co_firstlineno", 0),
        # Variables are made in the first call: the function is then traced twice.
        str(getattr(options, "scope_type", "")),
    )
    known = ref(function) if getattr(type(function), "__weakrefoffset__", 0) else None
    parameters = getattr(function_type, "parameters", None) or {}
    kinds = [getattr(each, "type_constraint", None) for each in parameters.values()]
    return place, known, list(parameters), kinds


def _words(kind: Any) -> str:
    """Return a type as "float32[8,?]", a Python value as "the Python value 3"."""
    name = type(kind).__name__
    if name == "TensorSpec":
        shape, dtype = getattr(kind, "shape", None), getattr(kind, "dtype", None)
        rank = getattr(shape, "rank", None)
        sizes = None if shape is None or rank is None else shape.as_list()
        inside = "..." if sizes is None else ",".join("?" if n is None else str(n) for n in sizes)
        return f"{getattr(dtype, 'name', '?')}[{inside}]"
    if name == "Literal":
        return f"the Python value {_value(getattr(kind, 'value', None))}"
    if name == "Weakref":
        return _object(getattr(kind, "_ref", None))
    inner = getattr(kind, "components", None) or getattr(kind, "mapping", None)
    if isinstance(inner, dict):
        inner = tuple(inner.values())
    if isinstance(inner, tuple):
        return f"({', '.join(map(_words, inner))})"
    return name


def _value(value: Any) -> str:
    """Return a value as Python writes it, in short; of a type of the job's own its name."""
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value[:LONGEST_VALUE])[:LONGEST_VALUE]
    if kind is int:
        return repr(value) if value.bit_length() <= 4 * LONGEST_VALUE else "of very many digits"
    return repr(value)[:LONGEST_VALUE] if kind in PLAIN else f"of type {kind.__name__}"


def _object(known: Any) -> str:
    """Return which object a weak reference is to: for each new one another graph is made."""
    found = known() if type(known) is ref else None
    if found is None:
        # No two of these are one: TensorFlow makes a reference for each call.
        return f"an object that is gone ({id(known):#x})"
    return f"the {type(found).__name__} at {id(found):#x}"


def _took(record: list[Any]) -> int:
    return int(record[4])


def _ended(record: list[Any]) -> int:
    return int(record[1])
