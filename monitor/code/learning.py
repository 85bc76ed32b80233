"""Whether a piece of the user's code learns: by what it calls, and by what it makes anew.

What is due every few steps may be the learning itself: gradients that were added up, or an agent
that plays four moves for each time it learns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.source import (
    callee,
    calls,
    dotted,
    functions,
    last,
    nodes_at,
    tree_of,
    variables,
    written,
)
from whyidle.monitor.runs.stacks import CodeLine

# Functions of the same file that it calls, and those that they call.
DEEPEST: Final = 4
_LEARNS: Final = re.compile(
    r"backward|zero_grad|grad|value_and_grad|apply_(gradients|updates)|minimize"
    r"|\w*(learn|fit|optimi[sz]e|train|update)(_\w+)?"
)
# To set a mode is no training, and a bar of progress learns nothing.
_MODES: Final = re.compile(r"(.*\.)?train")
_NO_MODELS: Final = re.compile(
    r"(.*\.)?\w*(bar|progress|ema|metrics?|meter|task|stats?|logs?|info|history|config|params)"
    r"\.update",
    re.IGNORECASE,
)
_OPTIMIZERS: Final = re.compile(r"(.*\.)?\w*(opt|optim|optimi[sz]er|scaler|engine)\.step")
# What is made anew by these is no state that learns.
_MAKES: Final = re.compile(r"(.*\.)?(split|fold_in|append|extend|add|sum|stack|max|min|next)")


def learns(file: str, body: Sequence[ast.stmt]) -> bool:
    """Tell whether some statements learn."""
    return any(_renewed(body)) or _calls_what_learns(file, body, DEEPEST)


@lru_cache(maxsize=4096)
def learns_at(line: CodeLine) -> bool:
    """Tell whether a line learns by itself."""
    statements = [x for x in nodes_at(line.file, line.line) if isinstance(x, ast.Assign)]
    return any(map(_is_learning, calls(line.file, line.line))) or any(_renewed(statements))


@lru_cache(maxsize=1024)
def is_learned_from(line: CodeLine) -> bool:
    """Tell whether gradients go back through what a line makes, in the function that it is in."""
    around = reversed(nodes_at(line.file, line.line))
    function = (x for x in around if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef))
    scope = next(function, None) or tree_of(line.file)
    if scope is None:
        return False
    inside = list(ast.walk(scope))
    roots = [
        call.func.value
        for call in inside
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "backward"
    ]
    if any(x.lineno <= line.line <= (x.end_lineno or x.lineno) for x in roots):
        return True
    if all(x.lineno < line.line for x in roots):
        # A name may serve again for what is only printed.
        return False
    assigned = [node for node in inside if isinstance(node, ast.Assign | ast.AugAssign)]
    wanted = variables(*roots)
    while made := [x for x in assigned if _targets(x) & wanted]:
        if any(x.lineno <= line.line <= (x.end_lineno or x.lineno) for x in made):
            return True
        assigned = [x for x in assigned if x not in made]
        wanted |= variables(*(x.value for x in made))
    return False


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    return variables(*(node.targets if isinstance(node, ast.Assign) else [node.target]))


def _calls_what_learns(file: str, body: Sequence[ast.AST], depth: int) -> bool:
    made = [node for each in body for node in ast.walk(each) if isinstance(node, ast.Call)]
    if any(map(_is_learning, made)):
        return True
    names = {last(call) for call in made} - {""} if depth else set()
    called = [found for name in sorted(names) for found in functions(file, name)]
    return any(
        # The variables of a function are made anew by every pass through a model.
        any(isinstance(target, ast.Attribute | ast.Subscript) for target in _renewed(each.body))
        or _calls_what_learns(file, each.body, depth - 1)
        for each in called
    )


def _is_learning(call: ast.Call) -> bool:
    name = callee(call)
    if _OPTIMIZERS.fullmatch(name):
        return True
    if not _LEARNS.fullmatch(last(call)) or _NO_MODELS.fullmatch(name):
        return False
    return not (_MODES.fullmatch(name) and all(isinstance(x, ast.Constant) for x in call.args))


def _renewed(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Yield what is made anew from what it was, as in ``params = update(params, batch)``."""
    for node in (node for each in body for node in ast.walk(each)):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if _MAKES.fullmatch(dotted(node.value.func)):
            continue
        given = {written(each) for each in node.value.args} - {"self"}
        given |= {written(each.value) for each in node.value.keywords}
        for target in node.targets:
            several = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (each for each in several if written(each) in given)
