"""A checkpoint or a validation that a condition lets in comes a tenth as often."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import (
    inside,
    is_call_of_method,
    is_of_self,
    is_plain,
    name_of,
    sets,
)
from whyidle.monitor.code.source import Function, dotted, last
from whyidle.monitor.fixes._change import Change, Refused, SetElsewhere
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._loops import check_flow, guards, period, read_outside, statements_at

# As the rules' own fixes have it: a tenth of what it took is left.
TIMES: Final = 10
_STEERS: Final = {"step", "update", "load_state_dict", "backward", "report", "should_stop"}
_DRAWS: Final = (
    "random.", "numpy.random.", "torch.rand", "torch.normal", "torch.bernoulli",
    "torch.multinomial",
)  # fmt: skip
_TELLS: Final = {"info", "debug", "log", "add_scalar", "set_postfix", "write"}


def change(source: Source, wanted: Wanted) -> Change:
    """Change the condition around what was found."""
    some: list[ast.AST] = [*statements_at(source, wanted)]
    for function in source.module.body:
        if isinstance(function, Function) and wanted.at(source, function):
            some += source.uses(function)
    for piece in some:
        for guard in guards(source, piece, None):
            if (found := period(guard.test)) is not None and source.loops(guard):
                return _thinned(source, guard, found)
    raise Refused(
        "no condition such as `step % 100 == 0` stands around it", next(iter(wanted.lines), None)
    )


def _thinned(source: Source, guard: ast.If, modulo: ast.BinOp) -> Change:
    number = modulo.right
    if guard.orelse:
        raise Refused("the condition has an else", guard)
    check_flow(source, [guard])
    for node in inside(*guard.body):
        if isinstance(node, ast.Call) and is_call_of_method(node, *_STEERS):
            raise Refused(f"what it comes to steers the training ({dotted(node.func)})", guard)
    # Refuse where a value that comes later than before would be missed, or steers anything.
    begins = source.line(source.loops(guard)[-1])
    code = source.function(guard) or source.module
    before = {name_of(x) for x in sets(code) if source.line(x) < begins}
    for use in read_outside(source, [guard]):
        if use.id not in before:
            raise Refused(f"{use.id} is read elsewhere, and not set before the loop", use)
        around = source.within_statement(use)
        if source.loops(use) and not any(_is_shown(source, x) for x in around):
            raise Refused(f"{use.id} steers what else the loop does", use)
    if "torch" in source.words:
        _check_models(source, guard.body, seen=set())
    known, text = source.constant(number), source.code(number)
    if not is_plain(known) or not isinstance(number, ast.Constant | ast.Name):
        raise SetElsewhere("its period", number, "ten times as large", guard, times=TIMES)
    if ast.literal_eval(known) < 2:  # type: ignore[arg-type]
        raise Refused("how often it comes is no plain number", guard)
    found = Change(source)
    if isinstance(number, ast.Constant):
        new = words = str(TIMES * ast.literal_eval(number))
    else:
        new, words = f"({TIMES} * {text})", f"{TIMES} * {text}"
    found.replace(number, new)
    found.notes.append(f"It comes every {words} steps, not every {text}.")
    return found


def _check_models(
    source: Source, code: list[ast.stmt], seen: set[ast.AST], *, is_eval: bool = False
) -> None:
    """Refuse where a model is called as in training: that changes it, and draws random numbers."""
    calls = [node for node in inside(*code) if isinstance(node, ast.Call)]
    is_eval = is_eval or any(is_call_of_method(x, "eval") for x in calls)
    for call in calls:
        full = source.imported(call.func)
        if full is not None and full.startswith(_DRAWS):
            raise Refused(f"it draws random numbers, as training does ({full})", call)
        own = _own(source, call.func)
        if own is not None and own not in seen:
            _check_models(source, own.body, {*seen, own}, is_eval=is_eval)
        elif own is None and full is None and not is_eval and _is_object(source, call.func):
            name = dotted(call.func)
            raise Refused(f"{name} may be a model that is called as in training (no eval())", call)


def _own(source: Source, called: ast.expr) -> Function | None:
    """Return the function of this file, or the method of this class, that is called."""
    of = source.class_of(called)
    if isinstance(called, ast.Attribute) and dotted(called).count(".") == 1 and of is not None:
        return next((x for x in of.body if isinstance(x, Function) and x.name == called.attr), None)
    return source.defined(called)


def _is_object(source: Source, called: ast.expr) -> bool:
    """Tell whether something is called that is no function by its name: `model`, `self.model`."""
    if isinstance(called, ast.Name):
        return source.definition(called) is None
    return is_of_self(called)


def _is_shown(source: Source, above: ast.AST) -> bool:
    return isinstance(above, ast.Call) and (
        source.means(above.func, "print", "max", "min") or last(above) in _TELLS
    )


codemod = Codemod(
    title="It comes a tenth as often", rules=("checkpoint_blocks", "validation_too_long")
)
