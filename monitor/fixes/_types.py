"""Whether a pass of a loop leaves the shapes and types of what it carries as they are.

Code is run with names in the place of sizes, time and again: once a pass gives what the pass before
it gave, all passes after it do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._like import (
    NUMBER,
    Atoms,
    Like,
    Names,
    Several,
    Value,
    is_carried,
    item,
    joined,
    product,
    reduced,
    unknown,
    written,
)
from whyidle.monitor.fixes._pieces import argument, has_stars, is_whole, names_in
from whyidle.monitor.fixes._source import Source

# What they compute of each number alone, is floating.
_FLOATING: Final = {
    *(f"jax.numpy.{name}" for name in (
        "tanh", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "sqrt", "arctan", "sinh",
        "cosh", "arctan2", "logaddexp", "hypot", "divide", "true_divide", "exp2", "log2",
    )),
    *(f"jax.nn.{name}" for name in (
        "sigmoid", "tanh", "gelu", "silu", "swish", "softplus", "elu", "selu", "celu", "leaky_relu",
        "softmax", "log_softmax", "log_sigmoid", "soft_sign", "mish",
    )),
}  # fmt: skip
_OF_EACH: Final = {
    "abs", "jax.nn.relu", "jax.nn.relu6", "jax.lax.stop_gradient",
    *(f"jax.numpy.{name}" for name in (
        "abs", "absolute", "maximum", "minimum", "add", "subtract", "multiply", "square", "sign",
        "negative", "clip", "power", "zeros_like", "ones_like", "nan_to_num",
    )),
}  # fmt: skip
_PRODUCTS: Final = {"jax.numpy.matmul", "jax.numpy.dot"}
_DRAWS: Final = {"jax.random.normal", "jax.random.uniform"}
_TREE_MAP: Final = {"jax.tree.map", "jax.tree_util.tree_map"}
_SAME: Final = ("jax.checkpoint", "jax.remat", "jax.jit")
_GRADS: Final = ("jax.grad", "jax.value_and_grad")
_SUMS: Final = {"Add", "Subtract", "Multiply", "Divide", "Power", "Modulo", "FloorDivide"}
_DEEPEST: Final = 6


class Types:
    """Runs the code of a pass on what is known of its arrays."""

    def __init__(self, source: Source, picked: Mapping[cst.CSTNode, str]) -> None:
        self.source = source
        # Pieces that are one pass's part of an array: ``xs[t]``.
        self._picked = picked
        # Whose gradient is taken: they are floating.
        self._floats: Atoms = frozenset()

    def same(self, one: Value, other: Value) -> bool:
        """Tell whether two are of one type, whatever it is."""
        if isinstance(one, Like) and isinstance(other, Like):
            return self._plain(one) == self._plain(other)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return list(one) == list(other) and all(self.same(one[k], other[k]) for k in one)
        if isinstance(one, tuple) and isinstance(other, tuple):
            return len(one) == len(other) and all(map(self.same, one, other))
        return False

    def _plain(self, value: Like) -> tuple[Atoms, Atoms, Atoms]:
        dtype = value.dtype
        if dtype & self._floats:
            # A number of Python's takes on the type of the floating array that it meets.
            dtype -= {"float", "int", "sum"}
        if "float" in dtype:
            dtype -= {"int", "sum"}
        # An axis that stays with size 1 is broadcast against what it came from.
        before, last = (
            frozenset(x for x in each if not (x.endswith("'") and x.rstrip("'") in each))
            for each in (value.before, value.last)
        )
        return before, last, dtype

    # Statements ----------------------------------------------------------------------------------
    def run(self, statement: cst.BaseSmallStatement, names: Names, depth: int = 0) -> None:
        """Run one statement."""
        if isinstance(statement, cst.Assign):
            value = self.of(statement.value, names, depth)
            for target in statement.targets:
                self._bind(target.target, value, names)
        elif isinstance(statement, cst.AnnAssign) and statement.value is not None:
            self._bind(statement.target, self.of(statement.value, names, depth), names)
        elif isinstance(statement, cst.AugAssign):
            left = self.of(statement.target, names, depth)
            right = self.of(statement.value, names, depth)
            kind = type(statement.operator).__name__.removesuffix("Assign")
            self._bind(statement.target, self._operator(kind, left, right), names)
        elif isinstance(statement, cst.Expr):
            self.of(statement.value, names, depth)
        elif not isinstance(statement, cst.Pass):
            raise self._refused(statement)

    def _refused(self, node: cst.CSTNode) -> Refused:
        why = "whether each pass leaves what it carries of one shape is not certain"
        return Refused(why, self.source.line(node))

    def _bind(self, target: cst.BaseExpression, value: Value, names: Names) -> None:
        if isinstance(target, cst.Name):
            names[target.value] = value
        elif isinstance(target, cst.Tuple | cst.List):
            for number, element in enumerate(target.elements):
                if isinstance(element, cst.StarredElement):
                    raise self._refused(target)
                self._bind(element.value, item(value, str(number)), names)
        else:
            raise self._refused(target)

    # Expressions ---------------------------------------------------------------------------------
    def of(self, node: cst.BaseExpression, names: Names, depth: int = 0) -> Value:
        """Return what an expression is like."""
        if node in self._picked:
            return names[self._picked[node]]
        if isinstance(node, cst.Name):
            return names[node.value] if node.value in names else self._constant(node)
        if isinstance(node, cst.Tuple | cst.List):
            return tuple(self.of(x.value, names, depth) for x in node.elements)
        if isinstance(node, cst.Dict):
            return self._dict(node, names, depth)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, names, depth)
        if isinstance(node, cst.Attribute):
            return unknown(f".{node.attr.value}", [self.of(node.value, names, depth)])
        if isinstance(node, cst.Call) and not has_stars(node):
            return self._call(node, names, depth)
        return self._computed(node, names, depth)

    def _computed(self, node: cst.BaseExpression, names: Names, depth: int) -> Value:
        if isinstance(node, cst.Integer | cst.Float):
            return NUMBER[type(node)]
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus | cst.Plus):
            return self.of(node.expression, names, depth)
        if isinstance(node, cst.BinaryOperation):
            sides = [self.of(x, names, depth) for x in (node.left, node.right)]
            return self._operator(type(node.operator).__name__, *sides)
        if isinstance(node, cst.Comparison):
            every = [node.left, *(x.comparator for x in node.comparisons)]
            return joined(self.of(x, names, depth) for x in every).of_type("bool")
        if isinstance(node, cst.SimpleString | cst.Ellipsis):
            return Like.of(self.source.code(node))
        if isinstance(node, cst.Lambda):
            seen = [names[x.value] for x in names_in(node) if x.value in names]
            return unknown(self.source.code(node), seen)
        raise self._refused(node)

    def _constant(self, node: cst.Name) -> Value:
        """Return a name that no pass sets: a number of the module's, or anything."""
        try:
            known = self.source.constant(node)
        except KeyError:
            known = None
        return NUMBER.get(type(known)) or Like.of(node.value)

    def _dict(self, node: cst.Dict, names: Names, depth: int) -> Value:
        found: dict[str, Value] = {}
        for each in node.elements:
            key = each.key if isinstance(each, cst.DictElement) else None
            if not isinstance(key, cst.SimpleString):
                raise self._refused(node)
            found[str(key.evaluated_value)] = self.of(each.value, names, depth)
        return dict(sorted(found.items()))

    @staticmethod
    def _operator(kind: str, left: Value, right: Value) -> Value:
        if kind == "MatrixMultiply":
            return product(left, right)
        if kind in _SUMS and isinstance(left, Like) and isinstance(right, Like):
            found = joined([left, right])
            return found.floating if kind == "Divide" else found
        return unknown(kind, [left, right])

    def _subscript(self, node: cst.Subscript, names: Names, depth: int) -> Value:
        value = self.of(node.value, names, depth)
        slices = [x.slice for x in node.slice]
        index = slices[0].value if isinstance(slices[0], cst.Index) else None
        if len(slices) == 1 and isinstance(index, cst.SimpleString | cst.Integer):
            return item(value, str(index.evaluated_value))
        parts = [y for x in slices for y in x.children if isinstance(y, cst.BaseExpression)]
        what = [self.source.code(node), *(written(self.of(x, names, depth)) for x in parts)]
        if isinstance(value, Like) and _is_of_last(slices) and not is_carried(value.last):
            # z[..., :n]: a part of the last axis, whose size no pass carries.
            last = unknown(f"{what}", [Like(last=value.last)]).last
            return Like(value.before, last, value.dtype, value.is_array)
        return unknown(f"{what}", [value])

    # Calls ---------------------------------------------------------------------------------------
    def _call(self, call: cst.Call, names: Names, depth: int) -> Value:
        updated = _updated(call.func)
        if updated is not None:
            return joined([self.of(updated, names, depth)]).array
        given = [self.of(x.value, names, depth) for x in call.args if x.keyword is None]
        named = {x.keyword.value: self.of(x.value, names, depth)
                 for x in call.args if x.keyword is not None}  # fmt: skip
        function = self._callee(call.func)
        if function is not None:
            return self._function(function, given, named, names, depth + 1)
        name = self.source.imported(call.func)
        if name is not None:
            return self._of_jax(name, call, given, named, names, depth)
        slope = self._gradient(call.func, given, named, names)
        if slope is not None:
            return slope
        values = [*given, *named.values()]
        if not isinstance(call.func, cst.Attribute):
            return unknown("of", [self.of(call.func, names, depth), *values])
        of, method = self.of(call.func.value, names, depth), call.func.attr.value
        if isinstance(of, Like):
            if method == "astype" and len(values) == 1:
                return of.of_type(written(values[0])).array
            found = reduced(method, call, of, len(given))
            if found is not None:
                return found
        return unknown(f".{method}", [of, *values])

    def _callee(self, func: cst.BaseExpression) -> cst.FunctionDef | cst.Lambda | None:
        """Return the function of the file that is called, also as JAX keeps or compiles it."""
        known = self._behind(func)
        if isinstance(known, cst.Lambda):
            return known
        found = self.source.definition(known)
        return found if isinstance(found, cst.FunctionDef) else None

    def _behind(self, func: cst.BaseExpression) -> cst.BaseExpression:
        """Return what is called by a name, and within ``jax.jit`` and the like."""
        for _ in range(_DEEPEST):
            try:
                known = self.source.value(func)
            except KeyError:
                known = None
            if known is not None:
                func = known
            elif isinstance(func, cst.Call) and self.source.means(func.func, *_SAME) and func.args:
                func = func.args[0].value
            else:
                break
        return func

    def _function(
        self, function: cst.FunctionDef | cst.Lambda, given: list[Value], named: Names,
        outer: Names, depth: int,
    ) -> Value:  # fmt: skip
        """Return what a function of the file returns."""
        is_inside = isinstance(function, cst.Lambda) or self.source.function(function) is not None
        names: Names = dict(outer) if is_inside else {}
        params = [*function.params.posonly_params, *function.params.params]
        plain = [x.name.value for x in params]
        for param in (*params, *function.params.kwonly_params):
            names.pop(param.name.value, None)
            if param.default is not None:
                names[param.name.value] = self.of(param.default, {}, depth)
        if len(given) > len(plain) or depth > _DEEPEST:
            raise self._refused(function)
        names |= dict(zip(plain, given, strict=False)) | named
        if isinstance(function.body, cst.BaseExpression):
            return self.of(function.body, names, depth)
        for line in function.body.body:
            if not isinstance(line, cst.SimpleStatementLine):
                raise self._refused(line)
            for small in line.body:
                if isinstance(small, cst.Return) and small.value is not None:
                    return self.of(small.value, names, depth)
                self.run(small, names, depth)
        raise self._refused(function)

    def _gradient(
        self, func: cst.BaseExpression, given: list[Value], named: Names, names: Names
    ) -> Value | None:
        """Return what ``jax.grad(f)(x)`` gives: it is like x, which then is floating."""
        made = self._behind(func)
        if not isinstance(made, cst.Call) or not self.source.means(made.func, *_GRADS):
            return None
        if len(made.args) != 1 or not given or not isinstance(given[0], Like):
            return None
        of = given[0]
        if len(of.dtype) == 1:
            self._floats |= of.dtype
        if self.source.means(made.func, "jax.grad"):
            return of.array
        value = unknown("value", [self.of(made.args[0].value, names), *given, *named.values()])
        return (Like(dtype=value.dtype, is_array=True), of.array)

    def _of_jax(
        self, name: str, call: cst.Call, given: list[Value], named: Names, names: Names, depth: int
    ) -> Value:
        first = given[0] if given else None
        if name == "len":
            return NUMBER[cst.Integer]
        if name in _TREE_MAP and not named and all(isinstance(x, Like) for x in given):
            function = self._callee(call.args[0].value)
            if function is not None:
                each = self._function(function, given[1:], {}, names, depth + 1)
                return joined([each]).array
        found = None
        if isinstance(first, Like):
            if name.startswith("jax.random."):
                found = self._random(name, call, first, names, depth)
            elif name == "jax.numpy.split" and len(given) == 2:
                found = self._parts(call, first, given[1])
            else:
                found = _of_numbers(name, given, named) or reduced(
                    name.removeprefix("jax.numpy."), call, first, len(given) - 1
                )
        return found or unknown(name, [*given, *named.values()]).array

    def _random(
        self, name: str, call: cst.Call, key: Like, names: Names, depth: int
    ) -> Value | None:
        """Return a key, which is like that it was made of, or numbers of an array's shape."""
        if name == "jax.random.split":
            return Several(key.array)
        if name == "jax.random.fold_in":
            return key.array
        shape = call.args[1].value if name in _DRAWS and len(call.args) == 2 else None
        if isinstance(shape, cst.Attribute) and shape.attr.value == "shape":
            return joined([self.of(shape.value, names, depth)]).of_type(name).array
        return None

    def _parts(self, call: cst.Call, of: Like, number: Value) -> Value | None:
        """Return the parts along a last axis whose size no pass carries."""
        axis = argument(call, "axis")
        if axis is None or self.source.code(axis.value) != "-1" or is_carried(of.last):
            return None
        last = unknown("part", [Like(last=of.last), number]).last
        return Several(Like(of.before, last, of.dtype, is_array=True))


