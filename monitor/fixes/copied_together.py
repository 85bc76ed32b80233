"""Arrays that are put on the device one by one are put there by one call."""

from __future__ import annotations

from functools import partial

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._source import Source


def change(source: Source, wanted: Wanted) -> Change:
    """Write ``[jax.device_put(x) for x in xs]`` as ``jax.device_put([x for x in xs])``."""
    found = Change()
    for node in source.everything:
        if not isinstance(node, cst.ListComp) or not isinstance(node.elt, cst.Call):
            continue
        if wanted.lines and not any(source.covers(node, line) for line in wanted.lines):
            continue
        call = node.elt
        if not source.means(call.func, "jax.device_put"):
            continue
        if len(call.args) != 1 or call.args[0].star:
            raise Refused("where each goes is said one by one", source.line(call))
        inner = call.args[0].value
        func = call.func
        found.edits[call] = partial(_instead, inner)
        found.edits[node] = partial(_called, func)
    if not found.edits:
        raise NotHere
    return found


def _instead(inner: cst.BaseExpression, _old: cst.Call) -> cst.BaseExpression:
    return inner


def _called(func: cst.BaseExpression, old: cst.BaseExpression) -> cst.Call:
    return cst.Call(func, [cst.Arg(old)])


codemod = Codemod(
    title="One call copies all arrays",
    rules=("many_small_copies",),
    change=change,
)
