"""Layers of Flax compute in bfloat16: ``dtype=jnp.bfloat16``; parameters stay in float32.

The last layer of a model stays as it is, so that the model returns what it returned, and the loss
is computed in float32. In between, JAX takes the wider of two types.
"""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import has_stars, inside, is_of_self, names_set, targets
from whyidle.monitor.code.source import Function, dotted, variables
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import OF_BFLOAT16, Codemod, Wanted
from whyidle.monitor.fixes._modules import methods_of, set_on_self

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
_LAYS_OUT: Final = {"squeeze", "reshape", "ravel", "flatten"}


def change(source: Source, _wanted: Wanted) -> Change:
    """Say the type of every layer but the last."""
    kinds = [x for x in source.everything if isinstance(x, ast.ClassDef) and len(x.bases) == 1
             and source.means(x.bases[0], "flax.linen.Module", "flax.nnx.Module")]  # fmt: skip
    mine = set(inside(*kinds))
    layers = [x for x in source.calls if x in mine and source.imported(x.func) in _LAYERS]
    if not layers:
        raise NotHere
    within = source.words_of(mine)
    if said := (_SAYS & source.words) | (_NEEDS & within):
        raise Refused(f"the program says a type itself, or needs two of one type ({min(said)})")
    kept = {_last_layer(source, x) for x in kinds if _is_top(source, x, mine)}
    found = Change(source)
    for call in layers:
        if call in kept:
            continue
        most = _LAYERS[source.imported(call.func) or ""]
        if len(call.args) > most or has_stars(call):
            raise Refused("arguments of a layer are not said by name", call)
        found.argument(call, "dtype", found.spelling("jax.numpy.bfloat16", call))
    found.notes += OF_BFLOAT16
    return found


def _is_top(source: Source, kind: ast.ClassDef, mine: set[ast.AST]) -> bool:
    """Tell whether a module is more than a part of others."""
    uses = source.uses(kind)
    return not uses or any(use not in mine for use in uses)


def _last_layer(source: Source, kind: ast.ClassDef) -> ast.Call:
    """Return the layer whose result a model returns; refuse a model that returns other values."""
    methods = methods_of(kind)
    forward = methods.get("__call__")
    if forward is None or set(methods) - {"__call__", "setup", "__init__"}:
        raise Refused("the model has more ways in than one", kind)
    returns = [x for x in inside(*forward.body) if isinstance(x, ast.Return)]
    value = returns[0].value if len(returns) == 1 else None
    for _ in range(8):
        match value:
            case ast.Name(id=name):
                value = _set_last(forward, name)
            case ast.Subscript(value=inner):
                value = inner
            case ast.Call(func=ast.Attribute(inner, attr) as func) if (
                attr in _LAYS_OUT and source.imported(func) is None
            ):
                value = inner
            case _:
                break
    layer = _layer(source, value.func) if isinstance(value, ast.Call) else None
    if layer is None:
        raise Refused("what the model returns comes from no layer for certain", kind)
    return layer


def _set_last(forward: Function, name: str) -> ast.expr | None:
    """Return what a name is set to last, whatever was before."""
    found: ast.expr | None = None
    for line in forward.body:
        parts = (x for node in inside(line) for x in targets(node))
        if name in names_set(line) | variables(*parts):
            is_plain = isinstance(line, ast.Assign) and dotted(line.targets[0]) == name
            found = line.value if is_plain else None  # type: ignore[attr-defined]
    return found


def _layer(source: Source, func: ast.expr) -> ast.Call | None:
    """Return the call that makes what is called: ``nn.Dense(3)``, or ``self.out``."""
    if isinstance(func, ast.Attribute) and is_of_self(func):
        made = set_on_self(source, func)
        func = made[0] if len(made) == 1 else func
    is_layer = isinstance(func, ast.Call) and source.imported(func.func) in _LAYERS
    return func if is_layer else None  # type: ignore[return-value]


codemod = Codemod(
    title="Layers compute in bfloat16, but for the last",
    rules=("full_precision_matmul",),
    framework="jax",
    changes_numbers=True,
)
