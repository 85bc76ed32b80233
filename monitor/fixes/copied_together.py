"""Arrays that are put on the device one by one are put there by one call."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import has_stars
from whyidle.monitor.code.source import arguments
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted


def change(source: Source, wanted: Wanted) -> Change:
    """Write ``[jax.device_put(x) for x in xs]`` as ``jax.device_put([x for x in xs])``."""
    found = Change(source)
    for node in source.everything:
        if not isinstance(node, ast.ListComp) or not isinstance(node.elt, ast.Call):
            continue
        call = node.elt
        if not wanted.fits(source, node) or not source.means(call.func, "jax.device_put"):
            continue
        if len(arguments(call)) != 1 or has_stars(call):
            raise Refused("where each goes is said one by one", call)
        found.replace(call, source.code(arguments(call)[0]))
        found.surround(node, f"{source.code(call.func)}(", ")")
    return found


codemod = Codemod(title="One call copies all arrays", rules=("many_small_copies",))
