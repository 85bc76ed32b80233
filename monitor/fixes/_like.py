"""What the sizes and the type of an array come from, by name: no size is known from the source.

Arrays that meet in a sum have one shape by broadcasting, whatever the order and however often they
meet. A product with a matrix has the matrix' last size. All else is a function of which nothing is
known but that the same types give the same types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from whyidle.monitor.code.program import argument

Atoms = frozenset[str]
NONE: Final[Atoms] = frozenset()
# What a pass hands to the next has such a name.
CARRIED: Final = "<{}>"


@dataclass(frozen=True, slots=True)
class Like:
    """An array or a tree of them: what the last size, those before and the type come from."""

    before: Atoms = NONE
    last: Atoms = NONE
    dtype: Atoms = NONE
    # It is certainly no number of Python's.
    is_array: bool = False

    @staticmethod
    def of(name: str) -> Like:
        """Return what a name of which nothing is known is like."""
        one = frozenset({name})
        return Like(one, one, one)

    @property
    def array(self) -> Like:
        """The same, as an array."""
        return replace(self, is_array=True)

    def of_type(self, *names: str) -> Like:
        """The same, of another type."""
        return replace(self, dtype=frozenset(names))

    @property
    def floating(self) -> Like:
        """The same, divided: of integers that gives floating numbers."""
        return self.of_type(*self.dtype, "float")


@dataclass(frozen=True, slots=True)
class Several:
    """As many of one type as somebody wants."""

    one: Like


Value = Like | Several | tuple["Value", ...] | Mapping[str, "Value"]
Names = dict[str, Value]
INTEGER: Final = Like(dtype=frozenset({"int"}))
FLOAT: Final = Like(dtype=frozenset({"float"}))


def number(node: ast.AST | None) -> Like | None:
    """Return what a number is like; ``None``: it is none."""
    kind = type(node.value) if isinstance(node, ast.Constant) else None
    return INTEGER if kind is int else FLOAT if kind is float else None


def joined(values: Iterable[Value]) -> Like:
    """Return what arrays that are broadcast against each other become."""
    found = Like()
    for each in values:
        one = each if isinstance(each, Like) else unknown("tree", [each])
        found = Like(found.before | one.before, found.last | one.last, found.dtype | one.dtype,
                     found.is_array or one.is_array)  # fmt: skip
    return found


def product(left: Value, right: Value) -> Like:
    """Return what a product of matrices is like."""
    one, other = joined([left]), joined([right])
    last = other.last
    if is_carried(other.before | other.last):
        # A vector on the right: what comes of it has the rows of the matrix.
        last |= {f"rows of {x}" for x in one.before}
    return Like(one.before, last, one.dtype | other.dtype, is_array=True)


def unknown(name: str, values: Iterable[Value]) -> Like:
    """Return the result of a function of which nothing is known."""
    return Like.of(f"{name}({', '.join(map(written, values))})")


def item(value: Value, key: str) -> Value:
    """Return a part of a tree."""
    if isinstance(value, Several):
        return value.one
    if isinstance(value, tuple) and key.isdigit() and int(key) < len(value):
        return value[int(key)]
    if isinstance(value, Mapping) and key in value:
        return value[key]
    return unknown(f"part {key} of ", [value])


def reduced(name: str, call: ast.Call, of: Like, axes: int) -> Like | None:
    """Return a sum, or the like, over all of an array, or along an axis that stays."""
    if name not in {"sum", "mean", "max", "min", "prod", "std", "var"}:
        return None
    dtype = of.floating.dtype if name in {"mean", "std", "var"} else of.dtype | {name}
    named = {x.arg for x in call.keywords}
    keeps = argument(call, "keepdims")
    if keeps is not None and named <= {"axis", "keepdims"}:
        if isinstance(keeps, ast.Constant) and keeps.value is True:
            before, last = (frozenset(f"{x}'" for x in each) for each in (of.before, of.last))
            return Like(before, last, dtype, is_array=True)
    return None if named or axes else Like(dtype=dtype, is_array=True)


def is_carried(atoms: Atoms) -> bool:
    """Tell whether something comes from what a pass hands to the next."""
    return any("<" in x for x in atoms)


def written(value: Value) -> str:
    """Return a value as text: two of the same text are the same."""
    if isinstance(value, Like):
        return "/".join("+".join(sorted(x)) for x in (value.before, value.last, value.dtype))
    if isinstance(value, Several):
        return f"*{written(value.one)}"
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    return "[" + " ".join(f"{key}:{written(each)}" for key, each in pairs) + "]"
