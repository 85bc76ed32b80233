"""Loops of Python in the user's own source: over the samples of a batch, or in a compiled function.

A loop whose passes build on one another (over time, over layers, over steps of training) is not
over samples; a sum or a list that grows does not make the passes build on one another. Such loops
in a compiled function are unrolled there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core.finding import Place, SourceLine
from whyidle.monitor.signals.source import calls, dotted, functions, tree_of, written

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp
Loop = ast.For | Comprehension

# What only gathers results.
_GATHERS: Final = re.compile(
    r"(.*\.)?(add|sum|append|extend|stack|tree\.map|tree_map|_?accumulate)"
)
# Nothing is computed by these.
_IS_PLAIN: Final = re.compile(
    r"(.*\.)?(range|len|enumerate|zip|print|float|int|str|list|tuple|item|time|perf_counter|split)"
)
# A pass of such a loop is a step of training, and a batch comes of such names.
_TRAINS: Final = re.compile(
    r"(.*\.)?(backward|zero_grad|step|update|apply_gradients|apply_updates)"
)
_BATCHES: Final = re.compile(r".*(loader|batches|epochs?|dataset|steps|layers|blocks)\b.*")
# Where the device, or autograd, does what such a loop has asked for.
_FOLLOWS: Final = re.compile(
    r"(.*\.)?(backward|grad|block_until_ready|item|float|asarray|device_get)"
)

# Functions of the same file that a compiled one calls, and those that they call.
DEEPEST: Final = 4


@dataclass(frozen=True, slots=True)
class Looping:
    """The share of the main thread's time on such loops, with what they make wait."""

    share: float
    where: tuple[Place, ...]


def over_samples(lines: Iterable[SourceLine]) -> Looping | None:
    """Return the time on such loops; ``None``: no source could be read."""
    lines = tuple(lines)
    if not any(tree_of(line.file) for line in lines):
        return None
    own = [(line, loop) for line in lines if (loop := _loop_at(line)) is not None]
    if not own:
        return Looping(0.0, ())
    # Who runs such a loop, and what each pass calls: elsewhere, too, it is the same work.
    names = {function.name for line, _ in own for function in _around(line)}
    names |= {dotted(call.func) for _, loop in own for call in _works(loop)} - {""}
    inside = {line for line, _ in own}
    around = [line for line in lines if line not in inside and _calls(line, names)]
    share = min(1.0, sum(line.share for line in (*inside, *around)))
    return Looping(share, tuple(Place.at(a) for a, _ in own))


def _calls(line: SourceLine, names: set[str]) -> bool:
    names_called = (_callee(call) for call in calls(line.file, line.line))
    return any(name in names or _FOLLOWS.fullmatch(name) for name in names_called)


def _callee(call: ast.Call) -> str:
    """Return what is called; of what has no dotted name, as in ``params[0].item()``, the last."""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return dotted(call.func) or last


def _around(line: SourceLine) -> Iterator[Function]:
    """Yield the functions that a line is in; not those that go on around everything."""
    for node in _nodes(line):
        if isinstance(node, Function):
            yield node


def _nodes(line: SourceLine) -> Iterator[ast.AST]:
    tree = tree_of(line.file)
    for node in () if tree is None else ast.walk(tree):
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None) or 0
        if first <= line.line <= last:
            yield node


def _loop_at(line: SourceLine) -> Loop | None:
    """Return the innermost loop around a line, where its passes are on their own."""
    loops = [node for node in _nodes(line) if isinstance(node, Loop)]
    return loops[-1] if loops and _is_over_samples(loops[-1]) else None


def _is_over_samples(loop: Loop) -> bool:
    iterated = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter
    if _BATCHES.fullmatch(written(iterated).replace("\n", " ")):
        return False
    names = [dotted(call.func) for call in _calls_in(loop)]
    if any(_TRAINS.fullmatch(name) for name in names):
        return False
    target = loop.target if isinstance(loop, ast.For) else loop.generators[0].target
    each, carried = _names(target), _carried(loop)
    used = [set().union(*(_names(a) for a in _arguments(call))) for call in _works(loop)]
    return any(each & one for one in used) and not any(carried & one for one in used)


def _calls_in(loop: Loop) -> list[ast.Call]:
    return [node for node in _inside(loop) if isinstance(node, ast.Call)]


def _works(loop: Loop) -> list[ast.Call]:
    """Return the calls that compute something, and do not only gather it."""
    return [
        call
        for call in _calls_in(loop)
        if not _GATHERS.fullmatch(name := dotted(call.func)) and not _IS_PLAIN.fullmatch(name)
    ]


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _inside(loop: Loop) -> Iterator[ast.AST]:
    if isinstance(loop, ast.For):
        for statement in loop.body:
            yield from ast.walk(statement)
    else:
        yield from ast.walk(loop.elt)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _carried(loop: Loop) -> set[str]:
    """Return the names that one pass leaves to the next: read before they are set in it."""
    if not isinstance(loop, ast.For):
        return set()
    known, carried = set[str](), set[str]()
    assigned = {
        one.id
        for one in _inside(loop)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    for statement in loop.body:
        reads = {
            one.id
            for one in ast.walk(statement)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        }
        carried |= (reads & assigned) - known
        known |= {
            one.id
            for one in ast.walk(statement)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
    return carried


# In a compiled function ---------------------------------------------------------------------------
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
