"""What is kept of each step keeps no graph: ``detach()`` before it is added."""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import statements_at, training_loop
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._source import Source

_NUMBERS: Final = {"item", "detach", "float", "int", "tolist", "numpy", "len", "cpu", "no_grad"}
_SHOWN: Final = {"print", "item", "float", "len", "tolist", "detach", "round", "str", "info", "log"}


def change(source: Source, wanted: Wanted) -> Change:
    """Detach what a line that was found adds."""
    if source.spelt("torch") is None:
        raise NotHere
    for statement in statements_at(source, wanted):
        loop = training_loop(source, statement)
        if loop is None or not isinstance(statement, cst.SimpleStatementLine):
            continue
        for small in statement.body:
            found = _added(small)
            if found is None:
                continue
            total, value = found
            if any(isinstance(x, cst.Call) and _word(x) in _NUMBERS for x in inside(value)):
                continue
            _check(source, total, statement)
            return _detached(value)
    raise NotHere


def _added(small: cst.BaseSmallStatement) -> tuple[cst.Name, cst.BaseExpression] | None:
    """Return a sum or a list, and what is added to it."""
    if isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Name):
        return (small.target, small.value) if isinstance(small.operator, cst.AddAssign) else None
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target, value = small.targets[0].target, small.value
        is_sum = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add)
        if isinstance(target, cst.Name) and is_sum and isinstance(value, cst.BinaryOperation):
            for mine, other in ((value.left, value.right), (value.right, value.left)):
                if isinstance(mine, cst.Name) and mine.value == target.value:
                    return target, other
    call = small.value if isinstance(small, cst.Expr) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        of = call.func.value
        if call.func.attr.value == "append" and isinstance(of, cst.Name) and len(call.args) == 1:
            return of, call.args[0].value
    return None


def _word(call: cst.Call) -> str:
    return dotted(call.func).rpartition(".")[2] or (
        call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    )


def _check(source: Source, total: cst.Name, statement: cst.BaseStatement) -> None:
    """Refuse where what was kept may be differentiated later."""
    if source.is_shared(total):
        raise Refused(f"{total.value} is set by other functions, too", source.line(total))
    mine = set(inside(statement))
    for use in source.uses(total):
        if use in mine:
            continue
        shown = False
        for above in source.around(use):
            if isinstance(above, cst.Call) and _word(above) in _SHOWN:
                shown = True
            if isinstance(above, cst.FormattedStringExpression):
                shown = True
            if isinstance(above, cst.BaseStatement):
                break
        if not shown:
            why = f"{total.value} may be differentiated, or kept for something else"
            raise Refused(why, source.line(use))


def _detached(value: cst.BaseExpression) -> Change:
    found = Change()
    compact = isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or value.lpar

    def edit(old: cst.BaseExpression) -> cst.BaseExpression:
        inner = (
            old if compact else old.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        )
        return cst.Call(cst.Attribute(inner, cst.Name("detach")))

    found.edits[value] = edit
    return found


codemod = Codemod(
    title="What is kept of a step keeps no graph",
    rules=("memory_growth",),
    change=change,
)
