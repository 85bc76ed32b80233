"""Whether a function of the user's can be compiled by JAX: it does nothing but compute."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, is_plain, targets
from whyidle.monitor.code.source import DEEPEST, Function, dotted
from whyidle.monitor.fixes._change import Refused

# Modules whose functions may be traced.
_TRACED: Final = ("jax.", "optax.", "chex.", "flax.linen.", "einops.")
_NOT: Final = (
    "jax.debug.", "jax.device_get", "jax.block_until_ready", "jax.experimental.io_callback",
    "jax.pure_callback", "jax.profiler.", "jax.config", "jax.devices", "jax.random.key_data",
    "jax.clear_caches", "jax.live_arrays", "jax.effects_barrier",
)  # fmt: skip
_BUILTINS: Final = {
    "len", "range", "zip", "enumerate", "sum", "tuple", "list", "dict", "reversed", "abs",
    "isinstance", "map", "min", "max", "super", "sorted", "functools.partial", "itertools.pairwise",
    "slice", "filter", "all", "any",
}  # fmt: skip
# Methods of arrays, and of containers that a pass makes for itself.
_METHODS: Final = {
    "mean", "sum", "max", "min", "std", "var", "reshape", "transpose", "astype", "dot", "ravel",
    "flatten", "squeeze", "swapaxes", "argmax", "argmin", "prod", "cumsum", "clip", "round", "set",
    "add", "multiply", "get", "take", "repeat", "all", "any", "conj", "items", "keys", "values",
    "view", "T", "append", "copy",
}  # fmt: skip
_CHANGES: Final = {"append", "update", "extend", "pop", "add", "clear", "setdefault", "insert",
                   "fill"}  # fmt: skip
_MORE: Final = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Try,
                ast.With, ast.AsyncWith, ast.Import, ast.ImportFrom, ast.ClassDef, ast.While,
                ast.Assert, ast.Raise)  # fmt: skip


class Purity:
    """The proof for one function and those of the same file that it calls."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.seen: set[Function] = set()

    def check(self, function: Function, depth: int = 0) -> None:
        """Refuse a function that does, or may do, anything but compute."""
        if function in self.seen:
            return
        self.seen.add(function)
        if depth > DEEPEST or isinstance(function, ast.AsyncFunctionDef):
            raise Refused("it calls too many others", function)
        for mark in function.decorator_list:
            if "jit" not in self.source.code(mark):
                raise Refused("a function has a decorator", mark)
        self.check_code(function.body, _own(function), depth)

    def check_code(self, code: list[ast.stmt], own: set[str], depth: int = 0) -> None:
        """Refuse code that does, or may do, anything but compute, and fill its own containers."""
        for node in inside(*code):
            self._node(node, own, depth)

    def _node(self, node: ast.AST, own: set[str], depth: int) -> None:
        if isinstance(node, _MORE):
            raise Refused("it does more than compute", node)
        match node:
            case ast.JoinedStr():
                raise Refused("it makes text of values", node)
            case ast.If(test=test) | ast.IfExp(test=test):
                self._static(test)
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                self._static(node)
            case ast.Call():
                self._call(node, own, depth)
            case ast.Name():
                check_global(self.source, node)
            case _:
                for each in targets(node):
                    if isinstance(each, ast.Attribute) or (
                        isinstance(each, ast.Subscript) and dotted(each.value) not in own
                    ):
                        raise Refused("it changes something that it was given", each)

    def _static(self, test: ast.expr) -> None:
        """Refuse a condition that may be about a value of the device."""
        match test:
            case ast.BoolOp(values=several):
                for each in several:
                    self._static(each)
                return
            case ast.UnaryOp(operand=inner):
                self._static(inner)
                return
            case ast.Compare(left=left, ops=ops, comparators=others):
                is_static = any(isinstance(x, ast.Is | ast.IsNot) for x in ops) or all(
                    map(self._is_static, (left, *others))
                )
            case ast.Call(func=func) if self.source.means(func, "isinstance"):
                return
            case _:
                is_static = self._is_static(test)
        if not is_static:
            raise Refused("a condition may depend on a value of the device", test)

    def _is_static(self, value: ast.expr) -> bool:
        match value:
            case ast.Name():
                known = self.source.value(value)
                return known is not None and known is not value and self._is_static(known)
            case ast.Attribute(attr=attr):
                return attr in {"shape", "ndim", "dtype", "size"}
            case ast.Subscript(value=inner):
                return self._is_static(inner)
            case ast.Call(func=func):
                return self.source.means(func, "len")
            case ast.BinOp(left=left, right=right):
                return self._is_static(left) and self._is_static(right)
            case _:
                return is_plain(value, int, float, str)

    def _call(self, call: ast.Call, own: set[str], depth: int) -> None:
        source, func = self.source, call.func
        name, known = source.imported(func), source.defined(func)
        if name is not None:
            if name.startswith(_NOT) or not (name.startswith(_TRACED) or name in _BUILTINS):
                raise Refused(f"it calls {name}, which may not be compiled", call)
            return
        if known is not None:
            self.check(known, depth + 1)
            return
        match func:
            case ast.Lambda():
                return
            case ast.Call() if self._is_of_jax(func):
                # jax.grad(f)(x): the inner call is looked at by itself.
                self._passed(func, depth)
                return
            case ast.Attribute(value=of, attr=attr) if attr in _METHODS:
                if attr == "append" and dotted(of) not in own:
                    raise Refused("it changes something that it was given", call)
                return
            case ast.Name() if self._is_made(func):
                return
            case _:
                raise Refused(f"it calls {source.code(func)}, of which nothing is known", call)

    def _is_made(self, name: ast.Name) -> bool:
        """Tell whether a name is a function that JAX made of another: ``f = jax.grad(g)``."""
        made = self.source.value(name)
        if isinstance(made, ast.Call) and self._is_of_jax(made):
            self._passed(made, 0)
            return True
        return isinstance(made, ast.Lambda)

    def _is_of_jax(self, call: ast.Call) -> bool:
        return (self.source.imported(call.func) or "").startswith("jax.")

    def _passed(self, call: ast.Call, depth: int) -> None:
        """Look into the functions that a transformation is given."""
        for each in (*call.args, *(x.value for x in call.keywords)):
            known = self.source.defined(each)
            if known is not None:
                self.check(known, depth + 1)
            elif isinstance(each, ast.Name) and each in call.args:
                if self.source.imported(each) is None and not self._is_made(each):
                    raise Refused(f"nothing is known of {each.id}", each)


def check_global(source: Source, name: ast.Name) -> None:
    """Refuse a name of the module that changes: its value would be frozen at the first call."""
    if not source.is_of_module(name):
        return
    why = f"{name.id} of the module changes"
    if len(source.assigned(name)) > 1 or source.is_shared(name):
        raise Refused(why, name)
    for use in source.uses(name):
        parent = source.parent(use)
        is_changed = isinstance(parent, ast.Attribute) and parent.attr in _CHANGES
        is_written = isinstance(parent, ast.Subscript | ast.Attribute) and isinstance(
            parent.ctx, ast.Store
        )
        if is_changed or (is_written and use is parent.value):  # type: ignore[union-attr]
            raise Refused(why, use)


def _own(function: Function) -> set[str]:
    """Return the names of containers that a function makes for itself."""
    return {
        target.id
        for node in inside(*function.body)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.List | ast.Dict | ast.ListComp | ast.DictComp)
        for target in targets(node)
        if isinstance(target, ast.Name)
    }
