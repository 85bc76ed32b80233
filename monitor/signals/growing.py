"""Loops over a sequence that grows: what is made of it is put to its end."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import Final

from whyidle.monitor.runs.stacks import CodeLine
from whyidle.monitor.signals.source import dotted, tree_of

_JOINS: Final = re.compile(r"(torch|jnp|jax\.numpy)\.(cat|concat|concatenate|hstack|append)")


@lru_cache(maxsize=64)
def _loops(file: str) -> dict[int, int]:
    """Return by line within such a loop the line at which the sequence grows."""
    tree = tree_of(file)
    found: dict[int, int] = {}
    for loop in () if tree is None else ast.walk(tree):
        if not isinstance(loop, ast.For | ast.While):
            continue
        inside = [node for each in loop.body for node in ast.walk(each)]
        for node in inside:
            if isinstance(node, ast.Assign) and _grows(node) and _goes_on(node, inside):
                lines = range(loop.body[0].lineno, (loop.end_lineno or loop.lineno) + 1)
                found |= dict.fromkeys(lines, node.lineno)
    return found


def grown_at(frames: tuple[CodeLine, ...]) -> CodeLine | None:
    """Return the line at which the sequence of a loop around a stack grows; ``None``: none does."""
    for line in frames:
        at = _loops(line.file).get(line.line)
        if at is not None:
            return line._replace(line=at)
    return None


def _grows(node: ast.Assign) -> bool:
    """Tell whether a name gets its own value with more at its end."""
    call, target = node.value, node.targets[0]
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or not call.args:
        return False
    parts = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else call.args
    first = parts[0] if len(parts) > 1 else None
    joins = _JOINS.fullmatch(dotted(call.func)) is not None
    return joins and isinstance(first, ast.Name) and first.id == target.id


def _goes_on(node: ast.Assign, inside: list[ast.AST]) -> bool:
    """Tell whether what is put to the end was computed from all before it, or its last part."""
    assigned = [x for x in inside if isinstance(x, ast.Assign) and x is not node]
    sequence = _names(*node.targets)
    for each in assigned:
        if isinstance(each.value, ast.Subscript | ast.IfExp) and _names(each.value) & sequence:
            sequence |= _names(*each.targets)
    wanted = _names(node.value) - _names(*node.targets)
    # From the new part back through what it was made of.
    while made := [each for each in assigned if _names(*each.targets) & wanted]:
        assigned = [each for each in assigned if each not in made]
        for each in made:
            if any(_takes(call, sequence) for call in ast.walk(each.value)):
                return True
            wanted |= _names(each.value)
    return False


def _takes(call: ast.AST, names: set[str]) -> bool:
    if not isinstance(call, ast.Call):
        return False
    arguments = [*call.args, *(each.value for each in call.keywords)]
    return any(isinstance(each, ast.Name) and each.id in names for each in arguments)


def _names(*some: ast.AST) -> set[str]:
    return {each.id for one in some for each in ast.walk(one) if isinstance(each, ast.Name)}
