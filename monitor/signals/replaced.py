"""Whether a call's result takes the place of one of its arguments, by the user's own source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whyidle.monitor.finding import Place
from whyidle.monitor.signals.source import tree_of, written

Assigned = ast.Assign | ast.AnnAssign


def is_replaced(place: Place) -> bool:
    """Tell whether what a line calls gives a new value to what it was called with."""
    for statement in _assigned(place):
        call = statement.value
        if not isinstance(call, ast.Call):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        new = {written(one) for target in targets for one in _parts(target)}
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        old = {written(one) for argument in given for one in _parts(argument)}
        if (new & old) - {""}:
            return True
    return False


def _assigned(place: Place) -> Iterator[Assigned]:
    tree = tree_of(place.file)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, Assigned) and node.lineno <= place.line <= (node.end_lineno or 0):
            yield node


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from _parts(each)
    else:
        yield node.value if isinstance(node, ast.Starred) else node
