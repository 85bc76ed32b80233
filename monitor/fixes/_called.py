"""Functions of the user's: what a call calls, what that reaches, and what it is given."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._pieces import inside
from whyidle.monitor.fixes._source import Source


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
