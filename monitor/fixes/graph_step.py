"""``tf.function`` around the step, where the step does nothing but compute with tensors."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import is_plain
from whyidle.monitor.code.source import Function
from whyidle.monitor.fixes._called import check_arguments, plain_params, step_of
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._graph import Graph, check_layers

_TAPE: Final = "tensorflow.GradientTape"
_TENSORS: Final = ("tensorflow.", "keras.", "numpy.")


def change(source: Source, wanted: Wanted) -> Change:
    """Make a graph of the function that a loop calls and that takes the gradient."""
    name = source.spelt("tensorflow.function")
    if name is None:
        raise NotHere
    calls = [x for x in source.calls if source.loops(x)]
    function = step_of(source, calls, wanted, _TAPE, or_called=True)
    if any("function" in source.code(mark) for mark in function.decorator_list):
        raise NotHere
    check_layers(source)
    Graph(source).check(function)
    plain_params(function)
    _check_uses(source, function)
    found = Change(source)
    found.before(function, f"@{name}")
    found.notes.append("Python in the step runs once for each shape, when its graph is built.")
    return found


def _check_uses(source: Source, function: Function) -> None:
    """Refuse a call with what would make another graph each time."""
    for use in source.uses(function):
        above = source.parent(use)
        if not isinstance(above, ast.Call) or above.func is not use:
            raise Refused(f"{function.name} is handed on", source.line(use))
        if any(is_plain(x, int, float) for x in above.args):
            raise Refused("it is called with a number", source.line(above))
        check_arguments(source, above, _TENSORS)


codemod = Codemod(
    title="The step is a graph",
    rules=("eager_tensorflow",),
    change=change,
)
