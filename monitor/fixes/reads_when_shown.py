"""A value that is read in each step, and shown now and then, is read when it is shown.

Nothing else changes: all of its uses prove that it is not needed in the steps between.
"""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, names_set
from whyidle.monitor.code.source import last, variables
from whyidle.monitor.code.trains import Loop
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted, first_of
from whyidle.monitor.fixes._loops import ONLY_COMPUTE, check_flow, statements_at

MUST: str = "it is needed in each step, or it is not certain that it is not"
# What only computes a value of others.
_READS = ONLY_COMPUTE | {"float32", "histogram", "log", "ravel", "to"}


def change(source: Source, wanted: Wanted) -> Change:
    """Move the first read that was found under the condition that shows it."""
    some = [(x, source.training_loop(x)) for x in statements_at(source, wanted)]
    own = [(loop, x) for x, loop in some if loop is not None and x in loop.body]
    return first_of(own, lambda each: _moved(source, *each))


def _moved(source: Source, loop: Loop, statement: ast.stmt) -> Change:
    name, only_last = _kept(statement)
    check_flow(source, [statement])
    after = loop.body[loop.body.index(statement) + 1 :]
    shows = (x for x in after if isinstance(x, ast.If) and name.id in variables(*x.body))
    guard = next(shows, None)
    if guard is None or guard.orelse:
        raise Refused("nothing shows it now and then", statement)
    between = after[: after.index(guard)]
    if variables(guard.test) & names_set(statement, *between):
        raise Refused("the condition that shows it changes in between", guard)
    if any(isinstance(x, ast.Call | ast.NamedExpr | ast.Await) for x in inside(guard.test)):
        raise Refused("the condition that shows it calls something", guard)
    # The value may be used nowhere but where it is shown.
    if source.is_shared(name):
        raise Refused(MUST, name)
    mine, shown = set(inside(statement)), set(inside(*guard.body))
    for use in source.uses(name):
        is_missed = use not in shown or (only_last and not _is_last(source, use))
        if use not in mine and is_missed:
            raise Refused(f"{name.id} is read elsewhere, too", use)
    for place in source.assigned(name):
        if place not in mine | shown and loop in source.loops(place):
            raise Refused(f"{name.id} is set elsewhere in the loop", place)
    found = Change(source)
    found.wrap([statement], f"if {source.code(guard.test)}")
    return found


def _kept(statement: ast.stmt) -> tuple[ast.Name, bool]:
    """Return the name that a statement sets, or the list that it adds to."""
    match statement:
        case ast.Assign(targets=[ast.Name() as name], value=value):
            _check_effects(value)
            return name, False
        case ast.Expr(
            ast.Call(func=ast.Attribute(ast.Name() as name, "append"), args=[value], keywords=[])
        ):
            _check_effects(value)
            return name, True
        case _:
            raise Refused(MUST, statement)


def _check_effects(value: ast.expr) -> None:
    for node in inside(value):
        if isinstance(node, ast.Call) and last(node) not in _READS:
            raise Refused(f"what {last(node) or 'it'} does besides is not certain", node)
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            raise Refused("it sets something besides", node)


def _is_last(source: Source, use: ast.AST) -> bool:
    """Tell whether of a list the last is used alone: ``x[-1]``, ``x[-1:]``."""
    above = source.parent(use)
    is_part = isinstance(above, ast.Subscript)
    return is_part and source.code(above).partition("[")[2] in {"-1]", "-1:]"}  # type: ignore[arg-type]


codemod = Codemod(
    title="It is read when it is shown, not in each step",
    rules=("large_readback", "per_step_sync", "metrics_on_host"),
)
