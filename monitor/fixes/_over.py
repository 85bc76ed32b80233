"""What a loop goes over, and whether it is one array: what a list has may be of several shapes."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument
from whyidle.monitor.code.source import DEEPEST
from whyidle.monitor.fixes._called import given_to
from whyidle.monitor.fixes._change import Refused

ARRAYS: Final = ("jax.Array", "jax.numpy.ndarray", "numpy.ndarray")
_MAKES: Final = ("jax.numpy.", "jax.random.", "jax.nn.", "jax.device_put")
# Lists and dicts have none of these.
_OF_ARRAYS: Final = {"shape", "ndim", "dtype", "at", "reshape", "astype", "transpose", "swapaxes"}


def length_of(source: Source, value: ast.expr) -> tuple[str, int] | None:
    """Return ``x`` and an axis of ``len(x)`` and ``x.shape[axis]``."""
    match value:
        case ast.Call(func=func, args=[ast.Name(id=name)]) if source.means(func, "len"):
            return name, 0
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
            slice=ast.Constant(value=int(axis)),
        ):
            return name, axis
        case _:
            return None


def counted(source: Source, value: ast.expr) -> ast.expr | None:
    """Return ``n`` of ``range(n)``."""
    if isinstance(value, ast.Call) and source.means(value.func, "range") and len(value.args) == 1:
        return value.args[0]
    return None


def zipped(source: Source, value: ast.expr) -> list[ast.expr]:
    """Return what a loop goes over side by side."""
    if isinstance(value, ast.Call) and source.means(value.func, "zip"):
        if len(value.args) > 1 and not source.means(argument(value, "strict"), "True"):
            raise Refused("what is zipped may be of several lengths", value)
        return value.args
    return [value]


def check_array(source: Source, value: ast.expr) -> None:
    """Refuse what may be a list."""
    if not _is_array(source, value, 0):
        raise Refused(
            f"whether {source.code(value)} is one array, and no list of them, is not certain",
            value,
        )


def _is_array(source: Source, value: ast.expr | None, depth: int) -> bool:
    deeper = depth + 1
    if depth > DEEPEST:
        return False
    match value:
        case ast.Subscript(value=of, slice=index):
            cut = isinstance(index, ast.Slice) and _is_array(source, of, deeper)
            return cut or (isinstance(index, ast.Tuple) and len(index.elts) > 1)
        case ast.Call(func=func):
            made = source.imported(func)
            if made is None and isinstance(func, ast.Attribute):
                return func.attr in _OF_ARRAYS and _is_array(source, func.value, deeper)
            return made is not None and made.startswith(_MAKES)
        case ast.BinOp(left=left, right=right):
            # A list times an array is an array as well.
            return _is_array(source, left, deeper) or _is_array(source, right, deeper)
        case ast.Name():
            places = source.assigned(value)
            if source.is_shared(value):
                return False
            if any(_says_array(source, use) for use in source.uses(value)) and len(places) == 1:
                return True
            return bool(places) and all(_is_set_to_array(source, x, depth) for x in places)
        case _:
            return False


def _says_array(source: Source, use: ast.Name) -> bool:
    match source.parent(use):
        case ast.Attribute(attr=attr):
            return attr in _OF_ARRAYS
        case ast.Subscript(value=of, slice=ast.Tuple(elts=parts)):
            return of is use and any(isinstance(x, ast.Slice) for x in parts)
        case _:
            return False


def _is_set_to_array(source: Source, place: ast.AST, depth: int) -> bool:
    if isinstance(place, ast.arg):
        if place.annotation is not None:
            return source.means(place.annotation, *ARRAYS)
        given = list(given_to(source, place))
        return bool(given) and all(x is not None and _is_array(source, x, depth + 1) for x in given)
    return _is_array(source, source.set_to(place), depth + 1)


def is_whole(index: ast.expr) -> bool:
    """Tell whether an index leaves an axis as it is: ``[:]``."""
    return isinstance(index, ast.Slice) and index.lower is index.upper is index.step is None


def indices(node: ast.Subscript) -> list[ast.expr]:
    """Return what stands between the brackets."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
