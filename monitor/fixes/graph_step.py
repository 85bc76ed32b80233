"""``tf.function`` around the step, where the step does nothing but compute with tensors."""

from __future__ import annotations

from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._called import called, check_argument, reached
from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._graph import Graph, check_layers
from whyidle.monitor.fixes._pieces import inside
from whyidle.monitor.fixes._pure import params_of
from whyidle.monitor.fixes._source import Source

_TENSORS: Final = ("tensorflow.", "keras.", "numpy.")


def change(source: Source, wanted: Wanted) -> Change:
    """Make a graph of the function that a loop calls and that takes the gradient."""
    name = source.spelt("tensorflow.function")
    if name is None:
        raise NotHere
    function = _step(source, wanted)
    where = source.line(function)
    if any("function" in source.code(mark) for mark in function.decorators):
        raise NotHere
    check_layers(source)
    Graph(source).check(function)
    for param in params_of(function):
        if param.default is not None:
            raise Refused(f"{param.name.value} has a default", where)
    _check_uses(source, function)
    mark = cst.Decorator(cst.parse_expression(name))

    def edit(old: Any) -> Any:
        return old.with_changes(decorators=[mark], lines_after_decorators=())

    found = Change()
    found.edits[function] = edit
    found.notes.append("Python in the step runs once for each shape, when its graph is built.")
    return found


def _step(source: Source, wanted: Wanted) -> cst.FunctionDef:
    steps: list[cst.FunctionDef] = []
    for call in source.calls:
        function = called(source, call) if source.loops(call) else None
        if function is None or source.parent(function) is not source.module:
            continue
        below = set(reached(source, function))
        is_found = any(source.covers(f, line) for f in below for line in wanted.lines)
        is_found = is_found or any(
            source.covers(source.statement(call), line) for line in wanted.lines
        )
        takes = any(
            isinstance(x, cst.Call) and source.means(x.func, "tensorflow.GradientTape")
            for f in below
            for x in inside(f)
        )
        if takes and (is_found or not wanted.lines) and function not in steps:
            steps.append(function)
    if not steps:
        raise NotHere
    if len(steps) > 1:
        raise Refused("several functions of the loop have what was found", source.line(steps[1]))
    return steps[0]


def _check_uses(source: Source, function: cst.FunctionDef) -> None:
    """Refuse a call with what would make another graph each time."""
    for use in source.uses(function.name):
        above = source.parent(use)
        if not isinstance(above, cst.Call) or above.func is not use:
            raise Refused(f"{function.name.value} is handed on", source.line(use))
        for arg in above.args:
            if isinstance(arg.value, cst.Float | cst.Integer):
                raise Refused("it is called with a number", source.line(above))
            check_argument(source, arg, above, _TENSORS)


codemod = Codemod(
    title="The step is a graph",
    rules=("eager_tensorflow",),
    change=change,
)
