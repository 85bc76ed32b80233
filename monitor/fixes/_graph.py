"""Whether a function of the user's can be a graph of TensorFlow's: it does nothing but compute.

Python in it runs once, when the graph is built. So nothing in it may depend on running in each
call: no text, no lists of others, no NumPy, no names that change, and no random numbers, which a
graph draws in another order.
"""

from __future__ import annotations

from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Refused
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._pure import check_global
from whyidle.monitor.fixes._source import Source

_FRAMEWORK: Final = ("tensorflow.", "keras.")
_NOT: Final = ("py_function", "numpy_function", "print", "io.", "summary.", "Variable", "config.",
               "data.", "debugging.", "saved_model.", "train.", "function", "random.",
               "keras.layers.", "keras.optimizers.", "keras.models.", "keras.Model",
               "keras.Sequential", "keras.backend.", "keras.random.", "image.random",
               "image.stateless")  # fmt: skip
_BUILTINS: Final = {"len", "zip", "list", "tuple", "range", "sum", "dict", "enumerate", "reversed"}
# Methods of what Keras makes: none draws a number or calls Python of the user's.
_METHODS: Final = {"apply_gradients", "apply", "update_state", "compute_loss"}
_TAPE: Final = {"gradient", "watch"}
# Layers that compute the same each time, by their names in ``keras.layers``.
LAYERS: Final = {
    "Activation", "Add", "Average", "AveragePooling1D", "AveragePooling2D", "BatchNormalization",
    "Bidirectional", "Concatenate", "Conv1D", "Conv2D", "Conv2DTranspose", "Conv3D", "Dense",
    "DepthwiseConv2D", "Dot", "ELU", "Embedding", "Flatten", "GRU", "GlobalAveragePooling1D",
    "GlobalAveragePooling2D", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "GroupNormalization",
    "Input", "InputLayer", "LSTM", "LayerNormalization", "LeakyReLU", "MaxPooling1D",
    "MaxPooling2D", "Maximum", "Multiply", "PReLU", "Permute", "ReLU", "RepeatVector", "Rescaling",
    "Reshape", "SeparableConv2D", "SimpleRNN", "Softmax", "Subtract", "TimeDistributed",
    "UpSampling2D", "ZeroPadding2D",
}  # fmt: skip
_DEEPEST: Final = 4
_MORE: Final = (cst.Global, cst.Nonlocal, cst.Yield, cst.Await, cst.Del, cst.Try, cst.Import,
                cst.ImportFrom, cst.ClassDef, cst.While, cst.For, cst.If, cst.IfExp, cst.Assert,
                cst.Raise, cst.Lambda, cst.NamedExpr)  # fmt: skip


def check_layers(source: Source) -> None:
    """Refuse where a layer may draw random numbers, or a model comes from elsewhere."""
    for call in source.calls:
        name = _of_framework(source, call.func) or ""
        kind, _, part = name.partition("layers.")
        if kind in {"keras.", "keras.src."} and part not in LAYERS:
            raise Refused(f"{part} may draw random numbers, in another order", source.line(call))
        if name.startswith(("keras.applications.", "keras.models.load", "saved_model.load")):
            raise Refused("what the model does is not seen here", source.line(call))
        if name.startswith(("config.run_functions_eagerly", "keras.config.")):
            raise Refused("the program says how functions run itself", source.line(call))


def _of_framework(source: Source, func: cst.BaseExpression) -> str | None:
    """Return the name of something of TensorFlow's or Keras', without the former."""
    name = source.imported(func)
    if name is None or not name.startswith(_FRAMEWORK):
        return None
    return name.removeprefix("tensorflow.")


class Graph:
    """The proof for one function and those of the same file that it calls."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tapes: set[str] = set()

    def check(self, function: cst.FunctionDef, depth: int = 0) -> None:
        """Refuse a function that does, or may do, anything but compute."""
        source = self.source
        if depth > _DEEPEST or function.asynchronous or function.decorators:
            raise Refused("it calls what may do more than compute", source.line(function))
        for node in inside(function.body):
            if isinstance(node, cst.With):
                self._with(node)
        for node in inside(function.body):
            self._node(node, depth)

    def _node(self, node: cst.CSTNode, depth: int) -> None:
        source = self.source
        if isinstance(node, _MORE):
            raise Refused("it does more than compute, or decides by a value", source.line(node))
        if isinstance(node, cst.FormattedString | cst.BooleanOperation):
            raise Refused("it makes text or a truth of values", source.line(node))
        if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
            if isinstance(node.target, cst.Subscript | cst.Attribute):
                raise Refused("it changes something that it was given", source.line(node))
        if isinstance(node, cst.Call):
            self._call(node, depth)
        if isinstance(node, cst.Name) and not self._is_made(node):
            check_global(source, node)

    def _with(self, node: cst.With) -> None:
        for item in node.items:
            call = item.item
            name = _of_framework(self.source, call.func) if isinstance(call, cst.Call) else None
            if name != "GradientTape" or item.asname is None:
                raise Refused("it does more than compute", self.source.line(node))
            if isinstance(item.asname.name, cst.Name):
                self.tapes.add(item.asname.name.value)

    def _call(self, call: cst.Call, depth: int) -> None:
        source, where = self.source, self.source.line(call)
        name = source.imported(call.func)
        if name is not None:
            part = _of_framework(source, call.func)
            fits = part is not None and not part.startswith(_NOT)
            if not (fits or name in _BUILTINS) or "random" in name or "dropout" in name.lower():
                raise Refused(f"it calls {name}, which may be no part of a graph", where)
            return
        known = source.definition(call.func)
        if isinstance(known, cst.FunctionDef):
            self.check(known, depth + 1)
            return
        if isinstance(call.func, cst.Attribute):
            of, method = call.func.value, call.func.attr.value
            if method in _METHODS and self._is_made(of):
                return
            if method in _TAPE and dotted(of) in self.tapes:
                return
        if not self._is_made(call.func):
            raise Refused(f"it calls {source.code(call.func)}, of which nothing is known", where)

    def _is_made(self, name: cst.BaseExpression) -> bool:
        """Tell whether a name is a model, a layer, a loss or an optimizer that Keras made here."""
        if not isinstance(name, cst.Name):
            return False
        try:
            made = self.source.value(name)
        except KeyError:
            return False
        of = _of_framework(self.source, made.func) if isinstance(made, cst.Call) else None
        return of is not None and of.startswith("keras.")
