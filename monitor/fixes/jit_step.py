"""``jax.jit`` around the step, where the step does nothing but compute with arrays."""

from __future__ import annotations

from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._called import called, check_argument, reached
from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import training_loop
from whyidle.monitor.fixes._pieces import inside
from whyidle.monitor.fixes._pure import Purity, params_of
from whyidle.monitor.fixes._source import Source

_ABOUT: Final = {"shape", "ndim", "dtype", "size", "T", "at", "mean", "sum", "reshape", "astype",
                 "max", "min", "items", "keys", "values", "get", "argmax", "transpose", "std",
                 "squeeze", "ravel", "flatten", "dot", "var"}  # fmt: skip
_SIZED: Final = {"axis", "shape", "length", "num_classes", "dtype", "axes", "unroll", "size"}
_MAKES: Final = {"zeros", "ones", "full", "empty", "arange", "eye", "linspace", "range", "tri"}
_RESHAPES: Final = {"reshape", "split", "array_split", "repeat", "tile", "one_hot", "broadcast_to",
                    "top_k", "swapaxes", "expand_dims", "moveaxis"}  # fmt: skip
# What a compiled function takes as an array, or as a tree of them.
_ARRAYS: Final = ("jax.", "numpy.", "optax.")


def change(source: Source, wanted: Wanted) -> Change:
    """Compile the outermost function that a training loop calls and that has what was found."""
    name = source.spelt("jax.jit")
    found = Change()
    if name is None:
        if source.spelt("jax.numpy") is None or "jax" in source.words:
            if "jax" not in source.words:
                raise NotHere
        found.imports.append("jax")
        name = "jax.jit"
    function = _step(source, wanted)
    where = source.line(function)
    if any("jit" in source.code(mark) for mark in function.decorators):
        raise NotHere
    if function.decorators:
        raise Refused("the step has a decorator", where)
    Purity(source).check(function)
    _check_params(source, function)
    _check_uses(source, function)
    mark = cst.Decorator(cst.parse_expression(name))

    def edit(old: Any) -> Any:
        return old.with_changes(
            decorators=[mark], lines_after_decorators=(), leading_lines=old.leading_lines
        )

    found.edits[function] = edit
    found.notes.append("Compiled code may round differently in the last digits.")
    return found


def _step(source: Source, wanted: Wanted) -> cst.FunctionDef:
    """Return the function of the module that a loop calls and that leads to what was found."""
    steps: list[cst.FunctionDef] = []
    for call in source.calls:
        if training_loop(source, call) is None:
            continue
        function = called(source, call)
        if function is None or source.parent(function) is not source.module:
            continue
        below = set(reached(source, function))
        is_found = any(source.covers(f, line) for f in below for line in wanted.lines)
        if (
            (is_found or not wanted.lines)
            and function not in steps
            and _differentiates(source, below)
        ):
            steps.append(function)
    if not steps:
        raise NotHere
    if len(steps) > 1:
        raise Refused("several functions of the loop have what was found", source.line(steps[1]))
    return steps[0]


def _differentiates(source: Source, functions: set[cst.FunctionDef]) -> bool:
    return any(
        isinstance(node, cst.Call) and source.means(node.func, "jax.grad", "jax.value_and_grad")
        for function in functions
        for node in inside(function)
    )


def _check_params(source: Source, function: cst.FunctionDef) -> None:
    """Refuse a parameter that is no array: a function, a size, an object."""
    for param in params_of(function):
        for use in source.uses(param.name):
            above = source.parent(use)
            if isinstance(above, cst.Call) and above.func is use:
                raise Refused(f"{param.name.value} is a function", source.line(use))
            if isinstance(above, cst.Attribute) and above.value is use:
                if above.attr.value not in _ABOUT:
                    raise Refused(f"{param.name.value} is an object: .{above.attr.value}",
                                  source.line(use))  # fmt: skip
            if _is_size(source, use):
                raise Refused(f"{param.name.value} may say how large something is",
                              source.line(use))  # fmt: skip
            call = source.parent(above) if isinstance(above, cst.Arg) else None
            if isinstance(call, cst.Call) and source.means(
                call.func, "range", "jax.numpy.zeros", "jax.numpy.ones", "jax.numpy.full",
                "jax.numpy.arange", "jax.numpy.eye", "jax.lax.fori_loop",
            ):  # fmt: skip
                raise Refused(f"{param.name.value} says how large something is", source.line(use))
        if param.default is not None:
            raise Refused(f"{param.name.value} has a default", source.line(param))


def _is_size(source: Source, use: cst.CSTNode) -> bool:
    """Tell whether a value may be a length, a shape or an axis."""
    above = source.parent(use)
    if isinstance(above, cst.Attribute) and above.attr.value in {"shape", "ndim", "dtype", "size"}:
        return False
    below = use
    for each in source.around(use):
        if isinstance(each, cst.Slice):
            return True
        if isinstance(each, cst.Arg) and each.keyword and each.keyword.value in _SIZED:
            return True
        if isinstance(each, cst.Call) and below is not each.func:
            name = each.func.attr if isinstance(each.func, cst.Attribute) else each.func
            word = name.value if isinstance(name, cst.Name) else ""
            is_array = source.imported(each.func) is not None and each.args[0] is below
            if word in _MAKES or (word in _RESHAPES and not is_array):
                return True
        if isinstance(each, cst.BaseStatement):
            return False
        below = each
    return False


def _check_uses(source: Source, function: cst.FunctionDef) -> None:
    """Refuse a call with what no compiled function takes, or what is more than an array."""
    names = [function.name]
    for use in source.uses(function.name):
        above = source.parent(use)
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            alias = above.targets[0].target
            if isinstance(alias, cst.Name):
                names.append(alias)
    for name in names:
        for use in source.uses(name):
            above = source.parent(use)
            if isinstance(above, cst.Call) and above.func is use:
                for arg in above.args:
                    check_argument(source, arg, above, _ARRAYS)


codemod = Codemod(
    title="The step is compiled",
    rules=("unjitted_step",),
    change=change,
)
