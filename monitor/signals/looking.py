"""Looks at the main thread, as they tell of a step: without start-up, and how sure they are.

A recording of a minute still holds the seconds in which the job imported its libraries and built
its model. They are no part of a step, and make every share of one look smaller than it is.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.source import tree_of
from whyidle.monitor.summary import Line

# By chance nineteen of twenty such counts miss by less than twice their standard error.
SURE: Final = 2.0
# Where nobody says how many looks there were: as many as ten seconds have.
FEW: Final = 1 / 50
_MODULE: Final = ""
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Looks:
    """Where the main thread was found in the steps, by its own lines and by anybody's."""

    lines: tuple[Line, ...]
    leaves: tuple[Line, ...]
    # The share of one look.
    one: float

    def error(self, share: float) -> float:
        """Return by how much a share may be wrong by chance."""
        share = min(1.0, share)
        return SURE * math.sqrt(share * (1 - share) * self.one)


def looks(job: Recorded) -> Looks:
    """Return the looks at the steps; all of them where no start-up was seen."""
    out = start_up(job.lines)
    left = 1.0 - sum(line.share for line in out)
    one = min([FEW, *(line.share for line in (*job.lines, *job.leaves))])
    if job.looks:
        one = 1 / job.looks
    if not out or left <= 0:
        return Looks(tuple(job.lines), tuple(job.leaves), one)
    lines = tuple(_of(line, left) for line in job.lines if line not in out)
    return Looks(lines, tuple(_of(leaf, left) for leaf in job.leaves), min(1.0, one / left))


def _of(line: Line, left: float) -> Line:
    return replace(line, share=min(1.0, line.share / left))


def start_up(lines: Iterable[Line]) -> frozenset[Line]:
    """Return the lines that run once, and before or after the steps.

    A line that runs once may also hold the whole training (``trainer.fit(model)``). So it must be
    an import, or stand beside a loop in which the main thread was found more.
    """
    found: set[Line] = set()
    beside: dict[tuple[str, str | None], list[Line]] = {}
    looped: dict[tuple[str, str | None], float] = {}
    for line in lines:
        code = _code_of(line.file)
        place = None if code is None else code.lines.get(line.line)
        if code is None or place is None or place.scope not in code.once:
            continue
        scope = (line.file, place.scope)
        if place.imports:
            found.add(line)
        elif place.in_loop:
            looped[scope] = looped.get(scope, 0.0) + line.share
        else:
            beside.setdefault(scope, []).append(line)
    for where, some in beside.items():
        if looped.get(where, 0.0) > sum(line.share for line in some):
            found.update(some)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _At:
    """Where a piece of code stands; ``scope``: a function, the module; ``None``: in a method."""

    scope: str | None
    in_loop: bool = False
    imports: bool = False


@dataclass(frozen=True, slots=True)
class _Code:
    """A file: where its lines stand, and which of its functions run once."""

    lines: dict[int, _At]
    once: frozenset[str | None]


@lru_cache(maxsize=64)
def _code_of(file: str) -> _Code | None:
    tree = tree_of(file)
    if tree is None:
        return None
    lines: dict[int, _At] = {}
    uses: dict[str, list[_At]] = {}
    for node, at in _walk(tree, _At(_MODULE)):
        if isinstance(node, ast.stmt):
            lines.update(dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), at))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(at)
    names = [node.name for node in tree.body if isinstance(node, _FUNCTIONS)]
    return _Code(lines, _once({name for name in names if names.count(name) == 1}, uses))


def _walk(node: ast.AST, at: _At) -> Iterator[tuple[ast.AST, _At]]:
    """Yield every piece of code and where it stands, the outer before the inner."""
    for each in ast.iter_child_nodes(node):
        inner = at
        if isinstance(each, _FUNCTIONS):
            inner = _At(each.name if isinstance(node, ast.Module) else None)
        elif isinstance(each, ast.ClassDef | ast.Lambda):
            inner = _At(None)
        elif isinstance(each, _LOOPS + _COMPREHENSIONS):
            inner = replace(at, in_loop=True)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            inner = replace(at, imports=True)
        yield each, inner
        yield from _walk(each, inner)


def _once(functions: set[str], uses: dict[str, list[_At]]) -> frozenset[str | None]:
    """Return the functions that are named once, outside of every loop, by code that runs once."""
    found: set[str | None] = {_MODULE}
    while True:
        more = {
            name
            for name in functions - found
            if len(some := uses.get(name, [])) == 1
            and not some[0].in_loop
            and some[0].scope in found
        }
        if not more:
            return frozenset(found)
        found |= more
