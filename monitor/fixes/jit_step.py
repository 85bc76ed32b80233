"""``jax.jit`` around the step, where the step does nothing but compute with arrays."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.source import Function, last
from whyidle.monitor.fixes._called import check_arguments, plain_params, step_of
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._pure import Purity

_ABOUT: Final = {"shape", "ndim", "dtype", "size", "T", "at", "mean", "sum", "reshape", "astype",
                 "max", "min", "items", "keys", "values", "get", "argmax", "transpose", "std",
                 "squeeze", "ravel", "flatten", "dot", "var"}  # fmt: skip
_SIZED: Final = {"axis", "shape", "length", "num_classes", "dtype", "axes", "unroll", "size"}
_MAKES: Final = {"zeros", "ones", "full", "empty", "arange", "eye", "linspace", "range", "tri"}
_RESHAPES: Final = {"reshape", "split", "array_split", "repeat", "tile", "one_hot", "broadcast_to",
                    "top_k", "swapaxes", "expand_dims", "moveaxis"}  # fmt: skip
_SIZES: Final = ("range", "jax.numpy.zeros", "jax.numpy.ones", "jax.numpy.full", "jax.numpy.arange",
                 "jax.numpy.eye", "jax.lax.fori_loop")  # fmt: skip
# What a compiled function takes as an array, or as a tree of them.
_ARRAYS: Final = ("jax.", "numpy.", "optax.")


def change(source: Source, wanted: Wanted) -> Change:
    """Compile the outermost function that a training loop calls and that has what was found."""
    name, found = source.spelt("jax.jit"), Change(source)
    if name is None:
        if "jax" not in source.words:
            raise NotHere
        found.imports("jax")
    calls = [x for x in source.calls if source.training_loop(x) is not None]
    function = step_of(source, calls, wanted, "jax.grad", "jax.value_and_grad")
    if source.is_compiled(function):
        raise NotHere
    if function.decorator_list:
        raise Refused("the step has a decorator", function)
    Purity(source).check(function)
    _check_params(source, function)
    _check_uses(source, function)
    found.before(function, f"@{name or 'jax.jit'}")
    found.notes.append("Compiled code may round differently in the last digits.")
    return found


def _check_params(source: Source, function: Function) -> None:
    """Refuse a parameter that is no array: a function, a size, an object."""
    for param in plain_params(function):
        name = param.arg
        for use in source.uses(param):
            above, call = source.parent(use), source.call_with(use)
            if isinstance(above, ast.Call) and above.func is use:
                raise Refused(f"{name} is a function", use)
            if isinstance(above, ast.Attribute) and above.attr not in _ABOUT:
                raise Refused(f"{name} is an object: .{above.attr}", use)
            if _is_size(source, use):
                raise Refused(f"{name} may say how large something is", use)
            if call is not None and source.means(call.func, *_SIZES):
                raise Refused(f"{name} says how large something is", use)


def _is_size(source: Source, use: ast.AST) -> bool:
    """Tell whether a value may be a length, a shape or an axis."""
    above = source.parent(use)
    if isinstance(above, ast.Attribute) and above.attr in {"shape", "ndim", "dtype", "size"}:
        return False
    below = use
    for each in source.within_statement(use):
        if isinstance(each, ast.Slice) or (isinstance(each, ast.keyword) and each.arg in _SIZED):
            return True
        if isinstance(each, ast.Call) and below is not each.func:
            is_array = source.imported(each.func) is not None and below in each.args[:1]
            if last(each) in _MAKES or (last(each) in _RESHAPES and not is_array):
                return True
        below = each
    return False


def _check_uses(source: Source, function: Function) -> None:
    """Refuse a call with what no compiled function takes, or what is more than an array."""
    names: list[ast.AST] = [function]
    for use in source.uses(function):
        match source.parent(use):
            case ast.Assign(targets=[ast.Name() as alias]):
                names.append(alias)
            case _:
                pass
    for name in names:
        for use in source.uses(name):
            above = source.parent(use)
            if isinstance(above, ast.Call) and above.func is use:
                check_arguments(source, above, _ARRAYS)


codemod = Codemod(title="The step is compiled", rules=("unjitted_step",))
