"""What models of PyTorch are made of, and whether all of it may run in half precision.

``torch.autocast`` runs products in half precision, and in float32 what needs the digits. What it
does not know it runs with what it is given: there, tensors of two types may meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._called import given_to
from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._source import Source

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
_DEEPEST: Final = 8


class Modules:
    """The proof for one model and all that it is made of."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._seen: set[cst.ClassDef] = set()
        self._methods: set[cst.FunctionDef] = set()

    def is_model(self, value: cst.BaseExpression) -> bool:
        """Tell whether a value is a model for certain."""
        found = list(self._made(value, 0))
        kinds = [None if x is None else self._kind(x) for x in found]
        # A loss is a module, too.
        return bool(kinds) and all(x and not str(x).endswith("Loss") for x in kinds)

    def check(self, value: cst.BaseExpression) -> None:
        """Refuse a model of which a part may not run in half precision."""
        for made in self._made(value, 0):
            if made is None:
                raise Refused(f"what {self.source.code(value)} is made of is not seen here",
                              self.source.line(value))  # fmt: skip
            self._check_made(made)

    def _kind(self, made: cst.Call) -> cst.ClassDef | str | None:
        """Return the class of a module that is made here: one of the file's, or its name."""
        known = self.source.definition(made.func)
        if isinstance(known, cst.ClassDef):
            bases = [x.value for x in known.bases]
            is_module = len(bases) == 1 and self.source.means(bases[0], "torch.nn.Module")
            return known if is_module else None
        module, _, name = (self.source.imported(made.func) or "").rpartition(".")
        is_module = module == "torch.nn" and name[0].isupper() and name not in _NO_MODULES
        return name if is_module else None

    def _made(self, value: cst.BaseExpression, depth: int) -> Iterator[cst.Call | None]:
        """Yield the calls that make a model; ``None`` where one is not seen."""
        source = self.source
        if depth > _DEEPEST:
            yield None
        elif isinstance(value, cst.Call):
            known = source.definition(value.func)
            if isinstance(value.func, cst.Attribute) and value.func.attr.value in _KEEPS:
                yield from self._made(value.func.value, depth + 1)
            elif source.means(value.func, *_WRAPS) and value.args:
                yield from self._made(value.args[0].value, depth + 1)
            elif isinstance(known, cst.FunctionDef):
                returns = [x.value for x in inside(known.body) if isinstance(x, cst.Return)]
                for each in returns or [None]:
                    yield from self._made(each, depth + 1) if each is not None else [None]
            else:
                yield value
        elif isinstance(value, cst.Name):
            yield from self._named(value, depth)
        elif isinstance(value, cst.Attribute) and dotted(value.value) == "self":
            yield from self._of_self(value, depth)
        else:
            yield None

    def _named(self, name: cst.Name, depth: int) -> Iterator[cst.Call | None]:
        try:
            places = self.source.assigned(name)
        except KeyError:
            places = []
        if not places or self.source.is_shared(name):
            yield None
        for place in places:
            if isinstance(place, cst.Param):
                for given in given_to(self.source, place):
                    yield from [None] if given is None else self._made(given, depth + 1)
                continue
            value = self.source.set_to(place)
            if value is None:
                yield None
            elif not (len(places) > 1 and self._is_itself(value, name.value)):
                yield from self._made(value, depth + 1)

    def _is_itself(self, value: cst.BaseExpression, name: str) -> bool:
        """Tell whether a value is what a name was: ``model = model.to(device)``."""
        while isinstance(value, cst.Call):
            if isinstance(value.func, cst.Attribute) and value.func.attr.value in _KEEPS:
                value = value.func.value
            elif self.source.means(value.func, *_WRAPS) and value.args:
                value = value.args[0].value
            else:
                return False
        return isinstance(value, cst.Name) and value.value == name

    def _of_self(self, value: cst.Attribute, depth: int) -> Iterator[cst.Call | None]:
        found = set_on_self(self.source, value)
        if not found:
            yield None
        for each in found:
            yield from self._made(each, depth + 1)

    # What it is made of --------------------------------------------------------------------------
    def _check_made(self, made: cst.Call) -> None:
        kind, where = self._kind(made), self.source.line(made)
        if kind is None:
            raise Refused(f"what {self.source.code(made.func)} does is not seen here", where)
        if isinstance(kind, cst.ClassDef):
            self._check_class(kind)
            return
        if kind not in _LAYERS:
            raise Refused(f"whether {kind} runs in half precision is not certain", where)
        if kind in {"Sequential", "ModuleList"}:
            for arg in made.args:
                self._check_parts(arg.value, where)
        elif kind == "TransformerEncoder":
            self.check(made.args[0].value)

    def _check_parts(self, value: cst.BaseExpression, where: int) -> None:
        """Check the layers that others are made of, alone or in a list."""
        if isinstance(value, cst.ListComp | cst.GeneratorExp):
            value = value.elt
        if isinstance(value, cst.List | cst.Tuple):
            for element in value.elements:
                self._check_parts(element.value, where)
        elif isinstance(value, cst.Call):
            self._check_made(value)
        else:
            raise Refused(f"what {self.source.code(value)} is made of is not seen here", where)

    def _check_class(self, kind: cst.ClassDef) -> None:
        if kind in self._seen:
            return
        self._seen.add(kind)
        methods = methods_of(kind)
        if "forward" not in methods:
            raise Refused("a model without a forward pass of its own", self.source.line(kind))
        begin = methods.get("__init__")
        for call in inside(begin.body) if begin is not None else ():
            if isinstance(call, cst.Call) and self._kind(call) is not None:
                self._check_made(call)
        self._check_method(methods["forward"])

    def _check_method(self, method: cst.FunctionDef) -> None:
        if method.decorators:
            raise Refused("a method of the model has a decorator", self.source.line(method))
        if method not in self._methods:
            self._methods.add(method)
            self.check_code(method.body)

    def check_code(self, code: cst.CSTNode) -> None:
        """Refuse code of which it is not certain that it runs with tensors of two types."""
        source = self.source
        for node in inside(code):
            if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
                if not isinstance(node.target, cst.Name | cst.Tuple):
                    raise Refused("it writes into what may be of another type", source.line(node))
            if isinstance(node, cst.Try | cst.With | cst.Global | cst.Nonlocal | cst.Yield):
                raise Refused("it does more than compute", source.line(node))
            if isinstance(node, cst.Call):
                self.check_call(node)

    def check_call(self, call: cst.Call) -> None:
        source, func = self.source, call.func
        name = source.imported(func)
        if (
            name is not None
            and name in _FUNCTIONS
            and not any(
                x.keyword is not None and x.keyword.value in {"out", "dtype"} for x in call.args
            )
        ):
            return
        if isinstance(func, cst.Attribute) and name is None:
            if func.attr.value in _METHODS and dotted(func.value) != "self":
                return
        if name is None and self._is_layer(func):
            return
        raise Refused(f"what {source.code(func)} does in half precision is not certain",
                      source.line(call))  # fmt: skip

    def _is_layer(self, func: cst.BaseExpression) -> bool:
        """Tell whether a layer of the model, or a method of its own, is called."""
        source = self.source
        if isinstance(func, cst.Subscript):
            return self._is_layer(func.value)
        of = next((x for x in source.around(func) if isinstance(x, cst.ClassDef)), None)
        if isinstance(func, cst.Attribute) and dotted(func.value) == "self" and of is not None:
            method = methods_of(of).get(func.attr.value)
            if method is not None:
                self._check_method(method)
                return True
            made = set_on_self(source, func)
            return bool(made) and all(isinstance(x, cst.Call) and self._kind(x) for x in made)
        if isinstance(func, cst.Name):
            for above in source.around(func):
                if isinstance(above, cst.For) and func.value in dotted(above.target).split("."):
                    return self._is_layer(above.iter)
        return False


def methods_of(kind: cst.ClassDef) -> dict[str, cst.FunctionDef]:
    """Return the methods of a class by their names."""
    return {x.name.value: x for x in kind.body.body if isinstance(x, cst.FunctionDef)}


def set_on_self(source: Source, value: cst.Attribute) -> list[cst.BaseExpression]:
    """Return all that an attribute of ``self`` is set to in its class."""
    of = next((x for x in source.around(value) if isinstance(x, cst.ClassDef)), None)
    found: list[cst.BaseExpression] = []
    for node in () if of is None else inside(of):
        for target in node.targets if isinstance(node, cst.Assign) else ():
            names, made = target.target, cst.ensure_type(node, cst.Assign).value
            pairs: list[tuple[cst.CSTNode, cst.BaseExpression]] = [(names, made)]
            if isinstance(names, cst.Tuple) and isinstance(made, cst.Tuple):
                sides = zip(names.elements, made.elements, strict=False)
                pairs = [(one.value, other.value) for one, other in sides]
            found += [other for one, other in pairs if dotted(one) == dotted(value)]
    return found
