"""A value that is read in each step, and shown now and then, is read when it is shown.

Nothing else changes: all of its uses prove that it is not needed in the steps between.
"""

from __future__ import annotations

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import (
    ONLY_COMPUTE,
    check_flow,
    sets,
    statements_at,
    targets,
    training_loop,
    wrapped,
)
from whyidle.monitor.fixes._pieces import inside, names_in
from whyidle.monitor.fixes._source import Loop, Source, Statement

MUST: str = "it is needed in each step, or it is not certain that it is not"


def change(source: Source, wanted: Wanted) -> Change:
    """Move the first read that was found under the condition that shows it."""
    why: Refused | None = None
    for statement in statements_at(source, wanted):
        loop = training_loop(source, statement)
        if loop is None or statement not in loop.body.body:
            continue
        try:
            return _moved(source, loop, statement)
        except Refused as refused:
            why = why or refused
    raise why or NotHere


def _moved(source: Source, loop: Loop, statement: Statement) -> Change:
    where = source.line(statement)
    name, only_last = _kept(source, statement)
    check_flow(source, [statement])
    after = loop.body.body[list(loop.body.body).index(statement) + 1 :]
    guard = next((x for x in after if isinstance(x, cst.If) and _shows(x, name)), None)
    if guard is None or guard.orelse is not None:
        raise Refused("nothing shows it now and then", where)
    between = after[: list(after).index(guard)]
    test = {x.value for x in names_in(guard.test)}
    if test & {x.value for each in (statement, *between) for x in sets(each)}:
        raise Refused("the condition that shows it changes in between", source.line(guard))
    if any(isinstance(x, cst.Call | cst.NamedExpr | cst.Await) for x in inside(guard.test)):
        raise Refused("the condition that shows it calls something", source.line(guard))
    _check_uses(source, name, statement, guard, loop, only_last=only_last)
    found = Change()
    wrapped(source, found, [statement], source.code(guard.test))
    return found


def _kept(source: Source, statement: Statement) -> tuple[cst.Name, bool]:
    """Return the name that a statement sets, or the list that it adds to."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            names = list(targets(small.targets[0].target))
            if len(names) == 1 and isinstance(small.targets[0].target, cst.Name):
                _check_effects(source, small.value)
                return names[0], False
        call = small.value if isinstance(small, cst.Expr) else None
        if (
            isinstance(call, cst.Call)
            and isinstance(call.func, cst.Attribute)
            and call.func.attr.value == "append"
            and isinstance(call.func.value, cst.Name)
            and len(call.args) == 1
        ):
            _check_effects(source, call.args[0].value)
            return call.func.value, True
    raise Refused(MUST, source.line(statement))


# What only computes a value of others.
_READS = ONLY_COMPUTE | {"float32", "histogram", "log", "ravel", "to"}


def _check_effects(source: Source, value: cst.BaseExpression) -> None:
    for node in inside(value):
        if isinstance(node, cst.Call):
            name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
            word = name.value if isinstance(name, cst.Name) else ""
            if word not in _READS:
                raise Refused(f"what {word or 'it'} does besides is not certain", source.line(node))
        if isinstance(node, cst.NamedExpr | cst.Await | cst.Yield):
            raise Refused("it sets something besides", source.line(node))


def _shows(guard: cst.If, name: cst.Name) -> bool:
    return any(x.value == name.value for x in names_in(guard.body))


def _check_uses(
    source: Source,
    name: cst.Name,
    statement: Statement,
    guard: cst.If,
    loop: Loop,
    *,
    only_last: bool,
) -> None:
    """Refuse where the value is used anywhere but where it is shown."""
    if source.is_shared(name):
        raise Refused(MUST, source.line(name))
    mine, shown = set(inside(statement)), set(inside(guard.body))
    for use in source.uses(name):
        if use in mine:
            continue
        if use not in shown or (only_last and not _is_last(source, use)):
            raise Refused(f"{name.value} is read elsewhere, too", source.line(use))
    for place in source.assigned(name):
        if place in mine or place in shown:
            continue
        if any(each is loop for each in source.loops(place)):
            raise Refused(f"{name.value} is set elsewhere in the loop", source.line(place))


def _is_last(source: Source, use: cst.CSTNode) -> bool:
    """Tell whether of a list the last is used alone: ``x[-1]``, ``x[-1:]``."""
    above = source.parent(use)
    return isinstance(above, cst.Subscript) and source.code(above).partition("[")[2] in {
        "-1]",
        "-1:]",
    }


codemod = Codemod(
    title="It is read when it is shown, not in each step",
    rules=("large_readback", "per_step_sync", "metrics_on_host"),
    change=change,
)
