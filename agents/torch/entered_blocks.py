"""Blocks of the job's own that began in a trace: they end with it.

PyTorch frees what it noted of a block of ``record_function`` with the trace that it began in. An
end that comes later is ignored, unless another trace is on by then, be it the user's own: then it
is written to freed memory. So a block that is open when ours ends is ended first. Its own end finds
it ended, and does nothing.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from functools import partial
from weakref import ref

from ..hooks import Hooks
from ..modules import Missing, loaded, names_of, need
from .introspect import attributes
from .patch import copy_names, hide, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "torch.autograd.profiler"
# Blocks alive at one time. The trace's file shows whether one was open that is not known here.
MOST = 10_000
_UNSEEN = ("DisableTorchFunction", "_DisableTorchDispatch")
_call = partial.__call__


class EnteredBlocks:
    """Blocks that the job's main thread has entered while a trace of ours is on."""

    def __init__(self, on: dict[str, Any]) -> None:
        # Has something in it while a trace is on.
        self._on = on
        # Each entry goes with its block.
        self._met: dict[int, ref[Any]] = {}
        self._hooks = Hooks()
        self._ours: Any = None
        self._theirs: Any = None

    def watch(self, main: int | None) -> None:
        """Note each block that this thread enters, until ``leave``."""
        try:
            kind = need(MODULE, "record_function")
            there = vars(kind).get("__enter__")
            if self._ours is None and callable(there):
                ours = _entering(there, self._on, main, self._met)
                hide(ours)
                self._theirs, self._ours = there, ours
        except (Missing, TypeError):
            # Then an open block makes a trace the last one.
            return
        # One that somebody has put over ours since stays, whether it calls ours or not.
        if there is not None and there is self._theirs:
            replace(self._hooks, kind, "__enter__", self._ours)

    def leave(self) -> None:
        """Note no more."""
        self._hooks.undo()

    def is_halfway(self) -> bool:
        """Tell whether the last block is just being entered: it cannot be ended yet."""
        # In one step of C: a block that goes meanwhile removes itself.
        last = [None, *self._met.values()][-1]
        block = None if last is None else last()
        return block is not None and attributes(block).get("record") is None

    def end(self) -> None:
        """End the open blocks, the innermost first; on the main thread."""
        blocks = [met() for met in reversed(list(self._met.values()))]
        self._met.clear()
        if not blocks:
            return
        # To end one again has no effect.
        ends, after = _ends([attributes(block).get("record") for block in blocks])
        done = False
        try:
            done = in_c([*ends, *after])
        finally:
            if not done:
                # Whatever failed, the user's own hooks of calls see what they did before.
                in_c(after)


def in_c(calls: list[partial[Any]]) -> bool:
    """Make these calls in one step of C; returns whether none failed there, which is ignored."""
    try:
        deque(map(_call, calls), 0)
    except RuntimeError as error:
        # An exception with a Python frame is the job's own, from a signal.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        return False
    return True


def _ends(records: list[Any]) -> tuple[list[partial[Any]], list[partial[Any]]]:
    """Return the calls that end them, unseen by the user's hooks of calls; and those to follow."""
    # As torch itself has called it before: an attribute access would search its libraries.
    found = names_of((names_of((loaded("torch") or {}).get("ops")) or {}).get("profiler")) or {}
    overload = attributes(found.get("_record_function_exit")).get("_RecordFunction")
    end = attributes(overload).get("_op")
    core = loaded("torch._C") or {}
    kind, guards = core.get("ScriptObject"), [core.get(name) for name in _UNSEEN]
    if end is None or kind is None or None in guards:
        return [], []
    unseen = [guard() for guard in guards if guard is not None]
    before = [partial(guard.__enter__) for guard in unseen]
    ends = [partial(end, record) for record in records if type(record) is kind]
    after = [partial(guard.__exit__, None, None, None) for guard in reversed(unseen)]
    return [*before, *ends], after


def _entering(
    theirs: Callable[[Any], Any], on: dict[str, Any], main: int | None, met: dict[int, ref[Any]]
) -> Callable[[Any], Any]:
    ident = get_ident

    def __enter__(block: Any) -> Any:  # noqa: N807  it takes that one's place
        if on and ident() == main and len(met) < MOST:
            key = id(block)
            met[key] = ref(block, partial(met.pop, key))
        return theirs(block)

    copy_names(__enter__, theirs)
    # TorchScript compiles it from its source.
    __enter__.__wrapped__ = theirs  # type: ignore[attr-defined]
    return __enter__
