"""Layers of Keras compute in bfloat16, by the policy that is set before the first is built.

What they return is of half precision then. Proved first: that nothing but Keras sees it, that the
loss is one of Keras', which computes in float32, and that all layers are Keras' own.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import (
    OF_BFLOAT16,
    OTHER_MASKS,
    Change,
    Codemod,
    NotHere,
    Refused,
    Wanted,
)
from whyidle.monitor.fixes._graph import LAYERS
from whyidle.monitor.fixes._pieces import argument, with_argument
from whyidle.monitor.fixes._source import Source

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
    texts = {x.raw_value for x in source.everything if isinstance(x, cst.SimpleString)}
    if said := _SAYS & (source.words | texts):
        raise Refused(f"the program says a type itself, or sees what layers return ({min(said)})")
    for kind in source.everything:
        bases = kind.bases if isinstance(kind, cst.ClassDef) else ()
        if any(_of_keras(source, x.value) is not None for x in bases):
            raise Refused("a part of the program's own may mix types", source.line(kind))
    found = Change()
    layers = 0
    for call in source.calls:
        part = _of_keras(source, call.func)
        if part is None:
            _check_fit(source, call)
            continue
        layers += part.startswith("layers.")
        _check_part(source, part, call)
        given = argument(call, "activation")
        if given is not None and _text(given.value) in _PROBABILITIES:
            found.edits[call] = partial(with_argument, name="dtype", value='"float32"')
    if not layers or "compile" not in source.words or "fit" not in source.words:
        raise Refused("no model is built, compiled and fitted in this file")
    found.after_imports(source, f'{name}("mixed_bfloat16")')
    found.notes += OF_BFLOAT16
    if any("dropout" in word.lower() for word in source.words):
        found.notes.append(OTHER_MASKS)
    return found


def _of_keras(source: Source, func: cst.BaseExpression) -> str | None:
    name = source.imported(func) or ""
    name = name.removeprefix("tensorflow.")
    return name.removeprefix("keras.") if name.startswith("keras.") else None


def _check_part(source: Source, part: str, call: cst.Call) -> None:
    """Refuse a layer that may mix types, and activations of the program's own."""
    kind, _, name = part.partition(".")
    known = kind != "layers" or name in LAYERS | _RANDOM
    if argument(call, "dtype") is not None:
        raise Refused("the program says a type itself", source.line(call))
    if not known or kind in {"applications", "backend", "ops", "Model.from_config"}:
        raise Refused(f"what {name or part} does in half precision is not certain",
                      source.line(call))  # fmt: skip
    for arg in call.args:
        if source.definition(arg.value) is not None or isinstance(arg.value, cst.Lambda):
            raise Refused("a function of the program's own works on what layers return",
                          source.line(call))  # fmt: skip


def _check_fit(source: Source, call: cst.Call) -> None:
    """Refuse a loss that may not compute in float32."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "compile":
        return
    for name in ("loss", "metrics"):
        given = argument(call, name)
        for each in _each(given.value) if given is not None else ():
            made = source.constant(each)
            is_keras = isinstance(made, cst.Call) and _of_keras(source, made.func) is not None
            if not (is_keras or _text(made) is not None):
                raise Refused(f"whether {source.code(each)} needs float32 is not certain",
                              source.line(call))  # fmt: skip


def _each(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(value, cst.List | cst.Tuple):
        return [x.value for x in value.elements]
    return [value]


def _text(value: cst.BaseExpression | None) -> str | None:
    return str(value.evaluated_value) if isinstance(value, cst.SimpleString) else None


codemod = Codemod(
    title="Layers compute in bfloat16",
    rules=("full_precision_matmul",),
    change=change,
    changes_numbers=True,
)
