"""What a line of the user's source calls: a framework, or the host alone. Text only.

A line at which a thread is found runs by itself or is in a call of C. Which of the two, and whose
call, follows from the names: where they were imported from, and what was assigned to them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.bindings import SCOPES, last_name, own
from whyidle.monitor.code.scopes import Calls, Scope
from whyidle.monitor.code.source import tree_of

# Methods that give another look at the same numbers, and compute nothing.
_VIEWS: Final = frozenset(
    {"contiguous", "detach", "expand", "flatten", "permute", "reshape", "squeeze", "transpose"}
    | {"unsqueeze", "view"}
)


def calls_of(file: str, line: int) -> Calls:
    """Return whom a line calls; unclear where its names do not say."""
    try:
        found = {scope.kind(node) for node, scope in _expressions(file).get(line, ())}
    except RecursionError:
        # A sum of a thousand terms is nested a thousand deep.
        return Calls.UNCLEAR
    if not found or Calls.UNCLEAR in found:
        return Calls.UNCLEAR
    if Calls.FRAMEWORK in found:
        return Calls.FRAMEWORK if found == {Calls.FRAMEWORK} else Calls.UNCLEAR
    return Calls.HOST if found == {Calls.HOST} else Calls.LIBRARY


def reads_at(file: str, line: int) -> bool:
    """Tell whether a line brings a framework's value to the host, as far as its names say."""
    try:
        return any(
            isinstance(node, ast.Call) and scope.reads(node)
            for node, scope in _expressions(file).get(line, ())
        )
    except RecursionError:
        return False


def computes_before_it_reads(file: str, line: int) -> bool:
    """Tell whether a line makes the value that it brings: its time is that of both."""
    try:
        return any(
            _computes_what_it_reads(node, scope)
            for node, scope in _expressions(file).get(line, ())
            if isinstance(node, ast.Call) and scope.reads(node)
        )
    except RecursionError:
        return True


def _computes_what_it_reads(call: ast.Call, scope: Scope) -> bool:
    inner = [each for part in (call.func, *call.args) for each in _makers(part)]
    if any(scope.reads(each) for each in inner if isinstance(each, ast.Call)):
        # What is done with a value that was read is the host's.
        return False
    return any(not _is_view(each) for each in inner)


def _makers(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what makes a value: no numbers that say which part of it, or how it is looked at."""
    if isinstance(node, ast.Call | ast.BinOp | ast.Compare):
        yield node
    looked_at = _is_view(node) or isinstance(node, ast.Subscript)
    first = node.func if isinstance(node, ast.Call) else getattr(node, "value", None)
    for each in [first] if looked_at and first else ast.iter_child_nodes(node):
        yield from _makers(each)


def _is_view(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in _VIEWS


@lru_cache(maxsize=64)
def _expressions(file: str) -> dict[int, list[tuple[ast.AST, Scope]]]:
    """Return by line what computes something there, and in which scope."""
    found: dict[int, list[tuple[ast.AST, Scope]]] = {}
    made: dict[int, list[tuple[ast.AST, Scope]]] = {}
    tree = tree_of(file)
    waiting: list[tuple[ast.AST, Scope | None]] = [] if tree is None else [(tree, None)]
    while waiting:
        top, outer = waiting.pop()
        scope = Scope(outer)
        scope.enter(top)
        for node in own(top):
            if isinstance(node, SCOPES):
                waiting.append((node, scope))
            elif isinstance(node, ast.Call | ast.BinOp | ast.Compare):
                found.setdefault(node.lineno, []).append((node, scope))
            elif isinstance(node, ast.AugAssign):
                both = ast.BinOp(node.target, node.op, node.value)
                found.setdefault(node.lineno, []).append((both, scope))
            elif isinstance(node, (ast.JoinedStr, ast.Dict, ast.List, ast.Set)):
                made.setdefault(node.lineno, []).append((node, scope))
    # What is only put together is the host's own; a call in it says more.
    return made | found
