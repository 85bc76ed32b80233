"""Whether a function of the user's can be a graph of TensorFlow's: it does nothing but compute.

Python in it runs once, when the graph is built. So nothing in it may depend on running in each
call: no text, no lists of others, no NumPy, no names that change, and no random numbers, which a
graph draws in another order.
"""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, targets
from whyidle.monitor.code.source import DEEPEST, Function, dotted
from whyidle.monitor.fixes._change import Refused
from whyidle.monitor.fixes._pure import check_global

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
_MORE: Final = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Try,
                ast.Import, ast.ImportFrom, ast.ClassDef, ast.While, ast.For, ast.AsyncFor, ast.If,
                ast.IfExp, ast.Assert, ast.Raise, ast.Lambda, ast.NamedExpr)  # fmt: skip


def check_layers(source: Source) -> None:
    """Refuse where a layer may draw random numbers, or a model comes from elsewhere."""
    for call in source.calls:
        name = _of_framework(source, call.func)
        kind, _, part = name.partition("layers.")
        if kind in {"keras.", "keras.src."} and part not in LAYERS:
            raise Refused(f"{part} may draw random numbers, in another order", call)
        if name.startswith(("keras.applications.", "keras.models.load", "saved_model.load")):
            raise Refused("what the model does is not seen here", call)
        if name.startswith(("config.run_functions_eagerly", "keras.config.")):
            raise Refused("the program says how functions run itself", call)


def _of_framework(source: Source, func: ast.expr | None) -> str:
    """Return the name of something of TensorFlow's or Keras', without the former."""
    name = source.imported(func) or ""
    return name.removeprefix("tensorflow.") if name.startswith(("tensorflow.", "keras.")) else ""


class Graph:
    """The proof for one function and those of the same file that it calls."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tapes: set[str] = set()

    def check(self, function: Function, depth: int = 0) -> None:
        """Refuse a function that does, or may do, anything but compute."""
        is_plain = isinstance(function, ast.FunctionDef) and not function.decorator_list
        if depth > DEEPEST or not is_plain:
            raise Refused("it calls what may do more than compute", function)
        for node in inside(*function.body):
            if isinstance(node, ast.With | ast.AsyncWith):
                self._with(node)
        for node in inside(*function.body):
            self._node(node, depth)

    def _node(self, node: ast.AST, depth: int) -> None:
        source = self.source
        if isinstance(node, _MORE):
            raise Refused("it does more than compute, or decides by a value", node)
        if isinstance(node, ast.JoinedStr | ast.BoolOp):
            raise Refused("it makes text or a truth of values", node)
        if any(isinstance(x, ast.Subscript | ast.Attribute) for x in targets(node)):
            raise Refused("it changes something that it was given", node)
        if isinstance(node, ast.Call):
            self._call(node, depth)
        if isinstance(node, ast.Name) and not self._is_made(node):
            check_global(source, node)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            match item:
                case ast.withitem(ast.Call(func=func), ast.Name(id=name)) if (
                    _of_framework(self.source, func) == "GradientTape"
                ):
                    self.tapes.add(name)
                case _:
                    raise Refused("it does more than compute", node)

    def _call(self, call: ast.Call, depth: int) -> None:
        source, func = self.source, call.func
        name, known = source.imported(func), source.defined(func)
        if name is not None:
            part = _of_framework(source, func)
            fits = (part and not part.startswith(_NOT)) or name in _BUILTINS
            if not fits or "random" in name or "dropout" in name.lower():
                raise Refused(f"it calls {name}, which may be no part of a graph", call)
        elif known is not None:
            self.check(known, depth + 1)
        elif not (self._is_method(func) or self._is_made(func)):
            raise Refused(f"it calls {source.code(func)}, of which nothing is known", call)

    def _is_method(self, func: ast.expr) -> bool:
        if not isinstance(func, ast.Attribute):
            return False
        is_known = func.attr in _METHODS and self._is_made(func.value)
        return is_known or (func.attr in _TAPE and dotted(func.value) in self.tapes)

    def _is_made(self, name: ast.expr) -> bool:
        """Tell whether a name is a model, a layer, a loss or an optimizer that Keras made here."""
        made = self.source.value(name)
        is_call = isinstance(made, ast.Call)
        return is_call and _of_framework(self.source, made.func).startswith("keras.")  # type: ignore[union-attr]
