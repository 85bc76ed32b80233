"""Functions of the user's: what a call calls, what that reaches, and what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._pieces import argument, inside
from whyidle.monitor.fixes._source import Source

_TRANSFORMS: Final = ("jax.grad", "jax.value_and_grad", "jax.jit", "jax.checkpoint")


def called(source: Source, call: cst.Call) -> cst.FunctionDef | None:
    """Return what a call calls, also by another name: ``update = step``."""
    known = source.definition(call.func)
    if known is None and isinstance(call.func, cst.Name):
        try:
            other = source.value(call.func)
        except KeyError:
            return None
        known = None if other is None else source.definition(other)
    return known if isinstance(known, cst.FunctionDef) else None


def reached(
    source: Source, function: cst.FunctionDef, seen: frozenset[str] = frozenset()
) -> Iterator[cst.FunctionDef]:
    """Yield a function, and those of the module that it uses."""
    yield function
    if function.name.value in seen:
        return
    for node in inside(function.body):
        if isinstance(node, cst.Name):
            known = source.definition(node)
            if isinstance(known, cst.FunctionDef) and known is not function:
                yield from reached(source, known, seen | {function.name.value})


def check_argument(source: Source, arg: cst.Arg, call: cst.Call, arrays: tuple[str, ...]) -> None:
    """Refuse an argument that may be anything but an array, or a tree of them."""
    where = source.line(call)
    if arg.star == "**":
        raise Refused("it is called with **", where)
    if arg.keyword is not None:
        raise Refused("it is called with arguments by name", where)
    value = arg.value
    known = value
    if isinstance(value, cst.Name):
        try:
            known = source.value(value) or value
        except KeyError:
            known = value
    if isinstance(
        known, cst.SimpleString | cst.FormattedString | cst.Lambda | cst.ConcatenatedString
    ):
        raise Refused("it is called with text, or with a function", where)
    if isinstance(known, cst.Integer) or counts(source, value):
        raise Refused("it is called with a whole number, which may be a size", where)
    if isinstance(known, cst.Name) and source.means(known, "None", "True", "False"):
        raise Refused(f"it is called with {known.value}", where)
    if source.definition(known) is not None or source.imported(known) is not None:
        raise Refused(f"it is called with {source.code(value)}, which is no array", where)
    made = known.func if isinstance(known, cst.Call) else None
    of = None if made is None else source.definition(made)
    if isinstance(of, cst.ClassDef):
        raise Refused(f"it is called with an object of {of.name.value}", where)
    name = None if made is None else source.imported(made)
    if name is not None and not name.startswith(arrays) and name not in {
        "list", "tuple", "dict", "next", "float", "int", "len",
    }:  # fmt: skip
        raise Refused(f"it is called with what {name} returns", where)


def counts(source: Source, value: cst.BaseExpression) -> bool:
    """Tell whether a name counts: by ``range`` or ``enumerate``, or as one is added to it."""
    if not isinstance(value, cst.Name):
        return False
    try:
        places = source.assigned(value)
    except KeyError:
        return False
    for place in places:
        loop = next((x for x in source.around(place) if isinstance(x, cst.For | cst.Assign)), None)
        if isinstance(source.parent(place), cst.AugAssign):
            return True
        if isinstance(loop, cst.For) and isinstance(loop.iter, cst.Call):
            if source.means(loop.iter.func, "range", "itertools.count"):
                return True
            first = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) else None
            if source.means(loop.iter.func, "enumerate") and first is place:
                return True
    return False


def given_to(source: Source, param: cst.Param) -> Iterator[cst.BaseExpression | None]:
    """Yield what each call gives a parameter; ``None`` for a use that is no plain call."""
    function = source.function(param)
    if not isinstance(function, cst.FunctionDef) or param not in function.params.params:
        yield None
        return
    number, name = list(function.params.params).index(param), function.name
    of = next((x for x in source.around(function) if isinstance(x, cst.ClassDef)), None)
    if of is not None and name.value == "__init__":
        number, name = number - 1, of.name
    for use in source.uses(name):
        func, call = use, source.parent(use)
        made = source.parent(call) if isinstance(call, cst.Arg) else None
        if isinstance(made, cst.Call) and source.means(made.func, *_TRANSFORMS):
            # jax.grad(f)(x): what it is given goes to the function.
            func, call = made, source.parent(made)
        if (
            not isinstance(call, cst.Call)
            or call.func is not func
            or any(arg.star for arg in call.args)
        ):
            yield None
            continue
        named = argument(call, param.name.value, number)
        yield None if named is None else named.value
