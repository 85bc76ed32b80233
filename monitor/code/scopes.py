"""What the names of a scope hold: a framework's values, a library's, or the host's. Text only."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from whyidle.monitor.code.bindings import (
    COMPREHENSIONS,
    FUNCTIONS,
    assigned,
    bindings,
    itself_of,
    last_name,
    own,
)
from whyidle.monitor.code.source import DEEPEST, Function
from whyidle.monitor.libraries.table import ARRAY_PACKAGES, DEVICE_PACKAGES

_CONSTANTS: Final = (ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Set)
# Methods that no array has.
_OF_HOST: Final = frozenset(
    name for kind in (list, dict, set, str, bytes) for name in dir(kind) if not name.startswith("_")
) - {"copy", "index", "count", "sort", "clear", "update", "values"} | {"write", "flush", "read"}
# A name may be given what stands below it: after so many turns all is known that is followed.
_PASSES: Final = 3
_CONTAINS: Final = (ast.In, ast.NotIn)
# Annotations that say what is held: a list may hold anything, a "float" may be an array of one.
_HELD: Final = frozenset({"bool", "bytes", "int", "str"})
# Classes of a framework whose pass forward is given arrays, and what that is called.
_MODELS: Final = frozenset({"Module", "LightningModule", "Layer", "Model"})
_FORWARD: Final = frozenset({"forward", "call", "__call__"})
_TENSORS: Final = frozenset({"Array", "Tensor", "Variable", "ndarray"})
# Methods that give the host the value of an array, or wait until there is one.
_READS: Final = frozenset(
    {"block_until_ready", "cpu", "item", "numpy", "synchronize", "to_py", "tolist"}
)
# Functions that do so with what they are given; all others of these packages read their arguments.
_CONVERTS: Final = frozenset({"bool", "bytes", "float", "format", "int", "memoryview", "str"})
_FRAMEWORK_READS: Final = frozenset({"block_until_ready", "device_get", "process_allgather"})
# What is put around a function and leaves what it gives as it is, by a framework or by Python.
_AROUND: Final = frozenset(
    {"autocast", "enable_grad", "inference_mode", "no_grad", "record_function", "set_grad_enabled"}
    | {"cache", "lru_cache", "staticmethod"}
)
# Those functions of packages that take arrays that work with files.
_OF_FILES: Final = re.compile(r".*(load|save|memmap|file|read|write|open).*")


class Calls(StrEnum):
    """Whom a line calls."""

    HOST = "host"
    LIBRARY = "library"
    # A library's whose functions take arrays of anybody's.
    ARRAYS = "arrays"
    FRAMEWORK = "framework"
    UNCLEAR = "unclear"


class _Trail(list[tuple[int, str]]):
    """Functions that are followed, one from within another; and whether one was not."""

    is_cut = False


class Scope:
    """The names of one function, or of a module: what they hold, as far as the text says."""

    def __init__(self, outer: Scope | None) -> None:
        self._outer = outer
        self.names: dict[str, Calls] = {}
        # Of a class, what its methods put into themselves; of a method, its name for itself.
        self.attributes: dict[str, Calls] = {}
        self._itself: str | None = None
        self.is_class = False
        # Of a class: whether it is a framework's module, whose pass forward is given arrays.
        self.is_model = False
        # Its own functions (``None``: several of a name), and what those give that were asked for.
        self._functions: dict[str, Function | None] = {}
        self._given: dict[str, Calls] = {}
        # The functions that are being followed, one from within another.
        self.trail: _Trail = _Trail() if outer is None else outer.trail

    def kind(self, node: ast.AST) -> Calls:
        """Return what computes a value, or what holds it."""
        match node:
            case ast.Name(id=name):
                return self.of_name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                known = self.of_itself(name, attribute)
                return self._of_parts(node) if known is None else known
            case ast.Call():
                return self._of_call(node)
            case _:
                return Calls.HOST if isinstance(node, _CONSTANTS) else self._of_parts(node)

    def _of_parts(self, node: ast.AST) -> Calls:
        """Return what computes a value that is put together of others."""
        parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        if isinstance(node, COMPREHENSIONS):
            inner = Scope(self)
            inner.learn(node)
            return inner.kind(node.value if isinstance(node, ast.DictComp) else node.elt)
        if isinstance(node, ast.Compare) and all(isinstance(op, _CONTAINS) for op in node.ops):
            # Nobody asks a framework's array whether something is in it.
            return _of_all(kind for kind in map(self.kind, parts) if kind is not Calls.UNCLEAR)
        return _of_all(map(self.kind, parts)) if parts else Calls.UNCLEAR

    def reads(self, call: ast.Call) -> bool:
        """Tell whether a call may wait for a framework's value."""
        func = call.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        takes = [*call.args, *(each.value for each in call.keywords)]
        values = [x for x in takes if self.kind(x) in {Calls.FRAMEWORK, Calls.UNCLEAR}]
        if isinstance(func, ast.Attribute) and name in _READS:
            return self.kind(func.value) in {Calls.FRAMEWORK, Calls.UNCLEAR}
        if name in _FRAMEWORK_READS and self.kind(func) is Calls.FRAMEWORK:
            return True
        takes_arrays = name in _CONVERTS or self.kind(func) is Calls.ARRAYS
        return bool(values) and takes_arrays and not _OF_FILES.fullmatch(name)

    def of_name(self, name: str) -> Calls:
        """Return what a name holds."""
        if name in self.names:
            return self.names[name]
        if self._outer is not None:
            return self._outer.of_name(name)
        return Calls.HOST if hasattr(builtins, name) else Calls.UNCLEAR

    def of_itself(self, name: str, attribute: str) -> Calls | None:
        """Return what a method has put into itself; ``None``: that is not its name for itself."""
        if self._outer is None:
            return None
        if name == self._itself:
            return self._outer.attributes.get(attribute)
        return None if name in self.names else self._outer.of_itself(name, attribute)

    def of_own(self, func: ast.AST) -> Calls | None:
        """Return what a function of the file gives; ``None``: it is none, or of that name."""
        match func:
            case ast.Name(id=name) if name in self.names:
                return None
            case ast.Name(id=name) if name in self._functions and not self.is_class:
                return self._of_function(name)
            case ast.Attribute(value=ast.Name(id=name), attr=method) if name == self._itself:
                return None if self._outer is None else self._outer.of_method(method)
            case _:
                return None if self._outer is None else self._outer.of_own(func)

    def of_method(self, name: str) -> Calls | None:
        """Return what a method of this class gives; ``None``: it has none of that name."""
        return self._of_function(name) if name in self._functions else None

    def _of_function(self, name: str) -> Calls:
        """Return what a function of this scope gives; unclear where it calls itself."""
        function, here = self._functions[name], (id(self), name)
        if name in self._given or function is None:
            return self._given.get(name, Calls.UNCLEAR)
        if here in self.trail or len(self.trail) >= DEEPEST:
            self.trail.is_cut = True
            return Calls.UNCLEAR
        self.trail.append(here)
        try:
            found = self._given_by(function)
        finally:
            self.trail.pop()
        # Of all on the way to what is not followed nothing is known, whoever asks first.
        self._given[name] = Calls.UNCLEAR if self.trail.is_cut else found
        self.trail.is_cut &= bool(self.trail)
        return self._given[name]

    def _given_by(self, function: Function) -> Calls:
        around = [x for x in function.decorator_list if last_name(x) not in _AROUND]
        if any(self.kind(part) is Calls.FRAMEWORK for x in around for part in _parts(x)):
            return Calls.FRAMEWORK
        scope = Scope(self)
        scope.enter(function)
        nodes = [x for x in own(function) if isinstance(x, ast.Return | ast.Yield)]
        values = [x.value for x in nodes if x.value is not None]
        # One that gives nothing, or has something unknown around it.
        if around or not values:
            return Calls.UNCLEAR
        kinds = {scope.kind(part) for value in values for part in _each(value)}
        # Of several that are given at once nobody knows which is which.
        mixed = len(kinds) > 1 and any(isinstance(value, ast.Tuple) for value in values)
        return Calls.UNCLEAR if mixed else _if_arrays(_of_all(kinds))

    def of_annotation(self, node: ast.AST | None) -> Calls:
        """Return what an argument holds, where its annotation says so."""
        match node:
            case ast.BinOp(left=one, right=ast.Constant(value=None)):
                return self.of_annotation(one)
            case ast.Name(id=name) if name in _HELD:
                return Calls.HOST
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found = _if_arrays(self.kind(node))
                is_known = found is not Calls.FRAMEWORK or name in _TENSORS
                return found if is_known else Calls.UNCLEAR
            case _:
                return Calls.UNCLEAR

    def enter(self, tree: ast.AST) -> None:
        """Take in what is in a scope: a function has arguments, a class has methods."""
        self.is_class = isinstance(tree, ast.ClassDef)
        if isinstance(tree, ast.ClassDef):
            self.is_model = any(
                last_name(base) in _MODELS and self.kind(base) is Calls.FRAMEWORK
                for base in tree.bases
            )
        if isinstance(tree, FUNCTIONS):
            arguments = [x for x in ast.walk(tree.args) if isinstance(x, ast.arg)]
            self.names = {each.arg: self.of_annotation(each.annotation) for each in arguments}
            if self._outer is not None and self._outer.is_class:
                self._itself = itself_of(tree)
                if self._outer.is_model and getattr(tree, "name", "") in _FORWARD:
                    self.names |= {
                        each.arg: Calls.FRAMEWORK
                        for each in tree.args.args[: -len(tree.args.defaults) or None]
                        if each.annotation is None and each.arg != self._itself
                    }
        self.learn(tree)
        if isinstance(tree, ast.ClassDef):
            self._learn_attributes(tree)

    def _learn_attributes(self, tree: ast.ClassDef) -> None:
        held: dict[str, set[Calls]] = {}
        for method in tree.body:
            itself = itself_of(method)
            if itself is None:
                continue
            scope = Scope(self)
            scope.enter(method)
            for target, value in (pair for node in own(method) for pair in bindings(node)):
                for part in ast.walk(target):
                    match part:
                        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if (
                            name == itself
                        ):
                            # Of several that are given at once nobody knows which is which.
                            kind = scope.kind(value) if part is target else Calls.UNCLEAR
                            held.setdefault(part.attr, set()).add(_if_arrays(kind))
                        case _:
                            pass
        self.attributes = {
            name: kinds.pop() if len(kinds) == 1 else Calls.UNCLEAR for name, kinds in held.items()
        }
        # What its methods give was asked before these were known.
        self._given.clear()

    def _of_call(self, call: ast.Call) -> Calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _OF_HOST:
            inner = self.kind(call.func.value)
            return Calls.HOST if inner is Calls.UNCLEAR else inner
        own = self.of_own(call.func)
        whose = self.kind(call.func) if own is None else own
        if whose is Calls.HOST:
            # ``sum`` or ``float`` of an array is the work of the package that made the array.
            return _of_all((whose, *map(self.kind, call.args)))
        return whose

    def learn(self, tree: ast.AST) -> None:
        """Take in the imports and assignments of this scope, not of those within."""
        for node in own(tree):
            match node:
                case ast.Import():
                    for alias in node.names:
                        name = alias.asname or alias.name.partition(".")[0]
                        self.names[name] = _of_package(alias.name)
                case ast.ImportFrom():
                    whose = _of_package(node.module or "") if not node.level else Calls.UNCLEAR
                    self.names |= {alias.asname or alias.name: whose for alias in node.names}
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._define(node)
                case _:
                    pass
        held: dict[str, list[ast.AST]] = {}
        for target, value in assigned(tree):
            held.setdefault(target, []).append(value)
        # `x = x / 255` makes no number of an argument.
        before = {name: [self.names[name]] for name in held if name in self.names}
        for _ in range(_PASSES):
            self._given.clear()
            self.names |= {
                name: _of_all([*before.get(name, ()), *(self._held(name, value) for value in some)])
                for name, some in held.items()
            }
        self._given.clear()

    def _define(self, function: Function) -> None:
        if not any(last_name(x) == "overload" for x in function.decorator_list):
            several = function.name in self._functions
            self._functions[function.name] = None if several else function

    def _held(self, name: str, value: ast.AST) -> Calls:
        # What is made of itself and a number is a number.
        before = self.names.get(name, Calls.UNCLEAR)
        self.names[name] = Calls.HOST
        found = self.kind(value)
        self.names[name] = before
        return found


def _each(value: ast.expr) -> list[ast.expr]:
    """Return what is given, each of several by itself."""
    return value.elts if isinstance(value, ast.Tuple) and value.elts else [value]


def _parts(decorator: ast.expr) -> list[ast.expr]:
    """Return a decorator, and what it is given: ``partial(jax.jit, static_argnums=0)``."""
    return [decorator, *decorator.args] if isinstance(decorator, ast.Call) else [decorator]


def _of_all(kinds: Iterable[Calls]) -> Calls:
    """Return what computes from such values: a framework, if one of them is its own."""
    found = set(kinds)
    order = (Calls.FRAMEWORK, Calls.UNCLEAR, Calls.ARRAYS, Calls.LIBRARY)
    return next((kind for kind in order if kind in found), Calls.HOST)


def _if_arrays(kind: Calls) -> Calls:
    return kind if kind in {Calls.ARRAYS, Calls.FRAMEWORK} else Calls.UNCLEAR


def _of_package(module: str) -> Calls:
    head = module.partition(".")[0]
    if head in DEVICE_PACKAGES:
        return Calls.FRAMEWORK
    return Calls.ARRAYS if head in ARRAY_PACKAGES else Calls.LIBRARY
