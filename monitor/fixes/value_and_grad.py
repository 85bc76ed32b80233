"""The value of a loss comes out of the pass that computes its gradient."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, inside, names_set, sets
from whyidle.monitor.code.source import Function, arguments, variables
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._pure import Purity


@dataclass(frozen=True, slots=True)
class Called:
    """A statement that sets something to a call."""

    statement: ast.Assign
    call: ast.Call

    @property
    def target(self) -> ast.expr:
        """What it sets."""
        return self.statement.targets[0]


def change(source: Source, _wanted: Wanted) -> Change:
    """Join a call of a loss with that of its gradient."""
    calls = [
        Called(x, x.value) for x in source.everything
        if isinstance(x, ast.Assign) and len(x.targets) == 1 and isinstance(x.value, ast.Call)
    ]  # fmt: skip
    for gradient in calls:
        grad = _transformed(source, gradient.call.func)
        loss = source.defined(arguments(grad)[0]) if grad and arguments(grad) else None
        if grad is None or loss is None:
            continue
        value = _beside(source, calls, gradient, loss)
        if value is not None:
            return _joined(source, value, gradient, grad, loss)
    raise NotHere


def _transformed(source: Source, func: ast.expr) -> ast.Call | None:
    """Return ``jax.grad(f)`` of what is called: itself, compiled, or by a name."""
    known: ast.expr | None = func
    for _ in range(3):
        known = source.value(known) if isinstance(known, ast.Name) else known
        if isinstance(known, ast.Call) and source.means(known.func, "jax.grad"):
            return known
        if isinstance(known, ast.Call) and source.means(known.func, "jax.jit") and known.args:
            known = known.args[0]
    return None


def _is_loss(source: Source, func: ast.expr, loss: Function) -> bool:
    known, made = source.defined(func), source.value(func)
    if known is None and isinstance(made, ast.Call) and source.means(made.func, "jax.jit"):
        known = source.defined(made.args[0]) if len(arguments(made)) == 1 and made.args else None
    return known is loss


def _beside(source: Source, calls: list[Called], gradient: Called, loss: Function) -> Called | None:
    """Return the call of the same loss with the same arguments in the same block."""
    block, mine = source.block(gradient.statement), _texts(source, gradient.call)
    for other in calls:
        if other.statement in block and other is not gradient:
            if _is_loss(source, other.call.func, loss) and _texts(source, other.call) == mine:
                return other
    return None


def _texts(source: Source, call: ast.Call) -> list[str]:
    return [source.code(x) for x in (*call.args, *call.keywords)]


def _joined(
    source: Source, value: Called, gradient: Called, grad: ast.Call, loss: Function
) -> Change:
    _check_arguments(source, value, gradient)
    Purity(source).check(loss)
    has_aux = argument(grad, "has_aux")
    if has_aux is not None and not source.means(has_aux, "True", "False"):
        raise Refused("has_aux is set by other code", gradient.statement)
    slope = gradient.target
    if source.means(has_aux, "True"):
        # Of ``gradient, _``, where the rest is used by nothing.
        if not isinstance(slope, ast.Tuple) or len(slope.elts) != 2:
            raise Refused("what the gradient comes with is kept", gradient.statement)
        if any(source.uses(name) for name in sets(slope.elts[1])):
            raise Refused("what the gradient comes with is used", gradient.statement)
        slope = slope.elts[0]
    if names_set(value.target) & names_set(slope):
        raise Refused("both set the same name", gradient.statement)
    found = Change(source)
    both = _both(source, gradient, grad, found)
    left = source.code(value.target)
    left = f"({left})" if source.is_bare(value.target) else left
    args = ", ".join(_texts(source, value.call))
    first, second = _in_order(source, value, gradient)
    found.replace(first.statement, f"{left}, {source.code(slope)} = {both}({args})")
    found.remove(second.statement)
    return found


def _in_order(source: Source, one: Called, other: Called) -> list[Called]:
    return sorted((one, other), key=lambda x: source.line(x.statement))


def _check_arguments(source: Source, value: Called, gradient: Called) -> None:
    """Refuse where the second call may get other values than the first."""
    first, second = _in_order(source, value, gradient)
    for node in inside(*arguments(first.call)):
        if isinstance(node, ast.Call | ast.NamedExpr | ast.Await):
            raise Refused("an argument is computed in the call, perhaps again", node)
    block = source.block(first.statement)
    between = block[block.index(first.statement) : block.index(second.statement)]
    given = variables(*arguments(first.call))
    for statement in between:
        if given & names_set(statement):
            raise Refused("an argument changes in between", statement)
    # What the later call sets would come earlier.
    later = names_set(second.target)
    for statement in between[1:]:
        if later & variables(statement):
            raise Refused("what the second call sets is used before it", statement)
        if any(isinstance(x, ast.Call) for x in inside(statement)):
            raise Refused("something else is called in between", statement)


def _both(source: Source, gradient: Called, grad: ast.Call, found: Change) -> str:
    """Return what computes both; it is defined beside what computes the gradient."""
    name = source.code(grad.func)
    if not name.endswith("grad"):
        raise Refused("jax.grad has another name here", grad)
    if "." not in name:
        raise Refused("jax.grad is imported by its name alone", grad)
    new = name.removesuffix("grad") + "value_and_grad"
    func = gradient.call.func
    if not isinstance(func, ast.Name):
        return source.code(func).replace(name, new, 1)
    made = source.value(func)
    if made is None:
        raise Refused("what computes the gradient is not certain", func)
    both = source.fresh("value_and_gradient", f"{func.id}_with_value")
    found.after(source.statement(made), f"{both} = {source.code(made).replace(name, new, 1)}")
    return both


codemod = Codemod(
    title="One pass computes the value and the gradient",
    rules=("forward_run_twice",),
    framework="jax",
)
