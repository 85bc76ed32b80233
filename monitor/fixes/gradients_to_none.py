"""Gradients are dropped instead of filled with zeros."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, is_call_of_method
from whyidle.monitor.fixes._change import Change, NotHere, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Wanted


def change(source: Source, _wanted: Wanted) -> Change:
    """Let ``zero_grad`` do what it does by default."""
    found = Change(source)
    for call in source.calls:
        given = argument(call, "set_to_none", 0) if is_call_of_method(call, "zero_grad") else None
        if given is None or source.means(given, "True"):
            continue
        if not source.means(given, "False"):
            raise SetElsewhere("set_to_none", given, "True", call)
        found.without_arguments(call)
    if not found.edits:
        raise NotHere
    # Refuse where a gradient that is not there would be missed, or a step would leave it out.
    backward = 0
    for node in source.everything:
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr == "grad" and not source.means(node, "torch.autograd.grad", "jax.grad"):
            raise Refused("the program looks at gradients itself", node)
        backward += node.attr in {"backward", "manual_backward"}
    if backward != 1:
        why = "of several backward passes each may leave out parameters, and a step would then, too"
        raise Refused(why if backward else "where gradients are made is not seen here")
    return found


codemod = Codemod(title="Gradients are dropped, not filled with zeros", rules=("zeroed_gradients",))