def _of_numbers(name: str, given: list[Value], named: Names) -> Like | None:
    """Return what a function computes of each number alone, or of rows and columns."""
    if name in _FLOATING:
        return joined(given).floating.array
    if named or not all(isinstance(x, Like) for x in given):
        return None
    if name in _OF_EACH:
        return joined(given).array
    if name == "jax.numpy.where" and len(given) == 3:
        return joined(given).of_type(*joined(given[1:]).dtype).array
    return product(*given) if name in _PRODUCTS and len(given) == 2 else None


def _updated(func: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return ``x`` of ``x.at[i].set``, which gives something like x."""
    if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Subscript):
        return None
    at, sets = func.value.value, {"set", "add", "multiply", "min", "max"}
    is_at = isinstance(at, cst.Attribute) and at.attr.value == "at" and func.attr.value in sets
    return at.value if isinstance(at, cst.Attribute) and is_at else None


def _is_of_last(slices: list[cst.BaseSlice]) -> bool:
    """Tell whether an index cuts the last axis alone: ``z[..., :n]``."""
    *before, last = slices
    return (
        bool(before)
        and isinstance(last, cst.Slice)
        and all(
            is_whole(x) or (isinstance(x, cst.Index) and isinstance(x.value, cst.Ellipsis))
            for x in before
        )
    )
