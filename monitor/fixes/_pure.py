"""Whether a function of the user's can be compiled by JAX: it does nothing but compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._source import Source

# Modules whose functions may be traced.
_TRACED: Final = ("jax.", "optax.", "chex.", "flax.linen.", "einops.")
_NOT: Final = (
    "jax.debug.",
    "jax.device_get",
    "jax.block_until_ready",
    "jax.experimental.io_callback",
    "jax.pure_callback",
    "jax.profiler.",
    "jax.config",
    "jax.devices",
    "jax.random.key_data",
    "jax.clear_caches",
    "jax.live_arrays",
    "jax.effects_barrier",
)
_BUILTINS: Final = {
    "len",
    "range",
    "zip",
    "enumerate",
    "sum",
    "tuple",
    "list",
    "dict",
    "reversed",
    "abs",
    "isinstance",
    "map",
    "min",
    "max",
    "super",
    "sorted",
    "functools.partial",
    "itertools.pairwise",
    "slice",
    "filter",
    "all",
    "any",
}
# Methods of arrays, and of containers that a pass makes for itself.
_METHODS: Final = {
    "mean",
    "sum",
    "max",
    "min",
    "std",
    "var",
    "reshape",
    "transpose",
    "astype",
    "dot",
    "ravel",
    "flatten",
    "squeeze",
    "swapaxes",
    "argmax",
    "argmin",
    "prod",
    "cumsum",
    "clip",
    "round",
    "set",
    "add",
    "multiply",
    "get",
    "take",
    "repeat",
    "all",
    "any",
    "conj",
    "items",
    "keys",
    "values",
    "view",
    "T",
    "append",
    "copy",
}
_ABOUT: Final = {"shape", "ndim", "dtype", "size"}
_DEEPEST: Final = 6


class Purity:
    """The proof for one function and those of the same file that it calls."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.seen: set[cst.FunctionDef] = set()

    def check(self, function: cst.FunctionDef, depth: int = 0) -> None:
        """Refuse a function that does, or may do, anything but compute."""
        if function in self.seen:
            return
        self.seen.add(function)
        if depth > _DEEPEST or function.asynchronous:
            raise Refused("it calls too many others", self.source.line(function))
        for mark in function.decorators:
            if "jit" not in self.source.code(mark):
                raise Refused("a function has a decorator", self.source.line(mark))
        self.check_code(function.body, _own(function), depth)

    def check_code(self, code: cst.CSTNode, own: set[str], depth: int = 0) -> None:
        """Refuse code that does, or may do, anything but compute, and fill its own containers."""
        for node in inside(code):
            self._node(node, own, depth)

    def _node(self, node: cst.CSTNode, own: set[str], depth: int) -> None:
        source = self.source
        if isinstance(node, cst.Global | cst.Nonlocal | cst.Yield | cst.Await | cst.Del | cst.Try
                      | cst.With | cst.Import | cst.ImportFrom | cst.ClassDef | cst.While
                      | cst.Assert | cst.Raise):  # fmt: skip
            raise Refused("it does more than compute", source.line(node))
        if isinstance(node, cst.FormattedString):
            raise Refused("it makes text of values", source.line(node))
        if isinstance(node, cst.If | cst.IfExp):
            self._static(node.test)
        if isinstance(node, cst.BooleanOperation) or (
            isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)
        ):
            self._static(node)
        if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
            self._target(node.target, own)
        if isinstance(node, cst.Call):
            self._call(node, own, depth)
        if isinstance(node, cst.Name):
            check_global(self.source, node)

    def _target(self, target: cst.BaseExpression, own: set[str]) -> None:
        if isinstance(target, cst.Subscript | cst.Attribute):
            base = dotted(target.value)
            if isinstance(target, cst.Attribute) or base not in own:
                raise Refused("it changes something that it was given", self.source.line(target))

    def _static(self, test: cst.BaseExpression) -> None:
        """Refuse a condition that may be about a value of the device."""
        source = self.source
        if isinstance(test, cst.BooleanOperation):
            self._static(test.left)
            self._static(test.right)
            return
        if isinstance(test, cst.UnaryOperation):
            self._static(test.expression)
            return
        if isinstance(test, cst.Comparison):
            for each in test.comparisons:
                if isinstance(each.operator, cst.Is | cst.IsNot):
                    return
            sides = [test.left, *(each.comparator for each in test.comparisons)]
            if all(self._is_static(side) for side in sides):
                return
        elif (
            isinstance(test, cst.Call) and source.means(test.func, "isinstance")
        ) or self._is_static(test):
            return
        raise Refused("a condition may depend on a value of the device", source.line(test))

    def _is_static(self, value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.Integer | cst.Float | cst.SimpleString):
            return True
        if isinstance(value, cst.Name):
            known = self.source.value(value)
            return known is not None and known is not value and self._is_static(known)
        if isinstance(value, cst.Attribute):
            return value.attr.value in _ABOUT
        if isinstance(value, cst.Subscript):
            return self._is_static(value.value)
        if isinstance(value, cst.Call):
            return self.source.means(value.func, "len")
        return isinstance(value, cst.BinaryOperation) and all(
            map(self._is_static, (value.left, value.right))
        )

    def _call(self, call: cst.Call, own: set[str], depth: int) -> None:
        source, where = self.source, self.source.line(call)
        name = source.imported(call.func)
        if name is not None:
            if name.startswith(_NOT) or not (name.startswith(_TRACED) or name in _BUILTINS):
                raise Refused(f"it calls {name}, which may not be compiled", where)
            return
        known = source.definition(call.func)
        if isinstance(known, cst.FunctionDef):
            self.check(known, depth + 1)
            return
        if isinstance(call.func, cst.Lambda):
            return
        if isinstance(call.func, cst.Call):
            # jax.grad(f)(x): the inner call is looked at by itself.
            inner = source.imported(call.func.func)
            if inner is not None and inner.startswith("jax."):
                self._passed(call.func, depth)
                return
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _METHODS:
            of = dotted(call.func.value)
            if call.func.attr.value == "append" and of not in own:
                raise Refused("it changes something that it was given", where)
            return
        if isinstance(call.func, cst.Name) and self._is_made(call.func):
            return
        raise Refused(f"it calls {source.code(call.func)}, of which nothing is known", where)

    def _is_made(self, name: cst.Name) -> bool:
        """Tell whether a name is a function that JAX made of another: ``f = jax.grad(g)``."""
        made = self.source.value(name)
        if isinstance(made, cst.Call):
            of = self.source.imported(made.func)
            if of is not None and of.startswith("jax."):
                self._passed(made, 0)
                return True
        return isinstance(made, cst.Lambda)

    def _passed(self, call: cst.Call, depth: int) -> None:
        """Look into the functions that a transformation is given."""
        for arg in call.args:
            known = self.source.definition(arg.value)
            if isinstance(known, cst.FunctionDef):
                self.check(known, depth + 1)
            elif isinstance(arg.value, cst.Name) and arg.keyword is None:
                if self.source.imported(arg.value) is None and not self._is_made(arg.value):
                    raise Refused(f"nothing is known of {arg.value.value}", self.source.line(arg))


