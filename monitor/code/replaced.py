"""Whether a call's result takes the place of one of its arguments, by the user's own source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from whyidle.monitor.code.source import MODULE, arguments, lines_of, nodes_of, tree_of, written
from whyidle.monitor.core.finding import Place, SourceLine

Assigned = ast.Assign | ast.AnnAssign
_DEFINED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_replaced(place: Place) -> bool:
    """Tell whether what a line calls gives a new value to what it was called with."""
    for statement in nodes_of(place.file):
        if not isinstance(statement, Assigned) or place.line not in lines_of(statement):
            continue
        call = statement.value
        if not isinstance(call, ast.Call):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        new = {written(one) for target in targets for one in _parts(target)}
        old = {written(one) for given in arguments(call) for one in _parts(given)}
        if (new & old) - {""}:
            return True
    return False


def calls_of(function: str, lines: Iterable[SourceLine]) -> Iterator[Place]:
    """Yield the lines that call a function and keep what it gives, near where the job is.

    Its compilation may not have been seen: then its name is all that is known of it.
    """
    for file, where in dict.fromkeys((line.file, line.function) for line in lines):
        tree = tree_of(file)
        if tree is None:
            continue
        names = _names_of(function, tree)
        for body in _bodies(tree, where):
            yield from (Place(file, one.lineno, where) for one in _kept(body, names))


def _bodies(tree: ast.Module, where: str) -> Iterator[ast.AST]:
    """Yield what a function of that name does; of a module what it does itself."""
    if where == MODULE:
        yield from (one for one in tree.body if not isinstance(one, _DEFINED))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == where:
            yield node


def _names_of(function: str, tree: ast.Module) -> set[str]:
    """Return what a function is called by: its name, and those of what is made of it."""
    found = {function}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if any(written(one).rpartition(".")[2] == function for one in node.value.args):
            found |= {written(target) for target in node.targets}
    return found


def _kept(body: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(body):
        if isinstance(node, Assigned) and isinstance(node.value, ast.Call):
            # Another object's method of that name is another function.
            called = written(node.value.func)
            if called in names or called.removeprefix("self.") in names:
                yield node.value


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from _parts(each)
    else:
        yield node.value if isinstance(node, ast.Starred) else node
