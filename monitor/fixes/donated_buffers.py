"""A compiled step takes over the buffers of a state that its caller replaces at once."""

from __future__ import annotations

from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import targets
from whyidle.monitor.fixes._pieces import argument, inside, names_in, with_argument
from whyidle.monitor.fixes._source import Source

_KEEPS: Final = {
    "append",
    "add",
    "put",
    "extend",
    "insert",
    "setdefault",
    "submit",
    "save",
    "update",
}
ALIASED: Final = "the state may be held by another name, too"


def change(source: Source, wanted: Wanted) -> Change:
    """Donate the arguments that every call of the step replaces."""
    jitted = _jitted(source)
    here = [
        (call, name) for call, name in jitted
        if not wanted.lines or any(_is_of(source, call, name, line) for line in wanted.lines)
    ]  # fmt: skip
    if not here:
        raise NotHere
    if len(here) > 1:
        raise Refused("several compiled functions, and it is not certain which one it is",
                      source.line(here[1][0]))  # fmt: skip
    call, name = here[0]
    places = _replaced(source, name)
    found = Change()
    text = f"({', '.join(str(x) for x in places)}{',' * (len(places) == 1)})"
    if isinstance(call, cst.Call):
        found.edits[call] = lambda old: with_argument(old, "donate_argnums", text)
    else:
        found.edits[call] = _decorated(source, call, text, found)
    found.notes.append("The old state cannot be read after the call that replaces it.")
    return found


def _jitted(source: Source) -> list[tuple[cst.CSTNode, cst.Name]]:
    """Return what compiles, and the name of what is compiled."""
    found: list[tuple[cst.CSTNode, cst.Name]] = []
    for call in source.calls_of("jax.jit"):
        above = source.parent(call)
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            target = above.targets[0].target
            if isinstance(target, cst.Name):
                found.append((call, target))
    for node in source.everything:
        if isinstance(node, cst.Decorator):
            function = source.parent(node)
            mark = node.decorator
            is_partial = isinstance(mark, cst.Call) and source.means(mark.func, "functools.partial")
            of = (
                mark.args[0].value
                if is_partial and isinstance(mark, cst.Call) and mark.args
                else mark
            )
            if source.means(of, "jax.jit") and isinstance(function, cst.FunctionDef):
                found.append((mark if is_partial else node, function.name))
    return [
        (call, name) for call, name in found
        if not (isinstance(call, cst.Call)
                and (argument(call, "donate_argnums") or argument(call, "donate_argnames")))
    ]  # fmt: skip


def _is_of(source: Source, call: cst.CSTNode, name: cst.Name, line: int) -> bool:
    if source.covers(source.statement(call), line):
        return True
    given = call.args[0].value if isinstance(call, cst.Call) and call.args else None
    known = source.definition(name) or (None if given is None else source.definition(given))
    if known is not None and source.covers(known, line):
        return True
    return any(source.covers(source.statement(use), line) for use in source.uses(name))


def _replaced(source: Source, name: cst.Name) -> list[int]:
    """Return the places of the arguments that every call replaces by what it returns."""
    common: set[int] | None = None
    if len(source.assigned(name)) != 1:
        raise Refused(f"{name.value} is set more than once", source.line(name))
    for use in source.uses(name):
        call = source.parent(use)
        if not isinstance(call, cst.Call) or call.func is not use:
            raise Refused(f"{name.value} is handed on", source.line(use))
        statement = source.parent(call)
        if not isinstance(statement, cst.Assign) or any(
            arg.star or arg.keyword for arg in call.args
        ):
            raise Refused("a call does not replace what it is given", source.line(call))
        given_names = [x.value.value for x in call.args if isinstance(x.value, cst.Name)]
        if len(given_names) != len(set(given_names)):
            raise Refused("a call gets one value twice", source.line(call))
        new = {x.value for target in statement.targets for x in targets(target.target)}
        mine = {
            place for place, arg in enumerate(call.args)
            if isinstance(arg.value, cst.Name) and arg.value.value in new
        }  # fmt: skip
        common = mine if common is None else common & mine
        for place in mine:
            given = call.args[place].value
            if isinstance(given, cst.Name):
                _check_alone(source, given)
    if not common:
        raise Refused("no call replaces what it is given", source.line(name))
    return sorted(common)


def _check_alone(source: Source, name: cst.Name) -> None:
    """Refuse a state that another name, a list or an object may still hold."""
    if source.is_shared(name):
        raise Refused(ALIASED, source.line(name))
    for use in source.uses(name):
        above = source.parent(use)
        if isinstance(
            above, cst.Assign | cst.AnnAssign | cst.Element | cst.DictElement | cst.NamedExpr
        ):
            raise Refused(ALIASED, source.line(use))
        call = source.parent(above) if isinstance(above, cst.Arg) else None
        if isinstance(call, cst.Call):
            is_method = isinstance(call.func, cst.Attribute)
            word = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
            called = word.value if isinstance(word, cst.Name) else ""
            if (
                (is_method and called in _KEEPS)
                or called[:1].isupper()
                or called in {"list", "tuple", "dict"}
            ):
                raise Refused(ALIASED, source.line(use))
    for place in source.assigned(name):
        if isinstance(place, cst.Param):
            raise Refused(
                "the state comes from the caller, who may still hold it", source.line(place)
            )
        assign = next(
            (x for x in source.around(place) if isinstance(x, cst.Assign | cst.For)), None
        )
        if isinstance(assign, cst.For):
            raise Refused("the state comes from a loop", source.line(assign))
        if isinstance(assign, cst.Assign):
            _check_made(source, assign.value)


def _check_made(source: Source, value: cst.BaseExpression) -> None:
    """Refuse a first state that may hold one array twice, or is held by who made it."""
    if isinstance(value, cst.Name | cst.Attribute | cst.Subscript):
        raise Refused(ALIASED, source.line(value))
    if not isinstance(value, cst.Call):
        for name in names_in(value) if isinstance(value, cst.Tuple) else ():
            if isinstance(source.parent(name), cst.Element):
                raise Refused(ALIASED, source.line(value))
        return
    function = source.definition(value.func)
    if not isinstance(function, cst.FunctionDef):
        return
    for node in inside(function.body):
        if isinstance(node, cst.Return) and node.value is not None:
            returned = [x.value for x in names_in(node.value)
                        if isinstance(source.parent(x), cst.Element | cst.Return)]  # fmt: skip
            if len(returned) != len(set(returned)):
                raise Refused("the first state has one array twice", source.line(node))
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Name):
            raise Refused("the first state may have one array twice", source.line(node))
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
            if isinstance(node.left, cst.List) or isinstance(node.right, cst.List):
                of = node.left if isinstance(node.left, cst.List) else node.right
                if any(isinstance(x, cst.Call) for x in inside(of)):
                    raise Refused("the first state may have one array twice", source.line(node))


def _decorated(source: Source, mark: cst.CSTNode, text: str, found: Change) -> Any:
    if not isinstance(mark, cst.Decorator):
        raise NotHere
    partial = found.spelling(source, "functools.partial", mark)
    jit = source.code(mark.decorator)
    new = cst.parse_expression(f"{partial}({jit}, donate_argnums={text})")
    return lambda old: old.with_changes(decorator=new)


codemod = Codemod(
    title="The step takes over the buffers of its state",
    rules=("buffers_not_donated",),
    change=change,
)
