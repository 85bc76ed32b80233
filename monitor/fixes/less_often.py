"""A checkpoint or a validation that a condition lets in comes a tenth as often."""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, Refused, Wanted
from whyidle.monitor.fixes._loops import (
    check_flow,
    guards,
    period,
    read_outside,
    sets,
    statements_at,
)
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._source import Source

TIMES: Final = 10
_STEERS: Final = {"step", "update", "load_state_dict", "backward", "report", "should_stop"}
_DRAWS: Final = (
    "random.", "numpy.random.", "torch.rand", "torch.normal", "torch.bernoulli",
    "torch.multinomial",
)  # fmt: skip
_SHOWS: Final = ("print", "max", "min")


def change(source: Source, wanted: Wanted) -> Change:
    """Change the condition around what was found."""
    for statement in statements_at(source, wanted):
        for guard in guards(source, statement, None):
            if (found := period(source, guard.test)) is not None and source.loops(guard):
                return _thinned(source, guard, *found)
    for name in {x for line in wanted.lines for x in _callers(source, line)}:
        for use in source.uses(name):
            for guard in guards(source, use, None):
                if (found := period(source, guard.test)) is not None and source.loops(guard):
                    return _thinned(source, guard, *found)
    raise Refused(
        "no condition such as `step % 100 == 0` stands around it", next(iter(wanted.lines), None)
    )


def _callers(source: Source, line: int) -> list[cst.Name]:
    """Return the name of the function that a line is in, where it is one of the module."""
    return [
        node.name for node in source.everything
        if isinstance(node, cst.FunctionDef) and source.covers(node, line)
        and source.parent(node) is source.module
    ]  # fmt: skip


def _thinned(
    source: Source, guard: cst.If, modulo: cst.BinaryOperation, number: cst.BaseExpression
) -> Change:
    where = source.line(guard)
    if guard.orelse is not None:
        raise Refused("the condition has an else", where)
    check_flow(source, [guard])
    for node in inside(guard.body):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value in _STEERS:
                raise Refused(f"what it comes to steers the training ({dotted(node.func)})", where)
    _check_reads(source, guard)
    if "torch" in source.words:
        _check_models(source, guard.body, seen=set())
    change = Change()
    known = source.constant(number)
    if isinstance(number, cst.Integer):
        new: cst.BaseExpression = cst.Integer(str(TIMES * int(number.value.replace("_", ""), 0)))
        words = f"every {number.value}", f"every {new.value}"  # type: ignore[attr-defined]
    elif isinstance(number, cst.Name) and isinstance(known, cst.Integer):
        new = cst.parse_expression(f"({TIMES} * {number.value})")
        words = f"every {number.value}", f"every {TIMES} * {number.value}"
    else:
        raise Refused("how often it comes is decided elsewhere", where)
    if int(getattr(known, "value", "0").replace("_", ""), 0) < 2:
        raise Refused("how often it comes is no plain number", where)
    change.edits[modulo] = lambda old: old.with_changes(right=new)
    change.notes.append(f"It comes {words[1]} steps, not {words[0]}.")
    return change


def _check_models(
    source: Source, place: cst.CSTNode, seen: set[cst.CSTNode], *, is_eval: bool = False
) -> None:
    """Refuse where a model is called as in training: that changes it, and draws random numbers."""
    calls = [node for node in inside(place) if isinstance(node, cst.Call)]
    is_eval = is_eval or any(
        isinstance(x.func, cst.Attribute) and x.func.attr.value == "eval" for x in calls
    )
    for call in calls:
        where, full = source.line(call), source.imported(call.func)
        if full is not None and full.startswith(_DRAWS):
            raise Refused(f"it draws random numbers, as training does ({full})", where)
        own = _own(source, call.func)
        if own is not None and own not in seen:
            _check_models(source, own, {*seen, own}, is_eval=is_eval)
        elif own is None and full is None and not is_eval and _is_object(source, call.func):
            name = dotted(call.func)
            raise Refused(f"{name} may be a model that is called as in training (no eval())", where)


def _own(source: Source, called: cst.BaseExpression) -> cst.FunctionDef | None:
    """Return the function of this file, or the method of this class, that is called."""
    if isinstance(called, cst.Attribute) and dotted(called).count(".") == 1:
        for above in source.around(called):
            if isinstance(above, cst.ClassDef):
                named = [x for x in above.body.body if isinstance(x, cst.FunctionDef)]
                return next((x for x in named if x.name.value == called.attr.value), None)
    found = source.definition(called)
    return found if isinstance(found, cst.FunctionDef) else None


def _is_object(source: Source, called: cst.BaseExpression) -> bool:
    """Tell whether something is called that is no function by its name: `model`, `self.model`."""
    if isinstance(called, cst.Name):
        return source.definition(called) is None
    return dotted(called).startswith("self.") and dotted(called).count(".") == 1


def _check_reads(source: Source, guard: cst.If) -> None:
    """Refuse where a value that comes later than before would be missed, or steers anything."""
    begins = source.line(source.loops(guard)[-1])
    before = {
        name.value
        for name in sets(source.function(guard) or source.module)
        if source.line(name) < begins
    }
    for use in read_outside(source, [guard]):
        loops = source.loops(use)
        if use.value not in before:
            raise Refused(f"{use.value} is read elsewhere, and not set before the loop",
                          source.line(use))  # fmt: skip
        if loops and not _is_shown(source, use):
            raise Refused(f"{use.value} steers what else the loop does", source.line(use))


def _is_shown(source: Source, use: cst.Name) -> bool:
    for above in source.around(use):
        if isinstance(above, cst.Call):
            name = dotted(above.func)
            if source.means(above.func, *_SHOWS) or name.rpartition(".")[2] in {
                "info", "debug", "log", "add_scalar", "set_postfix", "write",
            }:  # fmt: skip
                return True
        if isinstance(above, cst.BaseStatement):
            return False
    return False


codemod = Codemod(
    title="It comes a tenth as often",
    rules=("checkpoint_blocks", "validation_too_long"),
    change=change,
)
