"""Layers of Flax compute in bfloat16: ``dtype=jnp.bfloat16``; parameters stay in float32.

The last layer of a model stays as it is, so that the model returns what it returned, and the loss
is computed in float32. In between, JAX takes the wider of two types.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import OF_BFLOAT16, Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._modules import methods_of, set_on_self
from whyidle.monitor.fixes._pieces import dotted, inside, with_argument
from whyidle.monitor.fixes._source import Source

_BASES: Final = ("flax.linen.Module", "flax.nnx.Module")
# With how many arguments by place the type is not yet among them.
_LAYERS: Final = {
    "flax.linen.Dense": 1, "flax.linen.Conv": 2, "flax.linen.ConvTranspose": 2,
    "flax.nnx.Linear": 2, "flax.nnx.Conv": 3, "flax.nnx.ConvTranspose": 3,
}  # fmt: skip
# What says a type itself.
_SAYS: Final = {"bfloat16", "float16", "jax_enable_x64", "default_matmul_precision",
                "jax_default_matmul_precision", "DynamicScale"}  # fmt: skip
# Within a module: what may take no two types, or keeps what comes out of layers.
_NEEDS: Final = {
    "dtype", "param_dtype", "precision", "scan", "while_loop", "fori_loop", "cond", "switch", "RNN",
    "lax", "sow", "perturb", "variable", "Variable", "preferred_element_type",
}  # fmt: skip
_STARTS: Final = {"__call__", "setup", "__init__"}
_LAYS_OUT: Final = {"squeeze", "reshape", "ravel", "flatten"}


def change(source: Source, _wanted: Wanted) -> Change:
    """Say the type of every layer but the last."""
    kinds = [x for x in source.everything if isinstance(x, cst.ClassDef) and len(x.bases) == 1
             and source.means(x.bases[0].value, *_BASES)]  # fmt: skip
    layers = {x: source.imported(x.func) or "" for kind in kinds for x in inside(kind)
              if isinstance(x, cst.Call) and source.imported(x.func) in _LAYERS}  # fmt: skip
    if not layers:
        raise NotHere
    within = {x.value for kind in kinds for x in inside(kind) if isinstance(x, cst.Name)}
    if said := (_SAYS & source.words) | (_NEEDS & within):
        raise Refused(f"the program says a type itself, or needs two of one type ({min(said)})")
    tops = [x for x in kinds if _is_top(source, x, kinds)]
    kept = {_last_layer(source, x) for x in tops}
    found = Change()
    for call, name in layers.items():
        if call in kept:
            continue
        if len([x for x in call.args if x.keyword is None]) > _LAYERS[name] or any(
            x.star for x in call.args
        ):
            raise Refused("arguments of a layer are not said by name", source.line(call))
        half = found.spelling(source, "jax.numpy.bfloat16", call)
        found.edits[call] = partial(with_argument, name="dtype", value=half)
    if not found.edits:
        raise NotHere
    found.notes += OF_BFLOAT16
    return found


def _is_top(source: Source, kind: cst.ClassDef, kinds: list[cst.ClassDef]) -> bool:
    """Tell whether a module is more than a part of others."""
    mine = {x for each in kinds for x in inside(each)}
    uses = source.uses(kind.name)
    return not uses or any(use not in mine for use in uses)


def _last_layer(source: Source, kind: cst.ClassDef) -> cst.Call:
    """Return the layer whose result a model returns; refuse a model that returns other values."""
    methods, where = methods_of(kind), source.line(kind)
    forward = methods.get("__call__")
    if forward is None or set(methods) - _STARTS:
        raise Refused("the model has more ways in than one", where)
    returns = [x for x in inside(forward.body) if isinstance(x, cst.Return)]
    value = returns[0].value if len(returns) == 1 else None
    for _ in range(8):
        if isinstance(value, cst.Name):
            value = _set_last(forward, value.value)
        elif isinstance(value, cst.Subscript):
            value = value.value
        elif isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and (
            value.func.attr.value in _LAYS_OUT and source.imported(value.func) is None
        ):  # fmt: skip
            value = value.func.value
        else:
            break
    layer = _layer(source, value.func) if isinstance(value, cst.Call) else None
    if layer is None:
        raise Refused("what the model returns comes from no layer for certain", where)
    return layer


def _set_last(forward: cst.FunctionDef, name: str) -> cst.BaseExpression | None:
    """Return what a name is set to last, whatever was before."""
    found: cst.BaseExpression | None = None
    for line in forward.body.body:
        for node in inside(line):
            target = node.target if isinstance(node, cst.AssignTarget | cst.AugAssign) else None
            if target is not None and name in {dotted(x) for x in inside(target)}:
                found = None
                small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
                if isinstance(small, cst.Assign) and dotted(small.targets[0].target) == name:
                    found = small.value
    return found


def _layer(source: Source, func: cst.BaseExpression) -> cst.Call | None:
    """Return the call that makes what is called: ``nn.Dense(3)``, or ``self.out``."""
    if isinstance(func, cst.Attribute) and dotted(func.value) == "self":
        made = set_on_self(source, func)
        func = made[0] if len(made) == 1 else func
    is_layer = isinstance(func, cst.Call) and source.imported(func.func) in _LAYERS
    return func if isinstance(func, cst.Call) and is_layer else None


codemod = Codemod(
    title="Layers compute in bfloat16, but for the last",
    rules=("full_precision_matmul",),
    change=change,
    changes_numbers=True,
)
