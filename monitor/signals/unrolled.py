"""Loops of Python in the source of a compiled function whose passes build on one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from whyidle.monitor.core.finding import Place
from whyidle.monitor.signals.source import dotted, functions

# Functions of the same file that a compiled one calls, and those that they call.
DEEPEST: Final = 4


def loops_in(file: str, name: str) -> Iterator[Place]:
    """Yield the lines of the loops in a function, and in those of the file that it names."""
    done, names = set[str](), {name}
    for _ in range(DEEPEST):
        named = set[str]()
        for each in names:
            for function in functions(file, each):
                for node in ast.walk(function):
                    if isinstance(node, ast.For) and _builds_on_itself(node):
                        yield Place(file, node.lineno, each)
                    if isinstance(node, ast.Call):
                        # Also functions that are handed on, as to ``jax.grad``.
                        named |= {dotted(node.func), *(dotted(a) for a in node.args)}
        done |= names
        names = named - done - {""}


def _builds_on_itself(loop: ast.For) -> bool:
    """Tell whether a call in it takes a name that the same statement gives a new value to."""
    for statement in ast.walk(loop):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call | ast.BinOp):
            new = {
                one.id
                for target in statement.targets
                for one in ast.walk(target)
                if isinstance(one, ast.Name)
            }
            read = {one.id for one in ast.walk(statement.value) if isinstance(one, ast.Name)}
            if new & read:
                return True
    return False
