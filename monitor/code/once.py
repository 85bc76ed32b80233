"""Which code of a file runs once, as imports and what is set up do, and which in loops."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.source import Function, tree_of

_MODULE: Final = ""
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class At:
    """Where a piece of code stands; ``scope``: a function, the module; ``None``: in a method."""

    scope: str | None
    # The first line of the outermost loop around it.
    loop: int | None = None
    imports: bool = False


@lru_cache(maxsize=64)
def run_once(file: str) -> dict[int, At]:
    """Return where the lines stand of what runs once, by itself or by code that does."""
    tree = tree_of(file)
    if tree is None:
        return {}
    lines: dict[int, At] = {}
    uses: dict[str, list[At]] = {}
    for node, at in _walk(tree):
        if isinstance(node, ast.stmt):
            lines.update(dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), at))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(at)
    names = Counter(node.name for node in tree.body if isinstance(node, Function))
    once: set[str | None] = {_MODULE}
    # Functions that are named once, outside of every loop, by code that runs once.
    while more := {
        name
        for name, defined in names.items()
        if name not in once
        and defined == 1
        and len(some := uses.get(name, [])) == 1
        and some[0].loop is None
        and some[0].scope in once
    }:
        once |= more
    return {line: at for line, at in lines.items() if at.scope in once}


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, At]]:
    """Yield every piece of code and where it stands, the outer before the inner."""
    # No recursion: a sum of a thousand terms is nested a thousand deep.
    waiting: list[tuple[ast.AST, ast.AST, At]] = []
    waiting.extend((each, tree, At(_MODULE)) for each in reversed(tree.body))
    while waiting:
        node, parent, at = waiting.pop()
        inner = at
        if isinstance(node, Function):
            inner = At(node.name if isinstance(parent, ast.Module) else None)
        elif isinstance(node, ast.ClassDef | ast.Lambda):
            inner = At(None)
        elif isinstance(node, _LOOPS + _COMPREHENSIONS) and at.loop is None:
            inner = replace(at, loop=node.lineno)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            inner = replace(at, imports=True)
        yield node, inner
        waiting.extend((each, node, inner) for each in [*ast.iter_child_nodes(node)][::-1])
