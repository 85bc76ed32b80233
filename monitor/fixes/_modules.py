"""What models of PyTorch are made of, and whether all of it may run in half precision.

``torch.autocast`` runs products in half precision, and in float32 what needs the digits. What it
does not know it runs with what it is given: there, tensors of two types may meet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, is_of_self, targets
from whyidle.monitor.code.source import DEEPEST, Function, dotted
from whyidle.monitor.fixes._called import given_to
from whyidle.monitor.fixes._change import Refused

_LAYERS: Final = {
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "Dropout", "Dropout1d", "Dropout2d", "ELU", "Embedding", "Flatten", "GELU",
    "GroupNorm", "Identity", "LayerNorm", "LeakyReLU", "Linear", "LogSoftmax",
    "MaxPool1d", "MaxPool2d", "Mish", "ModuleList", "PixelShuffle", "ReLU", "ReLU6", "Sequential",
    "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "TransformerEncoder",
    "TransformerEncoderLayer", "Unflatten", "Upsample", "ZeroPad2d",
}  # fmt: skip
_FUNCTIONS: Final = {
    *(f"torch.nn.functional.{x}" for x in (
        "adaptive_avg_pool2d", "avg_pool2d", "dropout", "elu", "gelu", "interpolate", "layer_norm",
        "leaky_relu", "linear", "log_softmax", "max_pool1d", "max_pool2d", "normalize", "one_hot",
        "pad", "relu", "scaled_dot_product_attention", "sigmoid", "silu", "softmax", "softplus",
        "tanh",
    )),
    *(f"torch.{x}" for x in (
        "abs", "arange", "bmm", "cat", "cos", "einsum", "exp", "flatten", "log", "log_softmax",
        "matmul", "mean", "permute", "relu", "reshape", "rsqrt", "sigmoid", "sin", "softmax",
        "sqrt", "squeeze", "stack", "sum", "tanh", "transpose", "tril", "triu", "unsqueeze",
    )),
    "len", "range", "zip", "enumerate", "reversed", "super", "tuple", "list",
}  # fmt: skip
_METHODS: Final = {
    "chunk", "clone", "contiguous", "detach", "expand", "flatten", "float", "masked_fill", "mean",
    "permute", "pow", "relu", "repeat", "reshape", "sigmoid", "size", "softmax", "split", "squeeze",
    "sum", "tanh", "transpose", "type_as", "unbind", "unflatten", "unsqueeze", "view",
}  # fmt: skip
_NO_MODULES: Final = {"Module", "Parameter", "Buffer"}
# What gives the same model again.
_KEEPS: Final = {"to", "cuda", "train", "requires_grad_"}
_WRAPS: Final = ("torch.compile", "torch.nn.parallel.DistributedDataParallel",
                 "torch.nn.DataParallel")  # fmt: skip
_MORE: Final = (ast.Try, ast.With, ast.AsyncWith, ast.Global, ast.Nonlocal, ast.Yield,
                ast.YieldFrom)  # fmt: skip


class Modules:
    """The proof for one model and all that it is made of."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._seen: set[ast.ClassDef] = set()
        self._methods: set[Function] = set()

    def is_model(self, value: ast.expr) -> bool:
        """Tell whether a value is a model for certain."""
        kinds = [None if x is None else self._kind(x) for x in self._made(value, 0)]
        # A loss is a module, too.
        return bool(kinds) and all(x and not str(x).endswith("Loss") for x in kinds)

    def check(self, value: ast.expr) -> None:
        """Refuse a model of which a part may not run in half precision."""
        for made in self._made(value, 0):
            if made is None:
                raise self._unseen(value, value)
            self._check_made(made)

    def _unseen(self, value: ast.expr, where: ast.AST) -> Refused:
        return Refused(f"what {self.source.code(value)} is made of is not seen here", where)

    def _kind(self, made: ast.Call) -> ast.ClassDef | str | None:
        """Return the class of a module that is made here: one of the file's, or its name."""
        known = self.source.definition(made.func)
        if isinstance(known, ast.ClassDef):
            is_module = len(known.bases) == 1
            return (
                known
                if is_module and self.source.means(known.bases[0], "torch.nn.Module")
                else None
            )
        module, _, name = (self.source.imported(made.func) or "").rpartition(".")
        is_module = module == "torch.nn" and name[0].isupper() and name not in _NO_MODULES
        return name if is_module else None

    def _made(self, value: ast.expr | None, depth: int) -> Iterator[ast.Call | None]:
        """Yield the calls that make a model; ``None`` where one is not seen."""
        if depth > DEEPEST:
            yield None
        elif isinstance(value, ast.Call):
            known = self.source.defined(value.func)
            if (same := self._same(value)) is not None:
                yield from self._made(same, depth + 1)
            elif known is not None:
                returns = [x.value for x in inside(*known.body) if isinstance(x, ast.Return)]
                for each in returns or (None,):
                    yield from self._made(each, depth + 1)
            else:
                yield value
        elif isinstance(value, ast.Name):
            yield from self._named(value, depth)
        elif isinstance(value, ast.Attribute) and is_of_self(value):
            for one in set_on_self(self.source, value) or (None,):
                yield from self._made(one, depth + 1)
        else:
            yield None

    def _same(self, call: ast.Call) -> ast.expr | None:
        """Return what gives the same model again: ``x`` of ``x.to(device)``."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS:
            return call.func.value
        return call.args[0] if self.source.means(call.func, *_WRAPS) and call.args else None

    def _named(self, name: ast.Name, depth: int) -> Iterator[ast.Call | None]:
        places = self.source.assigned(name)
        if not places or self.source.is_shared(name):
            yield None
        for place in places:
            if isinstance(place, ast.arg):
                for given in given_to(self.source, place):
                    yield from self._made(given, depth + 1)
                continue
            value = self.source.set_to(place)
            if not (len(places) > 1 and self._is_itself(value, name.id)):
                yield from self._made(value, depth + 1)

    def _is_itself(self, value: ast.expr | None, name: str) -> bool:
        """Tell whether a value is what a name was: ``model = model.to(device)``."""
        while isinstance(value, ast.Call):
            value = self._same(value)
        return isinstance(value, ast.Name) and value.id == name

    # What it is made of --------------------------------------------------------------------------
    def _check_made(self, made: ast.Call) -> None:
        kind = self._kind(made)
        if kind is None:
            raise Refused(f"what {self.source.code(made.func)} does is not seen here", made)
        if isinstance(kind, ast.ClassDef):
            self._check_class(kind)
            return
        if kind not in _LAYERS:
            raise Refused(f"whether {kind} runs in half precision is not certain", made)
        if kind in {"Sequential", "ModuleList"}:
            for each in made.args:
                self._check_parts(each, made)
        elif kind == "TransformerEncoder":
            self.check(made.args[0])

    def _check_parts(self, value: ast.expr, where: ast.AST) -> None:
        """Check the layers that others are made of, alone or in a list."""
        match value:
            case ast.Starred(value=inner):
                self._check_parts(inner, where)
            case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
                self._check_parts(inner, where)
            case ast.List(elts=several) | ast.Tuple(elts=several):
                for each in several:
                    self._check_parts(each, where)
            case ast.Call():
                self._check_made(value)
            case _:
                raise self._unseen(value, where)

    def _check_class(self, kind: ast.ClassDef) -> None:
        if kind in self._seen:
            return
        self._seen.add(kind)
        methods = methods_of(kind)
        if "forward" not in methods:
            raise Refused("a model without a forward pass of its own", kind)
        begin = methods.get("__init__")
        for call in inside(*begin.body) if begin is not None else ():
            if isinstance(call, ast.Call) and self._kind(call) is not None:
                self._check_made(call)
        self._check_method(methods["forward"])

    def _check_method(self, method: Function) -> None:
        if method.decorator_list:
            raise Refused("a method of the model has a decorator", method)
        if method not in self._methods:
            self._methods.add(method)
            self.check_code(method.body)

    def check_code(self, code: list[ast.stmt]) -> None:
        """Refuse code of which it is not certain that it runs with tensors of two types."""
        for node in inside(*code):
            if not all(isinstance(x, ast.Name | ast.Tuple) for x in targets(node)):
                raise Refused("it writes into what may be of another type", node)
            if isinstance(node, _MORE):
                raise Refused("it does more than compute", node)
            if isinstance(node, ast.Call):
                self.check_call(node)

    def check_call(self, call: ast.Call) -> None:
        """Refuse a call of which the same is not certain."""
        func, name = call.func, self.source.imported(call.func)
        if name in _FUNCTIONS and not any(x.arg in {"out", "dtype"} for x in call.keywords):
            return
        if isinstance(func, ast.Attribute) and name is None:
            if func.attr in _METHODS and dotted(func.value) != "self":
                return
        if name is None and self._is_layer(func):
            return
        raise Refused(f"what {self.source.code(func)} does in half precision is not certain", call)

    def _is_layer(self, func: ast.expr) -> bool:
        """Tell whether a layer of the model, or a method of its own, is called."""
        source, of = self.source, self.source.class_of(func)
        if isinstance(func, ast.Subscript):
            return self._is_layer(func.value)
        if isinstance(func, ast.Attribute) and is_of_self(func) and of is not None:
            method = methods_of(of).get(func.attr)
            if method is not None:
                self._check_method(method)
                return True
            made = set_on_self(source, func)
            return bool(made) and all(isinstance(x, ast.Call) and self._kind(x) for x in made)
        if isinstance(func, ast.Name):
            for above in source.around(func):
                if isinstance(above, ast.For) and dotted(above.target) == func.id:
                    return self._is_layer(above.iter)
        return False


def methods_of(kind: ast.ClassDef) -> dict[str, Function]:
    """Return the methods of a class by their names."""
    return {x.name: x for x in kind.body if isinstance(x, Function)}


def set_on_self(source: Source, value: ast.Attribute) -> list[ast.expr]:
    """Return all that an attribute of ``self`` is set to in its class."""
    of = source.class_of(value)
    found: list[ast.expr] = []
    for node in inside(of) if of is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                found += [made for one, made in pairs if dotted(one) == dotted(value)]
    return found
