"""Arrays that every step gets from the host are put on the device once."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.source import arguments
from whyidle.monitor.code.trains import Loop
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted


def change(source: Source, wanted: Wanted) -> Change:
    """Put what a compiled function is given again and again on the device."""
    put = source.spelt("jax.device_put")
    if put is None:
        raise NotHere
    assigns: dict[str, ast.Assign] = {}
    for call in source.calls:
        loop = source.training_loop(call)
        if loop is None or not _is_compiled(source, call.func):
            continue
        if not wanted.fits(source, source.statement(call)):
            continue
        for value in arguments(call):
            assign = _set_once(source, value, loop)
            if assign is not None and isinstance(value, ast.Name):
                assigns[value.id] = assign
    if not assigns:
        raise NotHere
    found = Change(source)
    for assign in dict.fromkeys(assigns.values()):
        _check(source, assign, set(assigns))
        found.surround(assign.value, f"{put}(", ")")
    found.notes.append("The data stays in the device's memory: it must fit there.")
    return found


def _is_compiled(source: Source, func: ast.expr) -> bool:
    known = source.defined(func)
    if known is not None:
        marks = known.decorator_list
        return any(source.means(x, "jax.jit") or "jax.jit" in source.code(x) for x in marks)
    made = source.value(func)
    return isinstance(made, ast.Call) and source.means(made.func, "jax.jit")


def _set_once(source: Source, name: ast.expr, loop: Loop) -> ast.Assign | None:
    """Return where a name is set, once and before the loop, by something that is called."""
    places = source.assigned(name) if isinstance(name, ast.Name) else []
    if len(places) != 1 or source.is_shared(name) or not isinstance(places[0], ast.Name):
        return None
    assign = source.statement(places[0])
    if not isinstance(assign, ast.Assign) or len(assign.targets) != 1:
        return None
    made = assign.value.func if isinstance(assign.value, ast.Call) else None
    known = source.defined(made)
    by_jax = (source.imported(made) or "").startswith("jax.") or (
        known is not None and "device_put" in source.code(known)
    )
    return None if made is None or by_jax or loop in source.loops(assign) else assign


def _check(source: Source, assign: ast.Assign, names: set[str]) -> None:
    """Refuse arrays that the program uses, or changes, as arrays of the host."""
    target = assign.targets[0]
    for each in target.elts if isinstance(target, ast.Tuple) else [target]:
        if not isinstance(each, ast.Name) or each.id not in names:
            raise Refused("it is set together with what stays on the host", assign)
        for use in source.uses(each):
            call = source.call_with(use)
            if call is None or not (
                _is_compiled(source, call.func) or source.means(call.func, "len")
            ):
                raise Refused(f"{each.id} is used on the host, too", use)


codemod = Codemod(title="The data is put on the device once", rules=("host_resident_data",))
