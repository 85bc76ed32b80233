"""Whether a pass of a loop leaves the shapes and types of what it carries as they are.

Code is run with names in the place of sizes, time and again: once a pass gives what the pass before
it gave, all passes after it do.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, has_stars, is_plain, plain_text
from whyidle.monitor.code.source import DEEPEST, Function, arguments, variables
from whyidle.monitor.fixes._change import Refused
from whyidle.monitor.fixes._like import (
    INTEGER,
    Atoms,
    Like,
    Names,
    Several,
    Value,
    is_carried,
    item,
    joined,
    number,
    product,
    reduced,
    unknown,
    written,
)
from whyidle.monitor.fixes._over import indices, is_whole

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
_SUMS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Mod, ast.FloorDiv)


class Types:
    """Runs the code of a pass on what is known of its arrays."""

    def __init__(self, source: Source, picked: Mapping[ast.AST, str]) -> None:
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
    def run(self, statement: ast.stmt, names: Names, depth: int = 0) -> None:
        """Run one statement."""
        match statement:
            case ast.Assign(targets=targets, value=value):
                made = self.of(value, names, depth)
                for target in targets:
                    self._bind(target, made, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self.of(value, names, depth), names)
            case ast.AugAssign(target=target, op=op, value=value):
                left, right = self.of(target, names, depth), self.of(value, names, depth)
                self._bind(target, self._operator(op, left, right), names)
            case ast.Expr(value=value):
                self.of(value, names, depth)
            case ast.Pass():
                pass
            case _:
                raise self._refused(statement)

    def _refused(self, node: ast.AST) -> Refused:
        why = "whether each pass leaves what it carries of one shape is not certain"
        return Refused(why, node)

    def _bind(self, target: ast.expr, value: Value, names: Names) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for place, each in enumerate(target.elts):
                self._bind(each, item(value, str(place)), names)
        else:
            raise self._refused(target)

    # Expressions ---------------------------------------------------------------------------------
    def of(self, node: ast.expr, names: Names, depth: int = 0) -> Value:
        """Return what an expression is like."""
        match node:
            case ast.Name() | ast.Constant():
                return self._leaf(node, names)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self.of(x, names, depth) for x in parts)
            case ast.Dict(keys=keys, values=values):
                texts = [plain_text(key) for key in keys]
                if None in texts:
                    raise self._refused(node)
                made = [self.of(x, names, depth) for x in values]
                return dict(sorted(zip(map(str, texts), made, strict=True)))
            case ast.Subscript():
                return self._subscript(node, names, depth)
            case ast.Attribute(value=of, attr=attr):
                return unknown(f".{attr}", [self.of(of, names, depth)])
            case ast.Call() if not has_stars(node):
                return self._call(node, names, depth)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
                return self.of(inner, names, depth)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operator(op, *(self.of(x, names, depth) for x in (left, right)))
            case ast.Compare(left=left, comparators=others):
                return joined(self.of(x, names, depth) for x in (left, *others)).of_type("bool")
            case ast.Lambda():
                seen = [names[x] for x in sorted(variables(node)) if x in names]
                return unknown(self.source.code(node), seen)
            case _:
                raise self._refused(node)

    def _leaf(self, node: ast.Name | ast.Constant, names: Names) -> Value:
        """Return what a literal is like, or a name: of which no pass sets it may be anything."""
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        return number(self.source.constant(node)) or Like.of(self.source.code(node))

    @staticmethod
    def _operator(op: ast.operator, left: Value, right: Value) -> Value:
        if isinstance(op, ast.MatMult):
            return product(left, right)
        if isinstance(op, _SUMS) and isinstance(left, Like) and isinstance(right, Like):
            found = joined([left, right])
            return found.floating if isinstance(op, ast.Div) else found
        return unknown(type(op).__name__, [left, right])

    def _subscript(self, node: ast.Subscript, names: Names, depth: int) -> Value:
        if node in self._picked:
            return names[self._picked[node]]
        value, index = self.of(node.value, names, depth), node.slice
        if is_plain(index, int, str):
            return item(value, str(ast.literal_eval(index)))
        parts = [x for each in indices(node) for x in _computed(each)]
        what = [self.source.code(node), *(written(self.of(x, names, depth)) for x in parts)]
        if isinstance(value, Like) and _is_of_last(indices(node)) and not is_carried(value.last):
            # z[..., :n]: a part of the last axis, whose size no pass carries.
            last = unknown(f"{what}", [Like(last=value.last)]).last
            return Like(value.before, last, value.dtype, value.is_array)
        return unknown(f"{what}", [value])

    # Calls ---------------------------------------------------------------------------------------
    def _call(self, call: ast.Call, names: Names, depth: int) -> Value:
        updated = _updated(call.func)
        if updated is not None:
            return joined([self.of(updated, names, depth)]).array
        given = [self.of(x, names, depth) for x in call.args]
        named = {str(x.arg): self.of(x.value, names, depth) for x in call.keywords}
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
        if not isinstance(call.func, ast.Attribute):
            return unknown("of", [self.of(call.func, names, depth), *values])
        of, method = self.of(call.func.value, names, depth), call.func.attr
        if isinstance(of, Like):
            if method == "astype" and len(values) == 1:
                return of.of_type(written(values[0])).array
            found = reduced(method, call, of, len(given))
            if found is not None:
                return found
        return unknown(f".{method}", [of, *values])

    def _callee(self, func: ast.expr) -> Function | ast.Lambda | None:
        """Return the function of the file that is called, also as JAX keeps or compiles it."""
        known = self._behind(func)
        return known if isinstance(known, ast.Lambda) else self.source.defined(known)

    def _behind(self, func: ast.expr) -> ast.expr:
        """Return what is called by a name, and within ``jax.jit`` and the like."""
        for _ in range(DEEPEST):
            known = self.source.value(func)
            if known is not None:
                func = known
            elif isinstance(func, ast.Call) and self.source.means(func.func, *_SAME) and func.args:
                func = func.args[0]
            else:
                break
        return func

    def _function(
        self, function: Function | ast.Lambda, given: list[Value], named: Names,
        outer: Names, depth: int,
    ) -> Value:  # fmt: skip
        """Return what a function of the file returns."""
        is_inside = isinstance(function, ast.Lambda) or self.source.function(function) is not None
        names: Names = dict(outer) if is_inside else {}
        args = function.args
        plain = [x.arg for x in (*args.posonlyargs, *args.args)]
        every = [*plain, *(x.arg for x in args.kwonlyargs)]
        first = [None] * (len(plain) - len(args.defaults))
        for name, default in zip(every, [*first, *args.defaults, *args.kw_defaults], strict=True):
            names.pop(name, None)
            if default is not None:
                names[name] = self.of(default, {}, depth)
        if len(given) > len(plain) or depth > DEEPEST:
            raise self._refused(function)
        names |= dict(zip(plain, given, strict=False)) | named
        if isinstance(function, ast.Lambda):
            return self.of(function.body, names, depth)
        for line in function.body:
            if isinstance(line, ast.Return) and line.value is not None:
                return self.of(line.value, names, depth)
            self.run(line, names, depth)
        raise self._refused(function)

    def _gradient(
        self, func: ast.expr, given: list[Value], named: Names, names: Names
    ) -> Value | None:
        """Return what ``jax.grad(f)(x)`` gives: it is like x, which then is floating."""
        made = self._behind(func)
        if not isinstance(made, ast.Call) or not self.source.means(made.func, *_GRADS):
            return None
        if len(arguments(made)) != 1 or not given or not isinstance(given[0], Like):
            return None
        of = given[0]
        if len(of.dtype) == 1:
            self._floats |= of.dtype
        if self.source.means(made.func, "jax.grad"):
            return of.array
        values = [self.of(arguments(made)[0], names), *given, *named.values()]
        return (Like(dtype=unknown("value", values).dtype, is_array=True), of.array)

    def _of_jax(
        self, name: str, call: ast.Call, given: list[Value], named: Names, names: Names, depth: int
    ) -> Value:
        first = given[0] if given else None
        if name == "len":
            return INTEGER
        if name in _TREE_MAP and given and not named and all(isinstance(x, Like) for x in given):
            function = self._callee(call.args[0])
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
        self, name: str, call: ast.Call, key: Like, names: Names, depth: int
    ) -> Value | None:
        """Return a key, which is like that it was made of, or numbers of an array's shape."""
        if name == "jax.random.split":
            return Several(key.array)
        if name == "jax.random.fold_in":
            return key.array
        match call:
            case ast.Call(args=[_, ast.Attribute(of, "shape")], keywords=[]) if name in _DRAWS:
                return joined([self.of(of, names, depth)]).of_type(name).array
            case _:
                return None

    def _parts(self, call: ast.Call, of: Like, count: Value) -> Value | None:
        """Return the parts along a last axis whose size no pass carries."""
        axis = argument(call, "axis")
        if axis is None or self.source.code(axis) != "-1" or is_carried(of.last):
            return None
        last = unknown("part", [Like(last=of.last), count]).last
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


def _updated(func: ast.expr) -> ast.expr | None:
    """Return ``x`` of ``x.at[i].set``, which gives something like x."""
    match func:
        case ast.Attribute(ast.Subscript(ast.Attribute(of, "at")), attr):
            return of if attr in {"set", "add", "multiply", "min", "max"} else None
        case _:
            return None


def _computed(index: ast.expr) -> list[ast.expr]:
    """Return what is computed of an index."""
    if isinstance(index, ast.Slice):
        return [x for x in (index.lower, index.upper, index.step) if x is not None]
    return [index]


def _is_of_last(slices: list[ast.expr]) -> bool:
    """Tell whether an index cuts the last axis alone: ``z[..., :n]``."""
    *before, last = slices
    return (
        bool(before)
        and isinstance(last, ast.Slice)
        and all(is_whole(x) or (isinstance(x, ast.Constant) and x.value is ...) for x in before)
    )
