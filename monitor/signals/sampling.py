"""Stack samples of the main thread within the steps: without start-up, and with their error.

A recording of a minute still holds the seconds in which the job imported its libraries and built
its model. They are no part of a step, and make every share of one look smaller than it is.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.source import tree_of
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.signals.recorded import Recorded

# By chance nineteen of twenty such counts miss by less than twice their standard error.
SURE: Final = 2.0
# Where the number of samples is not known: as many as ten seconds have.
FEW: Final = 1 / 50
_MODULE: Final = ""
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class StepSamples:
    """Where the main thread was found in the steps, by its own lines and by anybody's."""

    lines: tuple[SourceLine, ...]
    leaves: tuple[SourceLine, ...]
    # The share of one sample.
    one: float
    # Start-up that was left out by its lines, and is still among the leaves, not known where.
    hidden: float = 0.0

    def error(self, share: float) -> float:
        """Return by how much a share may be wrong by chance."""
        share = min(1.0, share)
        return SURE * math.sqrt(share * (1 - share) * self.one)

    def at_leaves(self, does: Callable[[SourceLine], bool]) -> float:
        """Return the share of the leaves that do something; of it only what is no start-up."""
        mine = {(line.file, line.line) for line in self.lines}
        own = others = 0.0
        for leaf in self.leaves:
            if not does(leaf):
                continue
            if (leaf.file, leaf.line) in mine:
                own += leaf.share
            else:
                others += leaf.share
        return min(1.0, own + max(0.0, others - self.hidden))


def step_samples(job: Recorded) -> StepSamples:
    """Return the samples of the steps; all of them where no start-up was seen."""
    out = start_up(job.lines, by_time=bool(job.warm_s))
    taken = sum(line.share for line in out)
    left = 1.0 - taken
    one = min([FEW, *(line.share for line in (*job.lines, *job.leaves))])
    if job.looks:
        one = 1 / job.looks
    if not out or left <= 0:
        return StepSamples(tuple(job.lines), tuple(job.leaves), one)
    places = {(line.file, line.line) for line in out}
    lines = tuple(_of(line, left) for line in job.lines if line not in out)
    leaves = tuple(_of(x, left) for x in job.leaves if (x.file, x.line) not in places)
    known = sum(leaf.share for leaf in job.leaves if (leaf.file, leaf.line) in places)
    return StepSamples(lines, leaves, min(1.0, one / left), max(0.0, taken - known) / left)


def _of(line: SourceLine, left: float) -> SourceLine:
    return replace(line, share=min(1.0, line.share / left))


def start_up(lines: Iterable[SourceLine], *, by_time: bool = False) -> frozenset[SourceLine]:
    """Return the lines that run once, and before the steps; ``by_time``: these are known already.

    A line that runs once may also hold the whole training (``trainer.fit(model)``). So it must be
    an import, or stand before the last loop, in which the main thread was found more.
    """
    imports: set[SourceLine] = set()
    beside: dict[tuple[str, str | None], list[SourceLine]] = {}
    looped: dict[tuple[str, str | None], dict[int, float]] = {}
    for line in lines:
        code = _code_of(line.file)
        place = None if code is None else code.lines.get(line.line)
        if code is None or place is None or place.scope not in code.once:
            continue
        scope = (line.file, place.scope)
        if place.imports:
            imports.add(line)
        elif place.loop is not None:
            loops = looped.setdefault(scope, {})
            loops[place.loop] = loops.get(place.loop, 0.0) + line.share
        else:
            beside.setdefault(scope, []).append(line)
    if by_time:
        return frozenset(imports)
    before: set[SourceLine] = set()
    for scope, loops in looped.items():
        last = max(loops)
        some = [line for line in beside.get(scope, ()) if line.line < last]
        if loops[last] > sum(line.share for line in some):
            before.update(some)
    return frozenset(imports | before)


@dataclass(frozen=True, slots=True)
class _At:
    """Where a piece of code stands; ``scope``: a function, the module; ``None``: in a method."""

    scope: str | None
    # The first line of the outermost loop around it.
    loop: int | None = None
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
    for node, at in _walk(tree):
        if isinstance(node, ast.stmt):
            lines.update(dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), at))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(at)
    names = [node.name for node in tree.body if isinstance(node, _FUNCTIONS)]
    return _Code(lines, _once({name for name in names if names.count(name) == 1}, uses))


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, _At]]:
    """Yield every piece of code and where it stands, the outer before the inner."""
    # No recursion: a sum of a thousand terms is nested a thousand deep.
    waiting: list[tuple[ast.AST, ast.AST, _At]] = []
    waiting.extend((each, tree, _At(_MODULE)) for each in reversed(tree.body))
    while waiting:
        node, parent, at = waiting.pop()
        inner = _inside(node, parent, at)
        yield node, inner
        waiting.extend((each, node, inner) for each in [*ast.iter_child_nodes(node)][::-1])


def _inside(node: ast.AST, parent: ast.AST, at: _At) -> _At:
    """Return where that stands which is within a piece of code."""
    if isinstance(node, _FUNCTIONS):
        return _At(node.name if isinstance(parent, ast.Module) else None)
    if isinstance(node, ast.ClassDef | ast.Lambda):
        return _At(None)
    if isinstance(node, _LOOPS + _COMPREHENSIONS):
        return at if at.loop is not None else replace(at, loop=node.lineno)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return replace(at, imports=True)
    return at


def _once(functions: set[str], uses: dict[str, list[_At]]) -> frozenset[str | None]:
    """Return the functions that are named once, outside of every loop, by code that runs once."""
    found: set[str | None] = {_MODULE}
    while True:
        more = {
            name
            for name in functions - found
            if len(some := uses.get(name, [])) == 1
            and some[0].loop is None
            and some[0].scope in found
        }
        if not more:
            return frozenset(found)
        found |= more
