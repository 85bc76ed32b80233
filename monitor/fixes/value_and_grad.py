"""The value of a loss comes out of the pass that computes its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import sets, targets
from whyidle.monitor.fixes._pieces import argument, inside, names_in
from whyidle.monitor.fixes._pure import Purity
from whyidle.monitor.fixes._source import Source

_GRAD: Final = "jax.grad"


@dataclass(frozen=True, slots=True)
class Called:
    """A statement that sets something to a call."""

    assign: cst.Assign
    call: cst.Call
    statement: cst.SimpleStatementLine


def change(source: Source, _wanted: Wanted) -> Change:
    """Join a call of a loss with that of its gradient."""
    for gradient in _calls(source):
        grad = _transformed(source, gradient.call.func, _GRAD)
        if grad is None or not grad.args:
            continue
        loss = source.definition(grad.args[0].value)
        value = _beside(source, gradient, loss)
        if value is None or not isinstance(loss, cst.FunctionDef):
            continue
        return _joined(source, value, gradient, grad, loss)
    raise NotHere


def _calls(source: Source) -> list[Called]:
    found = []
    for node in source.everything:
        if (
            isinstance(node, cst.Assign)
            and len(node.targets) == 1
            and isinstance(node.value, cst.Call)
        ):
            statement = source.parent(node)
            if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
                found.append(Called(node, node.value, statement))
    return found


def _transformed(source: Source, func: cst.BaseExpression, by: str) -> cst.Call | None:
    """Return ``jax.grad(f)`` of what is called: itself, compiled, or by a name."""
    known = func
    for _ in range(3):
        if isinstance(known, cst.Name):
            try:
                made = source.value(known)
            except KeyError:
                return None
            if made is None:
                return None
            known = made
        if isinstance(known, cst.Call) and source.means(known.func, by):
            return known
        if isinstance(known, cst.Call) and source.means(known.func, "jax.jit") and known.args:
            known = known.args[0].value
    return None


def _is_loss(source: Source, func: cst.BaseExpression, loss: cst.CSTNode | None) -> bool:
    known = source.definition(func)
    if known is None and isinstance(func, cst.Name):
        try:
            made = source.value(func)
        except KeyError:
            return False
        if (
            isinstance(made, cst.Call)
            and source.means(made.func, "jax.jit")
            and len(made.args) == 1
        ):
            known = source.definition(made.args[0].value)
    return known is not None and known is loss


def _beside(source: Source, gradient: Called, loss: cst.CSTNode | None) -> Called | None:
    """Return the call of the same loss with the same arguments in the same block."""
    if loss is None:
        return None
    block = source.siblings(gradient.statement)
    for other in _calls(source):
        if (
            other.statement in block
            and other is not gradient
            and _is_loss(source, other.call.func, loss)
        ):
            mine = [source.code(arg).rstrip(", ") for arg in gradient.call.args]
            if mine == [source.code(arg).rstrip(", ") for arg in other.call.args]:
                return other
    return None


def _joined(
    source: Source, value: Called, gradient: Called, grad: cst.Call, loss: cst.FunctionDef
) -> Change:
    where = source.line(gradient.statement)
    _check_arguments(source, value, gradient)
    Purity(source).check(loss)
    has_aux = argument(grad, "has_aux")
    if has_aux is not None and not source.means(has_aux.value, "True", "False"):
        raise Refused("has_aux is set by other code", where)
    slope: cst.BaseAssignTargetExpression | cst.BaseExpression
    slope = gradient.assign.targets[0].target
    if has_aux is not None and source.means(has_aux.value, "True"):
        slope = _first(source, slope, where)
    of_value = value.assign.targets[0].target
    if {x.value for x in targets(of_value)} & {x.value for x in targets(slope)}:
        raise Refused("both set the same name", where)
    found = Change()
    both = _both(source, gradient, grad, found)
    left = source.code(of_value)
    if isinstance(of_value, cst.Tuple) and not of_value.lpar:
        left = f"({left})"
    args = ", ".join(source.code(arg).rstrip(", ") for arg in value.call.args)
    line = f"{left}, {source.code(slope)} = {both}({args})"
    first, second = sorted((value, gradient), key=lambda x: source.line(x.statement))
    new = cst.parse_statement(line)

    def edit(old: Any) -> Any:
        trailing = old.trailing_whitespace
        return new.with_changes(leading_lines=old.leading_lines, trailing_whitespace=trailing)

    found.edits[first.statement] = edit
    found.edits[second.statement] = lambda _: cst.RemoveFromParent()
    return found


def _first(
    source: Source, slope: cst.BaseAssignTargetExpression | cst.BaseExpression, where: int
) -> cst.BaseExpression:
    """Return what gets the gradient of ``gradient, _``, where the rest is used by nothing."""
    if not isinstance(slope, cst.Tuple) or len(slope.elements) != 2:
        raise Refused("what the gradient comes with is kept", where)
    rest = slope.elements[1].value
    for name in targets(rest):
        if [use for use in source.uses(name) if isinstance(use, cst.Name)]:
            raise Refused("what the gradient comes with is used", where)
    return slope.elements[0].value


def _check_arguments(source: Source, value: Called, gradient: Called) -> None:
    """Refuse where the second call may get other values than the first."""
    first, second = sorted((value, gradient), key=lambda x: source.line(x.statement))
    for node in (x for arg in first.call.args for x in inside(arg)):
        if isinstance(node, cst.Call | cst.NamedExpr | cst.Await):
            raise Refused("an argument is computed in the call, perhaps anew", source.line(node))
    block = source.siblings(first.statement)
    between = block[block.index(first.statement) : block.index(second.statement)]
    given = {x.value for arg in first.call.args for x in names_in(arg.value)}
    for statement in between:
        if given & {x.value for x in sets(statement)}:
            raise Refused("an argument changes in between", source.line(statement))
    # What the later call sets would come earlier.
    if len(between) > 1:
        later = {x.value for x in targets(second.assign.targets[0].target)}
        for statement in between[1:]:
            if later & {x.value for x in names_in(statement)}:
                raise Refused("what the second call sets is used before it", source.line(statement))
            if any(isinstance(x, cst.Call) for x in inside(statement)):
                raise Refused("something else is called in between", source.line(statement))


def _both(source: Source, gradient: Called, grad: cst.Call, found: Change) -> str:
    """Return what computes both; it is defined beside what computes the gradient."""
    name = source.code(grad.func)
    if not name.endswith("grad"):
        raise Refused("jax.grad has another name here", source.line(grad))
    if "." not in name:
        raise Refused("jax.grad is imported by its name alone", source.line(grad))
    new = name.removesuffix("grad") + "value_and_grad"
    func = gradient.call.func
    if not isinstance(func, cst.Name):
        return source.code(func).replace(name, new, 1)
    made = source.value(func)
    if made is None:
        raise Refused("what computes the gradient is not certain", source.line(func))
    statement = source.statement(made)
    both = source.fresh("value_and_gradient", f"{func.value}_with_value")
    text = source.code(made).replace(name, new, 1)
    line = cst.parse_statement(f"{both} = {text}")
    found.edits[statement] = lambda old: cst.FlattenSentinel([old, line])
    return both


codemod = Codemod(
    title="One pass computes the value and the gradient",
    rules=("forward_run_twice",),
    change=change,
)
