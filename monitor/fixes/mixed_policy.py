"""Layers of Keras compute in bfloat16, by the policy that is set before the first is built.

What they return is of half precision then. Proved first: that nothing but Keras sees it, that the
loss is one of Keras', which computes in float32, and that all layers are Keras' own.
"""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, is_call_of_method, plain_text
from whyidle.monitor.code.source import arguments
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import OF_BFLOAT16, OTHER_MASKS, Codemod, Wanted
from whyidle.monitor.fixes._graph import LAYERS

_SETS: Final = "mixed_precision.set_global_policy"
# What says a type itself, or what sees values of half precision.
_SAYS: Final = {
    "mixed_precision", "DTypePolicy", "dtype_policy", "set_dtype_policy", "set_floatx", "float16",
    "bfloat16", "GradientTape", "train_step", "predict", "predict_on_batch", "numpy_function",
    "py_function", "load_model", "clone_model",
}  # fmt: skip
_RANDOM: Final = {"Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise", "RandomFlip",
                  "RandomCrop", "RandomRotation", "RandomZoom", "MultiHeadAttention",
                  "Attention"}  # fmt: skip
# Probabilities need their digits: the layer that gives them stays in float32.
_PROBABILITIES: Final = {"softmax", "sigmoid"}


def change(source: Source, _wanted: Wanted) -> Change:
    """Set the policy after the imports, and leave probabilities in float32."""
    name = source.spelt(f"keras.{_SETS}") or source.spelt(f"tensorflow.keras.{_SETS}")
    if name is None:
        raise NotHere
    if said := _SAYS & (source.words | source.texts):
        raise Refused(f"the program says a type itself, or sees what layers return ({min(said)})")
    for kind in source.everything:
        bases = kind.bases if isinstance(kind, ast.ClassDef) else ()
        if any(_of_keras(source, x) is not None for x in bases):
            raise Refused("a part of the program's own may mix types", kind)
    found = Change(source)
    layers = 0
    for call in source.calls:
        part = _of_keras(source, call.func)
        if part is None:
            _check_fit(source, call)
            continue
        layers += part.startswith("layers.")
        _check_part(source, part, call)
        if plain_text(argument(call, "activation")) in _PROBABILITIES:
            found.argument(call, "dtype", '"float32"')
    if not layers or "compile" not in source.words or "fit" not in source.words:
        raise Refused("no model is built, compiled and fitted in this file")
    found.after_imports(f'{name}("mixed_bfloat16")')
    found.notes += OF_BFLOAT16
    if any("dropout" in word.lower() for word in source.words):
        found.notes.append(OTHER_MASKS)
    return found


def _of_keras(source: Source, func: ast.expr) -> str | None:
    name = source.imported(func) or ""
    name = name.removeprefix("tensorflow.")
    return name.removeprefix("keras.") if name.startswith("keras.") else None


def _check_part(source: Source, part: str, call: ast.Call) -> None:
    """Refuse a layer that may mix types, and activations of the program's own."""
    kind, _, name = part.partition(".")
    known = kind != "layers" or name in LAYERS | _RANDOM
    if argument(call, "dtype") is not None:
        raise Refused("the program says a type itself", call)
    if not known or kind in {"applications", "backend", "ops", "Model.from_config"}:
        raise Refused(f"what {name or part} does in half precision is not certain", call)
    for each in arguments(call):
        if source.definition(each) is not None or isinstance(each, ast.Lambda):
            raise Refused("a function of the program's own works on what layers return", call)


def _check_fit(source: Source, call: ast.Call) -> None:
    """Refuse a loss that may not compute in float32."""
    if not is_call_of_method(call, "compile"):
        return
    for given in (argument(call, "loss"), argument(call, "metrics")):
        some = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
        for each in () if given is None else some:
            made = source.constant(each)
            is_keras = isinstance(made, ast.Call) and _of_keras(source, made.func) is not None
            if each is not None and not (is_keras or plain_text(made) is not None):
                raise Refused(f"whether {source.code(each)} needs float32 is not certain", call)


codemod = Codemod(
    title="Layers compute in bfloat16",
    rules=("full_precision_matmul",),
    framework="tensorflow",
    changes_numbers=True,
)
