"""Arrays that every step gets from the host are put on the device once."""

from __future__ import annotations

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import training_loop
from whyidle.monitor.fixes._source import Loop, Source


def change(source: Source, wanted: Wanted) -> Change:
    """Put what a compiled function is given again and again on the device."""
    put = source.spelt("jax.device_put")
    if put is None:
        raise NotHere
    names: dict[str, cst.Name] = {}
    for call in source.calls:
        loop = training_loop(source, call)
        if loop is None or not _is_compiled(source, call.func):
            continue
        if wanted.lines and not any(source.covers(source.statement(call), x) for x in wanted.lines):
            continue
        for arg in call.args:
            if isinstance(arg.value, cst.Name) and _is_constant(source, arg.value, loop):
                names.setdefault(arg.value.value, arg.value)
    if not names:
        raise NotHere
    found = Change()
    done: set[cst.CSTNode] = set()
    for name in names.values():
        assign = next(
            x for x in source.around(source.assigned(name)[0]) if isinstance(x, cst.Assign)
        )
        if assign in done:
            continue
        done.add(assign)
        _check(source, assign, set(names))
        found.edits[assign.value] = lambda old: cst.Call(cst.parse_expression(put), [cst.Arg(old)])
    found.notes.append("The data stays in the device's memory: it must fit there.")
    return found


def _is_compiled(source: Source, func: cst.BaseExpression) -> bool:
    known = source.definition(func)
    if isinstance(known, cst.FunctionDef):
        return any(
            source.means(mark.decorator, "jax.jit") or "jax.jit" in source.code(mark)
            for mark in known.decorators
        )
    if isinstance(func, cst.Name):
        try:
            made = source.value(func)
        except KeyError:
            return False
        return isinstance(made, cst.Call) and source.means(made.func, "jax.jit")
    return False


def _is_constant(source: Source, name: cst.Name, loop: Loop) -> bool:
    """Tell whether a name is set once, before the loop, by something that is called."""
    places = source.assigned(name)
    if len(places) != 1 or source.is_shared(name) or not isinstance(places[0], cst.Name):
        return False
    assign = next((x for x in source.around(places[0]) if isinstance(x, cst.Assign)), None)
    if assign is None or len(assign.targets) != 1 or not isinstance(assign.value, cst.Call):
        return False
    on_device = source.imported(assign.value.func) or ""
    known = source.definition(assign.value.func)
    made_by_jax = on_device.startswith("jax.") or (
        isinstance(known, cst.FunctionDef) and "device_put" in source.code(known)
    )
    return not made_by_jax and not any(each is loop for each in source.loops(assign))


def _check(source: Source, assign: cst.Assign, names: set[str]) -> None:
    """Refuse arrays that the program uses, or changes, as arrays of the host."""
    target = assign.targets[0].target
    elements = [x.value for x in target.elements] if isinstance(target, cst.Tuple) else [target]
    for each in elements:
        if not isinstance(each, cst.Name) or each.value not in names:
            raise Refused("it is set together with what stays on the host", source.line(assign))
        for use in source.uses(each):
            above = source.parent(use)
            call = source.parent(above) if isinstance(above, cst.Arg) else None
            if not isinstance(call, cst.Call) or not (
                _is_compiled(source, call.func) or source.means(call.func, "len")
            ):
                raise Refused(f"{each.value} is used on the host, too", source.line(use))


codemod = Codemod(
    title="The data is put on the device once",
    rules=("host_resident_data",),
    change=change,
)
