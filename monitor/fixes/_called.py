"""Functions of the user's: what a call calls, what that reaches, and what it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, has_stars, inside, is_plain
from whyidle.monitor.code.source import Function
from whyidle.monitor.fixes._change import NotHere, Refused
from whyidle.monitor.fixes._codemod import Wanted

# What the names of functions begin with whose results are arrays.
Arrays = tuple[str, ...]
_TRANSFORMS: Final = ("jax.grad", "jax.value_and_grad", "jax.jit", "jax.checkpoint")
_PLAIN: Final = {"list", "tuple", "dict", "next", "float", "int", "len"}


def called(source: Source, call: ast.Call) -> Function | None:
    """Return what a call calls, also by another name: ``update = step``."""
    return source.defined(call.func) or source.defined(source.value(call.func))


def reached(
    source: Source, function: Function, seen: frozenset[str] = frozenset()
) -> Iterator[Function]:
    """Yield a function, and those of the module that it uses."""
    yield function
    if function.name in seen:
        return
    for node in inside(*function.body):
        known = source.defined(node)
        if known is not None and known is not function:
            yield from reached(source, known, seen | {function.name})


def step_of(
    source: Source, calls: list[ast.Call], wanted: Wanted, *by: str, or_called: bool = False
) -> Function:
    """Return the one function that is called here, leads to what was found, and to one of these.

    ``or_called``: what was found may be where it is called.
    """
    steps: list[Function] = []
    for call in calls:
        function = called(source, call)
        if function is None or not source.is_of_top(function) or function in steps:
            continue
        below = set(reached(source, function))
        nodes = inside(*(line for each in below for line in each.body))
        takes = any(isinstance(x, ast.Call) and source.means(x.func, *by) for x in nodes)
        here = wanted.at(source, *below) or (
            or_called and wanted.at(source, source.statement(call))
        )
        if takes and (here or not wanted.lines):
            steps.append(function)
    if not steps:
        raise NotHere
    if len(steps) > 1:
        raise Refused("several functions of the loop have what was found", steps[1])
    return steps[0]


def plain_params(function: Function) -> list[ast.arg]:
    """Return the plain parameters; refuse others."""
    given = function.args
    if given.vararg is not None or given.kwarg is not None:
        raise Refused("the function takes * or **")
    if given.kwonlyargs:
        raise Refused("the function takes arguments by name only")
    if given.defaults:
        params = [*given.posonlyargs, *given.args]
        param = params[-len(given.defaults)]
        raise Refused(f"{param.arg} has a default", param.lineno)
    return [*given.posonlyargs, *given.args]


def check_arguments(source: Source, call: ast.Call, arrays: Arrays) -> None:
    """Refuse a call with anything but arrays, or trees of them."""
    if call.keywords:
        how = "**" if call.keywords[0].arg is None else "arguments by name"
        raise Refused(f"it is called with {how}", call)
    for each in call.args:
        value = each.value if isinstance(each, ast.Starred) else each
        known = source.constant(value)
        if isinstance(known, ast.Lambda | ast.JoinedStr) or is_plain(known, str, bytes):
            raise Refused("it is called with text, or with a function", call)
        if is_plain(known) or _counts(source, value):
            raise Refused("it is called with a whole number, which may be a size", call)
        if source.definition(known) is not None or source.imported(known) is not None:
            raise Refused(f"it is called with {source.code(value)}, which is no array", call)
        made = known.func if isinstance(known, ast.Call) else None
        of = source.definition(made)
        if isinstance(of, ast.ClassDef):
            raise Refused(f"it is called with an object of {of.name}", call)
        name = source.imported(made)
        if name is not None and not name.startswith(arrays) and name not in _PLAIN:
            raise Refused(f"it is called with what {name} returns", call)


def _counts(source: Source, value: ast.expr) -> bool:
    """Tell whether a name counts: by ``range`` or ``enumerate``, or as one is added to it."""
    for place in source.assigned(value) if isinstance(value, ast.Name) else ():
        if isinstance(source.parent(place), ast.AugAssign):
            return True
        loop = source.statement(place)
        over = loop.iter if isinstance(loop, ast.For) else None
        if isinstance(loop, ast.For) and isinstance(over, ast.Call):
            if source.means(over.func, "range", "itertools.count"):
                return True
            first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
            if source.means(over.func, "enumerate") and first is place:
                return True
    return False


def given_to(source: Source, param: ast.arg) -> Iterator[ast.expr | None]:
    """Yield what each call gives a parameter; ``None`` for a use that is no plain call."""
    function = source.function(param)
    if not isinstance(function, Function) or param not in function.args.args:
        yield None
        return
    number = function.args.args.index(param)
    made_of: ast.AST = function
    of = source.class_of(function)
    if of is not None and function.name == "__init__":
        number, made_of = number - 1, of
    for use in source.uses(made_of):
        call, made = source.parent(use), source.call_with(use)
        if made is not None and source.means(made.func, *_TRANSFORMS):
            # jax.grad(f)(x): what it is given goes to the function.
            call = source.parent(made)
        if not isinstance(call, ast.Call) or call.func not in (use, made) or has_stars(call):
            yield None
        else:
            yield argument(call, param.arg, number)
