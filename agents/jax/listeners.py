"""Our listeners among JAX's own, and how they are unregistered."""

from __future__ import annotations

import sys
from _thread import get_ident
from time import monotonic_ns
from weakref import ref

from ..lines import lines
from ..modules import Missing, loaded, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any, Union

    from ..hooks import Hooks
    from ..lines import Line
    from ..retraces import Traced

    # The event, its seconds, the function, its end, the thread, and more of its kind.
    Heard = tuple[str, float, Any, int, int, Union[list[Line], Traced, None]]

MODULE = "jax._src.monitoring"
# How each kind is registered and unregistered, the oldest name last, and the list that it is in.
DURATIONS = (
    "register_event_duration_secs_listener",
    ("unregister_event_duration_listener", "_unregister_event_duration_listener_by_callback"),
    "_event_duration_secs_listeners",
)
EVENTS = (
    "register_event_listener",
    ("unregister_event_listener", "_unregister_event_listener_by_callback"),
    "_event_listeners",
)
# Frames from a listener to what traces.
NEAR = 6


class Listener:
    """One listener in the job; its function does nothing once it is undone."""

    def __init__(self, hooks: Hooks, names: tuple[str, tuple[str, str], str], ours: Any) -> None:
        how, self._ends, self._list = names
        self._ours = ours
        register = need(MODULE, how)
        hooks.add(self._unregister)
        register(ours)

    def check(self) -> None:
        """Raise Missing where the job has removed it."""
        found = (loaded(MODULE) or {}).get(self._list)
        if isinstance(found, list) and self._ours not in found:
            raise Missing("the job cleared the listeners of jax.monitoring")

    def _unregister(self) -> None:
        names = loaded(MODULE) or {}
        found = names.get(self._list)
        if isinstance(found, list) and self._ours not in found:
            return
        for name in self._ends:
            if name in names:
                names[name](self._ours)
                return
        if isinstance(found, list):
            found.remove(self._ours)


def traced_code() -> CodeType:
    """Return the code of the function of JAX that traces, which has what we need by these names."""
    code: CodeType = need("jax._src.pjit", "_trace_for_jit", "__code__")
    missing = {"fun", "dbg", "avals"} - set(code.co_varnames[: code.co_argcount])
    if missing:
        raise Missing(f"no argument {min(missing)} of jax._src.pjit._trace_for_jit")
    return code


def durations(
    events: tuple[str, str, str],
    code: CodeType | None,
    skipped: str,
    note: Callable[[Heard], None],
    on: list[bool],
) -> Callable[..., None]:
    """Return a listener for phases; nothing in it can fail, for it would fail in the job's call."""
    caller, clock = sys._getframe, monotonic_ns
    tracing, _, compiling = events

    def heard(event: str, duration: float, *_: Any, **facts: Any) -> None:
        if not on or event not in events:
            return
        more: list[Line] | Traced | None = None
        if event == compiling:
            more = lines(caller(1), skipped)
        elif event == tracing and code is not None:
            more = _traced(caller(1), code)
        note((event, duration, facts.get("fun_name"), clock(), get_ident(), more))

    return heard


def hits(hit: str, note: Callable[[Heard], None], on: list[bool]) -> Callable[..., None]:
    """Return a listener for one event without a duration."""
    clock = monotonic_ns

    def heard(event: str, *_: Any, **_facts: Any) -> None:
        if on and event == hit:
            note((event, 0.0, None, clock(), get_ident(), None))

    return heard


def _traced(frame: FrameType | None, code: CodeType) -> Traced | None:
    """Return what JAX's tracing function knows of what it traces: names and types, no values."""
    for _ in range(NEAR):
        if frame is None:
            return None
        if frame.f_code is code:
            names = frame.f_locals
            debug = names.get("dbg")
            place = getattr(debug, "func_src_info", None)
            arguments = getattr(debug, "arg_names", None)
            return place, _reference(names.get("fun")), arguments, names.get("avals")
        frame = frame.f_back
    return None


def _reference(function: Any) -> Any:
    """Return the weak reference to a function: one object while it lives; ``None`` for some."""
    # With this check it cannot fail.
    return ref(function) if getattr(type(function), "__weakrefoffset__", 0) else None
