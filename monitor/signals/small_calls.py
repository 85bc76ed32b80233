"""A model that is called for little at a time: once for each piece of a row, or each observation.

A compiler holds one call: what it saves there has to be more than what it costs to call the result.
A loop within ``forward`` is in the same call, and is unrolled.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import nodes_at
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.operators import PARAMETER, steps_in
from whyidle.monitor.signals.traced import Traced
from whyidle.monitor.signals.window import Window

# A model that is called twice or less in a step may have two inputs, or a metric of its own.
MIN_CALLS: Final = 3.0
# Of operators as a trace counts them, with those of the gradient: of calls with 9 to 32 the step
# took 1.4 to 2.9 times as long compiled, with 54 as long, with 99 it took 0.6 of it
# (``called_for_little`` in ``benchmarks/step_costs.py``).
MAX_OPERATORS: Final = 60.0
# Such an operator goes through a whole row by itself.
_RECURRENT: Final = r"aten::(_thnn_\w+|lstm|gru|rnn_\w+|mkldnn_rnn_layer|_cudnn_rnn)"
_LAYERS: Final = r"aten::(linear|convolution|bmm|baddbmm)"
# With a bias each layer has two parameters.
_PARAMETERS: Final = 2


@dataclass(frozen=True, slots=True)
class SmallCalls:
    """How often a model is called in a step, and how many operators such a call has."""

    calls: Measure
    operators: Measure


def small_calls(window: Window, trace: Traced) -> SmallCalls | None:
    """Return the calls of a model with too little in each; ``None``: not so, or not known."""
    added, steps = trace.count(PARAMETER), steps_in(trace)
    if not added or not steps or trace.count(_RECURRENT):
        return None
    calls = _PARAMETERS * trace.count(_LAYERS) / added
    # Where the main thread is in a model, the loop may be in ``forward``.
    rows = () if window.host is None else window.host.rows
    inside = [(row, [x for x in row.frames if x.function == "forward"]) for row in rows]
    whole = sum(row.share for row, frames in inside if frames)
    looping = sum(row.share for row, frames in inside if any(map(_is_in_loop, frames)))
    if calls < MIN_CALLS or 2 * looping > whole > 0:
        return None
    operators = sum(device["kernels"] for device in trace.devices) / steps / calls
    if operators > MAX_OPERATORS:
        return None
    return SmallCalls(trace.measure(calls, "1/step"), trace.measure(operators, "count"))


def _is_in_loop(line: CodeLine) -> bool:
    """Tell whether a line is in a loop over anything but the parts of a model."""
    around = list(nodes_at(line.file, line.line))
    inner = [at for at, node in enumerate(around) if isinstance(node, ast.FunctionDef)]
    loops = [x for x in around[inner[-1] if inner else 0 :] if isinstance(x, ast.For | ast.While)]
    return any(isinstance(loop, ast.While) or not _is_of_parts(loop.iter) for loop in loops)


def _is_of_parts(iterated: ast.expr) -> bool:
    """Tell whether attributes of ``self`` are gone through, alone or numbered."""
    if isinstance(iterated, ast.Call):
        names = {node.id for node in ast.walk(iterated.func) if isinstance(node, ast.Name)}
        if "range" in names:
            return False
        return any(map(_is_of_parts, iterated.args)) or "self" in names
    return any(isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(iterated))
