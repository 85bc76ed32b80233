"""What a loop goes over, and whether it is one array: what a list has may be of several shapes."""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._called import given_to
from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._pieces import argument
from whyidle.monitor.fixes._source import Source

ARRAYS: Final = ("jax.Array", "jax.numpy.ndarray", "numpy.ndarray")
_MAKES: Final = ("jax.numpy.", "jax.random.", "jax.nn.", "jax.device_put")
# Lists and dicts have none of these.
_OF_ARRAYS: Final = {"shape", "ndim", "dtype", "at", "reshape", "astype", "transpose", "swapaxes"}
_DEEPEST: Final = 4


def length_of(source: Source, value: cst.BaseExpression) -> tuple[str, int] | None:
    """Return ``x`` and an axis of ``len(x)`` and ``x.shape[axis]``."""
    if isinstance(value, cst.Call) and source.means(value.func, "len") and len(value.args) == 1:
        inner = value.args[0].value
        return (inner.value, 0) if isinstance(inner, cst.Name) else None
    if isinstance(value, cst.Subscript) and len(value.slice) == 1:
        index, of = value.slice[0].slice, value.value
        if isinstance(of, cst.Attribute) and of.attr.value == "shape":
            if isinstance(of.value, cst.Name) and isinstance(index, cst.Index):
                if isinstance(index.value, cst.Integer):
                    return of.value.value, int(index.value.value)
    return None


def counted(source: Source, value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return ``n`` of ``range(n)``."""
    if not isinstance(value, cst.Call) or not source.means(value.func, "range"):
        return None
    return value.args[0].value if len(value.args) == 1 else None


def zipped(source: Source, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return what a loop goes over side by side."""
    if isinstance(value, cst.Call) and source.means(value.func, "zip"):
        strict = argument(value, "strict")
        over = [arg.value for arg in value.args if arg is not strict]
        if len(over) > 1 and (strict is None or not source.means(strict.value, "True")):
            raise Refused("what is zipped may be of several lengths", source.line(value))
        return over
    return [value]


def check_array(source: Source, value: cst.BaseExpression) -> None:
    """Refuse what may be a list."""
    if not _is_array(source, value, 0):
        raise Refused(
            f"whether {source.code(value)} is one array, and no list of them, is not certain",
            source.line(value),
        )


def _is_array(source: Source, value: cst.BaseExpression, depth: int) -> bool:
    if depth > _DEEPEST:
        return False
    if isinstance(value, cst.Subscript):
        slices = [x.slice for x in value.slice]
        cut = all(isinstance(x, cst.Slice) for x in slices)
        return len(slices) > 1 or (cut and _is_array(source, value.value, depth + 1))
    if isinstance(value, cst.Call):
        made = source.imported(value.func)
        if made is None and isinstance(value.func, cst.Attribute):
            of = value.func
            return of.attr.value in _OF_ARRAYS and _is_array(source, of.value, depth + 1)
        return made is not None and made.startswith(_MAKES)
    if isinstance(value, cst.BinaryOperation):
        # A list times an array is an array as well.
        return _is_array(source, value.left, depth + 1) or _is_array(source, value.right, depth + 1)
    return isinstance(value, cst.Name) and _is_named_array(source, value, depth)


def _is_named_array(source: Source, name: cst.Name, depth: int) -> bool:
    try:
        places = source.assigned(name)
    except KeyError:
        return False
    if source.is_shared(name):
        return False
    if any(_says_array(source, use) for use in source.uses(name)) and len(places) == 1:
        return True
    return bool(places) and all(_is_set_to_array(source, x, depth) for x in places)


def _says_array(source: Source, use: cst.CSTNode) -> bool:
    above = source.parent(use)
    if isinstance(above, cst.Attribute) and above.value is use:
        return above.attr.value in _OF_ARRAYS
    if not isinstance(above, cst.Subscript) or above.value is not use or len(above.slice) < 2:
        return False
    return any(isinstance(x.slice, cst.Slice) for x in above.slice)


def _is_set_to_array(source: Source, place: cst.CSTNode, depth: int) -> bool:
    if isinstance(place, cst.Param):
        said = place.annotation
        if said is not None:
            return source.means(said.annotation, *ARRAYS)
        given = list(given_to(source, place))
        return bool(given) and all(x is not None and _is_array(source, x, depth + 1) for x in given)
    value = source.set_to(place)
    return value is not None and _is_array(source, value, depth + 1)
