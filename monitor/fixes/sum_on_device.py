"""A sum of what each step comes to stays on the device, and is read where it is used."""

from __future__ import annotations

from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import guards, training_loop
from whyidle.monitor.fixes._pieces import inside
from whyidle.monitor.fixes._source import Loop, Source

EACH_STEP: Final = "the sum is read in each step"
_LOW: Final = {"bfloat16", "half", "float16", "autocast"}


def change(source: Source, wanted: Wanted) -> Change:
    """Keep every such sum of a training loop at a line that was found."""
    found = Change()
    for node in source.everything:
        if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
            if wanted.lines and source.line(node) not in wanted.lines:
                continue
            value, kind = _read(source, node.value)
            loop = training_loop(source, node)
            if value is not None and loop is not None:
                _kept(source, node, value, kind, loop, found)
    if not found.edits:
        raise NotHere
    found.notes.append(
        "The sum is of the device's precision; rounding may differ in the last digits."
    )
    return found


def _read(source: Source, value: cst.BaseExpression) -> tuple[cst.BaseExpression | None, str]:
    """Return what is read by ``x.item()`` or ``float(x)``, and which of them it is."""
    if not isinstance(value, cst.Call):
        return None, ""
    if source.means(value.func, "float") and len(value.args) == 1:
        return value.args[0].value, "float"
    is_item = isinstance(value.func, cst.Attribute) and value.func.attr.value == "item"
    if is_item and not value.args and isinstance(value.func, cst.Attribute):
        return value.func.value, "item"
    return None, ""


def _kept(
    source: Source,
    node: cst.AugAssign,
    value: cst.BaseExpression,
    kind: str,
    loop: Loop,
    found: Change,
) -> None:
    where, total = source.line(node), node.target
    if not isinstance(total, cst.Name) or source.is_shared(total):
        raise Refused("the sum is kept in an object, which others may read", where)
    if any(guards(source, node, loop)) or source.loops(node)[0] is not loop:
        raise Refused("the sum grows under a condition, or in a loop within", where)
    whole, isnt = _begins(source, total, node), isinstance(value, cst.Name)
    if _LOW & source.words:
        raise Refused("what is summed may have a low precision", where)
    if whole and kind == "item":
        if not any(isinstance(x, cst.Comparison) for x in inside(value)):
            raise Refused("whether the sum is of whole numbers is not certain", where)
    elif whole or (kind == "item" and not isnt and _compares(value)):
        raise Refused("the sum begins with another type than it goes on", where)
    number = "int" if whole else "float"
    is_torch = source.spelt("torch", node) is not None
    if (
        not is_torch
        and source.spelt("jax", node) is None
        and source.spelt("jax.numpy", node) is None
    ):
        raise Refused("which framework it is of is not certain", where)
    for use in source.uses(total):
        if use is total or _is_sum(source, use, total):
            continue
        _wrap(source, use, number, loop, found)
    new: Any = value
    if is_torch:
        compact = (
            isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or value.lpar
        )
        inner = (
            value
            if compact
            else value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        )
        new = cst.Call(cst.Attribute(inner, cst.Name("detach")))
    found.replace(node.value, new)


def _compares(value: cst.BaseExpression) -> bool:
    return any(isinstance(x, cst.Comparison) for x in inside(value))


def _is_sum(source: Source, use: cst.CSTNode, total: cst.Name) -> bool:
    above = source.parent(use)
    return isinstance(above, cst.AugAssign) and above.target is use and use is total


def _begins(source: Source, total: cst.Name, node: cst.AugAssign) -> bool:
    """Tell whether a sum begins as a whole number; refuse where it is not certain."""
    kinds = set()
    for place in source.assigned(total):
        if place is total or place is node.target:
            continue
        value = _literal(source, place)
        if not isinstance(value, cst.Integer | cst.Float):
            raise Refused("what the sum begins with is not certain", source.line(place))
        kinds.add(isinstance(value, cst.Integer))
    if len(kinds) != 1:
        raise Refused("what the sum begins with is not certain", source.line(node))
    return kinds.pop()


def _literal(source: Source, place: cst.CSTNode) -> cst.BaseExpression | None:
    """Return what a name is set to here, also as one of several: ``a, b = 1, 2``."""
    above = source.parent(place)
    if isinstance(above, cst.AssignTarget):
        assign = source.parent(above)
        return assign.value if isinstance(assign, cst.Assign) else None
    if isinstance(above, cst.AnnAssign):
        return above.value
    if isinstance(above, cst.Element):
        names = source.parent(above)
        target = None if names is None else source.parent(names)
        assign = None if target is None else source.parent(target)
        if (
            isinstance(names, cst.Tuple)
            and isinstance(assign, cst.Assign)
            and isinstance(assign.value, cst.Tuple)
            and len(assign.value.elements) == len(names.elements)
        ):
            return assign.value.elements[list(names.elements).index(above)].value
    return None


def _wrap(source: Source, use: cst.CSTNode, number: str, loop: Loop, found: Change) -> None:
    """Read the sum as a number where it is used."""
    loops = source.loops(use)
    if any(each is loop for each in loops) and not any(guards(source, use, loop)):
        raise Refused(EACH_STEP, source.line(use))
    above = source.parent(use)
    outer = source.parent(above) if above is not None else None
    if (
        isinstance(above, cst.Arg)
        and isinstance(outer, cst.Call)
        and source.means(outer.func, number)
    ):
        return
    if not isinstance(use, cst.Name) or isinstance(above, cst.AugAssign | cst.Del):
        raise Refused("the sum is changed elsewhere, too", source.line(use))
    if any(x.name.value == number for x in source.everything if isinstance(x, cst.Param)):
        raise Refused(f"{number} means something else here", source.line(use))
    found.edits[use] = lambda old: cst.Call(cst.Name(number), [cst.Arg(old)])


codemod = Codemod(
    title="The sum stays on the device until it is used",
    rules=("per_step_sync", "metrics_on_host"),
    change=change,
)
