"""A sum of what each step comes to stays on the device, and is read where it is used."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, is_plain
from whyidle.monitor.code.trains import Loop
from whyidle.monitor.fixes._change import Change, Refused, detached
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._loops import guards


def change(source: Source, wanted: Wanted) -> Change:
    """Keep every such sum of a training loop at a line that was found."""
    found = Change(source)
    for node in source.everything:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            if wanted.lines and source.line(node) not in wanted.lines:
                continue
            value, kind = _read(source, node.value)
            loop = source.training_loop(node)
            if value is not None and loop is not None:
                _kept(source, node, value, kind, loop, found)
    found.notes.append(
        "The sum is of the device's precision; rounding may differ in the last digits."
    )
    return found


def _read(source: Source, value: ast.expr) -> tuple[ast.expr | None, str]:
    """Return what is read by ``x.item()`` or ``float(x)``, and which of them it is."""
    match value:
        case ast.Call(func=ast.Name() as func, args=[of], keywords=[]):
            return (of, "float") if source.means(func, "float") else (None, "")
        case ast.Call(func=ast.Attribute(of, "item"), args=[], keywords=[]):
            return of, "item"
        case _:
            return None, ""


def _kept(
    source: Source, node: ast.AugAssign, value: ast.expr, kind: str, loop: Loop, found: Change
) -> None:
    total = node.target
    if not isinstance(total, ast.Name) or source.is_shared(total):
        raise Refused("the sum is kept in an object, which others may read", node)
    if any(guards(source, node, loop)) or source.loops(node)[0] is not loop:
        raise Refused("the sum grows under a condition, or in a loop within", node)
    whole = _begins(source, total)
    if {"bfloat16", "half", "float16", "autocast"} & source.words:
        raise Refused("what is summed may have a low precision", node)
    compares = any(isinstance(x, ast.Compare) for x in inside(value))
    if whole and kind == "item":
        if not compares:
            raise Refused("whether the sum is of whole numbers is not certain", node)
    elif whole or (kind == "item" and compares and not isinstance(value, ast.Name)):
        raise Refused("the sum begins with another type than it goes on", node)
    is_torch = source.spelt("torch", node) is not None
    if not is_torch and not source.spelt("jax", node) and not source.spelt("jax.numpy", node):
        raise Refused("which framework it is of is not certain", node)
    for use in source.uses(total):
        _wrap(source, use, "int" if whole else "float", loop, found)
    found.replace(node.value, detached(source, value) if is_torch else source.code(value))


def _begins(source: Source, total: ast.Name) -> bool:
    """Tell whether a sum begins as a whole number; refuse where it is not certain."""
    kinds = set()
    for place in source.assigned(total):
        if place is total:
            continue
        value = source.set_to(place)
        if not is_plain(value, int, float):
            raise Refused("what the sum begins with is not certain", place)
        kinds.add(is_plain(value))
    if len(kinds) != 1:
        raise Refused("what the sum begins with is not certain", total)
    return kinds.pop()


def _wrap(source: Source, use: ast.Name, number: str, loop: Loop, found: Change) -> None:
    """Read the sum as a number where it is used."""
    if loop in source.loops(use) and not any(guards(source, use, loop)):
        raise Refused("the sum is read in each step", use)
    call = source.call_with(use)
    if call is not None and source.means(call.func, number):
        return
    if not isinstance(use.ctx, ast.Load):
        raise Refused("the sum is changed elsewhere, too", use)
    if any(x.arg == number for x in source.everything if isinstance(x, ast.arg)):
        raise Refused(f"{number} means something else here", use)
    found.surround(use, f"{number}(", ")")


codemod = Codemod(
    title="The sum stays on the device until it is used", rules=("per_step_sync", "metrics_on_host")
)
