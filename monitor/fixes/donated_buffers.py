"""A compiled step takes over the buffers of a state that its caller replaces at once."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, inside, name_of, names_set
from whyidle.monitor.code.source import Function, last
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted

_KEEPS: Final = {"append", "add", "put", "extend", "insert", "setdefault", "submit", "save",
                 "update"}  # fmt: skip
_HOLDS: Final = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Tuple, ast.List, ast.Set, ast.Dict)
_SETS: Final = (ast.Assign, ast.For, ast.AsyncFor)
ALIASED: Final = "the state may be held by another name, too"


def change(source: Source, wanted: Wanted) -> Change:
    """Donate the arguments that every call of the step replaces."""
    here = [
        x for x in _jitted(source) if not wanted.lines or wanted.at(source, *_pieces(source, *x))
    ]
    if not here:
        raise NotHere
    if len(here) > 1:
        raise Refused("several compiled functions, and it is not certain which one it is",
                      here[1][0])  # fmt: skip
    mark, name = here[0]
    places = _replaced(source, name)
    found = Change(source)
    text = f"({', '.join(str(x) for x in places)}{',' * (len(places) == 1)})"
    if isinstance(mark, ast.Call):
        found.argument(mark, "donate_argnums", text)
    else:
        partial, jit = found.spelling("functools.partial", mark), source.code(mark)
        found.replace(mark, f"{partial}({jit}, donate_argnums={text})")
    found.notes.append("The old state cannot be read after the call that replaces it.")
    return found


def _jitted(source: Source) -> list[tuple[ast.expr, ast.AST]]:
    """Return what compiles, and what has the name of what is compiled."""
    found: list[tuple[ast.expr, ast.AST]] = []
    for call in source.calls_of("jax.jit"):
        match source.parent(call):
            case ast.Assign(targets=[ast.Name() as name]):
                found.append((call, name))
            case _:
                pass
    for function in source.everything:
        for mark in function.decorator_list if isinstance(function, Function) else ():
            is_partial = isinstance(mark, ast.Call) and source.means(mark.func, "functools.partial")
            of = mark.args[0] if is_partial and mark.args else mark  # type: ignore[attr-defined]
            if source.means(of, "jax.jit"):
                found.append((mark, function))
    return [(mark, name) for mark, name in found if not _donates(mark)]


def _donates(mark: ast.expr) -> bool:
    names = ("donate_argnums", "donate_argnames")
    return isinstance(mark, ast.Call) and any(argument(mark, x) is not None for x in names)


def _pieces(source: Source, mark: ast.expr, name: ast.AST) -> list[ast.AST]:
    """Return where something compiled is made and used."""
    given = mark.args[0] if isinstance(mark, ast.Call) and mark.args else None
    known = name if isinstance(name, Function) else source.definition(given)
    used: list[ast.AST] = [source.statement(x) for x in (mark, *source.uses(name))]
    return [*used, *([] if known is None else [known])]


def _replaced(source: Source, name: ast.AST) -> list[int]:
    """Return the places of the arguments that every call replaces by what it returns."""
    common: set[int] | None = None
    if len(source.assigned(name)) != 1:
        raise Refused(f"{name_of(name)} is set more than once", name)
    for use in source.uses(name):
        call = source.parent(use)
        if not isinstance(call, ast.Call) or call.func is not use:
            raise Refused(f"{name_of(name)} is handed on", use)
        statement = source.parent(call)
        is_plain = not call.keywords and not any(isinstance(x, ast.Starred) for x in call.args)
        if not isinstance(statement, ast.Assign) or not is_plain:
            raise Refused("a call does not replace what it is given", call)
        given = {place: x for place, x in enumerate(call.args) if isinstance(x, ast.Name)}
        if len(given) != len({x.id for x in given.values()}):
            raise Refused("a call gets one value twice", call)
        new = names_set(*statement.targets)
        mine = {place for place, x in given.items() if x.id in new}
        common = mine if common is None else common & mine
        for place in mine:
            _check_alone(source, given[place])
    if not common:
        raise Refused("no call replaces what it is given", name)
    return sorted(common)


def _check_alone(source: Source, name: ast.Name) -> None:
    """Refuse a state that another name, a list or an object may still hold."""
    if source.is_shared(name):
        raise Refused(ALIASED, name)
    for use in source.uses(name):
        call = source.call_with(use)
        word = "" if call is None else last(call)
        is_kept = call is not None and isinstance(call.func, ast.Attribute) and word in _KEEPS
        is_held = is_kept or word[:1].isupper() or word in {"list", "tuple", "dict"}
        if is_held or isinstance(source.parent(use), _HOLDS):
            raise Refused(ALIASED, use)
    for place in source.assigned(name):
        if isinstance(place, ast.arg):
            raise Refused("the state comes from the caller, who may still hold it", place)
        statement = next((x for x in source.around(place) if isinstance(x, _SETS)), None)
        if isinstance(statement, ast.Assign):
            _check_made(source, source.set_to(place) or statement.value)
        elif statement is not None:
            raise Refused("the state comes from a loop", statement)


def _check_made(source: Source, value: ast.expr) -> None:
    """Refuse a first state that may hold one array twice, or is held by who made it."""
    is_named = isinstance(value, ast.Name | ast.Attribute | ast.Subscript)
    parts = inside(value) if isinstance(value, ast.Tuple) else ()
    if is_named or any(
        isinstance(x, ast.Name) and isinstance(source.parent(x), _HOLDS) for x in parts
    ):
        raise Refused(ALIASED, value)
    function = source.defined(value.func) if isinstance(value, ast.Call) else None
    for node in inside(*function.body) if function is not None else ():
        match node:
            case ast.Return(value=ast.expr() as value):
                named = [
                    x.id
                    for x in inside(value)
                    if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)
                    if isinstance(source.parent(x), (*_HOLDS, ast.Return))
                ]
                if len(named) != len(set(named)):
                    raise Refused("the first state has one array twice", node)
            case ast.Assign(value=ast.Name()):
                raise Refused("the first state may have one array twice", node)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                lists = [x for x in (left, right) if isinstance(x, ast.List)]
                if any(isinstance(x, ast.Call) for x in inside(*lists)):
                    raise Refused("the first state may have one array twice", node)
            case _:
                pass


codemod = Codemod(
    title="The step takes over the buffers of its state", rules=("buffers_not_donated",)
)
