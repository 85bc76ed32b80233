"""``tf.function`` around the step, where the step does nothing but compute with tensors."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import is_plain
from whyidle.monitor.fixes._called import check_arguments, plain_params, step_of
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._graph import Graph, check_layers


def change(source: Source, wanted: Wanted) -> Change:
    """Make a graph of the function that a loop calls and that takes the gradient."""
    name = source.spelt("tensorflow.function")
    if name is None:
        raise NotHere
    calls = [x for x in source.calls if source.loops(x)]
    function = step_of(source, calls, wanted, "tensorflow.GradientTape", or_called=True)
    if any("function" in source.code(mark) for mark in function.decorator_list):
        raise NotHere
    check_layers(source)
    Graph(source).check(function)
    plain_params(function)
    # A call may be given nothing that would make another graph each time.
    for use in source.uses(function):
        above = source.parent(use)
        if not isinstance(above, ast.Call) or above.func is not use:
            raise Refused(f"{function.name} is handed on", use)
        if any(is_plain(x, int, float) for x in above.args):
            raise Refused("it is called with a number", above)
        check_arguments(source, above, ("tensorflow.", "keras.", "numpy."))
    found = Change(source)
    found.before(function, f"@{name}")
    found.notes.append("Python in the step runs once for each shape, when its graph is built.")
    return found


codemod = Codemod(title="The step is a graph", rules=("eager_tensorflow",))