def check_global(source: Source, name: cst.Name) -> None:
    """Refuse a name of the module that changes: its value would be frozen at the first call."""
    above = source.parent(name)
    if isinstance(above, cst.Attribute) and above.attr is name:
        return
    if isinstance(above, cst.Arg) and above.keyword is name:
        return
    scope = source.scope(name)
    try:
        found = list(scope[name.value])
    except KeyError:
        return
    outer = source.scope(source.module)
    if not any(x.scope is outer for x in found):
        return
    places = source.assigned(name)
    if len(places) > 1 or source.is_shared(name):
        raise Refused(f"{name.value} of the module changes", source.line(name))
    for use in source.uses(name):
        parent = source.parent(use)
        if isinstance(parent, cst.Subscript) and parent.value is use:
            target = source.parent(parent)
            if isinstance(target, cst.AssignTarget | cst.AugAssign):
                raise Refused(f"{name.value} of the module changes", source.line(use))
        if isinstance(parent, cst.Attribute) and isinstance(
            source.parent(parent), cst.AssignTarget
        ):
            raise Refused(f"{name.value} of the module changes", source.line(use))
        if isinstance(parent, cst.Attribute) and parent.attr.value in {
            "append", "update", "extend", "pop", "add", "clear", "setdefault", "insert", "fill",
        }:  # fmt: skip
            raise Refused(f"{name.value} of the module changes", source.line(use))


def _own(function: cst.FunctionDef) -> set[str]:
    """Return the names of containers that a function makes for itself."""
    found = set()
    for node in inside(function.body):
        if isinstance(node, cst.Assign) and isinstance(
            node.value, cst.List | cst.Dict | cst.ListComp | cst.DictComp
        ):
            found |= {t.target.value for t in node.targets if isinstance(t.target, cst.Name)}
        if isinstance(node, cst.AnnAssign) and isinstance(node.value, cst.List | cst.Dict):
            if isinstance(node.target, cst.Name):
                found.add(node.target.value)
    return found


def params_of(function: cst.FunctionDef) -> Iterator[cst.Param]:
    """Yield the plain parameters; refuse others."""
    given = function.params
    if not isinstance(given.star_arg, cst.MaybeSentinel) or given.star_kwarg is not None:
        raise Refused("the function takes * or **")
    if given.kwonly_params:
        raise Refused("the function takes arguments by name only")
    yield from given.posonly_params
    yield from given.params
