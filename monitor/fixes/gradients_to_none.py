"""Gradients are dropped instead of filled with zeros."""

from __future__ import annotations

from typing import Any

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._pieces import argument
from whyidle.monitor.fixes._source import Source


def change(source: Source, _wanted: Wanted) -> Change:
    """Let ``zero_grad`` do what it does by default."""
    found = Change()
    for call in source.calls:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "zero_grad":
            arg = argument(call, "set_to_none", 0)
            if arg is None or source.means(arg.value, "True"):
                continue
            if not source.means(arg.value, "False"):
                raise Refused("set_to_none is set by other code", source.line(call))
            found.edits[call] = _without(arg)
    if not found.edits:
        raise NotHere
    _check(source)
    return found


def _without(arg: cst.Arg) -> Any:
    def edit(old: cst.Call) -> cst.Call:
        return old.with_changes(args=[], whitespace_before_args=cst.SimpleWhitespace(""))

    del arg
    return edit


def _check(source: Source) -> None:
    """Refuse where a gradient that is not there would be missed, or a step would leave it out."""
    backward = 0
    for node in source.everything:
        if not isinstance(node, cst.Attribute):
            continue
        if node.attr.value == "grad" and not source.means(node, "torch.autograd.grad", "jax.grad"):
            raise Refused("the program looks at gradients itself", source.line(node))
        backward += node.attr.value in {"backward", "manual_backward"}
    if backward != 1:
        why = "of several backward passes each may leave out parameters, and a step would then, too"
        raise Refused(why if backward else "where gradients are made is not seen here")


codemod = Codemod(
    title="Gradients are dropped, not filled with zeros",
    rules=("zeroed_gradients",),
    change=change,
)
