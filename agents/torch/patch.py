"""Replacing a function of the job's by one of ours, and restoring it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ..modules import loaded, need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..hooks import Hooks


# Written in C; it is there before the compiler in Python is.
EVALUATION = "torch._C._dynamo.eval_frame"


def replace(hooks: Hooks, owner: Any, name: str, ours: Any) -> None:
    """Put ours under a name of a class, or of a module, which may be given by its namespace.

    Undone only where it is still ours.
    """
    is_names = type(owner) is dict
    there = owner if is_names else vars(owner)
    before = there.get(name, replace)

    def undo() -> None:
        # Somebody may have wrapped ours since: theirs stays, and calls ours for good.
        if there.get(name) is ours:
            if is_names:
                there[name] = before
            elif before is replace:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    hooks.add(undo)
    if is_names:
        there[name] = ours
    else:
        setattr(owner, name, ours)


def hide(*functions: Any) -> None:
    """Have ``torch.compile`` call these uncompiled.

    It would compile each that is called at a graph break, as at a read, and warn about it.
    """
    names = loaded(EVALUATION)
    if names is None:
        # Before there was a compiler.
        return
    # Its name in versions that take no strategy.
    skip = names.get("skip_code")
    if skip is None:
        tell = need(EVALUATION, "set_code_exec_strategy")
        skipped = need(EVALUATION, "_FrameAction", "SKIP")
        as_before = need(EVALUATION, "_FrameAction", "DEFAULT")
        strategy = need(EVALUATION, "_FrameExecStrategy")(skipped, as_before)
        skip = partial(_skip_by_strategy, tell, strategy)
    for function in functions:
        skip(function.__code__)


def _skip_by_strategy(tell: Callable[[Any, Any], None], strategy: Any, code: Any) -> None:
    tell(code, strategy)


def copy_names(ours: Any, theirs: Any) -> None:
    """Give ours the names of theirs, for those who print or pickle it."""
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        with suppress(AttributeError, TypeError):
            setattr(ours, name, getattr(theirs, name))
