"""What names of the user's source are given, and where it is made. Text only, within one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.source import (
    DEEPEST,
    arguments,
    calls,
    dotted,
    function_at,
    functions,
    nodes_at,
    nodes_of,
    variables,
    written,
)
from whyidle.monitor.runs.stacks import CodeLine

# What only hands on what another gives.
_HANDS_ON: Final = frozenset({"enumerate", "zip", "iter", "next", "tqdm", "islice", "cycle"})
# The methods by which an object of a class gives a batch.
_OF_CLASSES: Final = ("__next__", "__iter__", "__getitem__", "__call__")


@lru_cache(maxsize=1024)
def makers(line: CodeLine) -> tuple[CodeLine, ...]:
    """Return the lines of the file that give what a line's calls are given: ``yield x, y``."""
    names = variables(*(x for call in calls(line.file, line.line) for x in arguments(call)))
    around = nodes_at(line.file, line.line)
    found = [
        each.iter for each in around if isinstance(each, ast.For) and names & variables(each.target)
    ]
    found += [x for name in sorted(names) for x in given(line.file).get(name, ()) if x is not None]
    made = [x for each in found for x in _gives_at(line.file, each, DEEPEST)]
    return tuple(dict.fromkeys(CodeLine(line.file, n, function_at(line.file, n)) for n in made))


def _gives_at(file: str, value: ast.expr, depth: int) -> Iterator[int]:
    """Yield the lines at which functions of the file give what such an expression is."""
    if isinstance(value, ast.Name) and depth:
        for each in given(file).get(value.id, ()):
            if each is not None:
                yield from _gives_at(file, each, depth - 1)
    if not isinstance(value, ast.Call) or not depth:
        return
    name = dotted(value.func).rpartition(".")[2]
    if name in _HANDS_ON:
        for each in value.args:
            yield from _gives_at(file, each, depth - 1)
        return
    of_class = [x for x in _methods(file, name) if x.name in _OF_CLASSES]
    for function in (*functions(file, name), *of_class):
        nodes = list(ast.walk(function))
        gives = [x for x in nodes if isinstance(x, ast.Yield)]
        yield from (x.lineno for x in gives or nodes if isinstance(x, ast.Yield | ast.Return))


def _methods(file: str, name: str) -> Iterator[ast.FunctionDef]:
    for node in nodes_of(file):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (each for each in node.body if isinstance(each, ast.FunctionDef))


@lru_cache(maxsize=64)
def given(file: str) -> dict[str, list[ast.expr | None]]:
    """Return by name what it is given anywhere in a file; ``None``: a list that is added to."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in nodes_of(file):
        for name, value in _gives(node):
            found.setdefault(name, []).append(value)
    return found


def _gives(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    match node:
        case ast.Assign():
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    yield from _of_several(target, node.value)
                else:
                    yield written(target), node.value
        case ast.AnnAssign(value=ast.expr()):
            yield written(node.target), node.value
        case ast.Call(func=ast.Attribute(value=grown, attr="append" | "extend")):
            yield written(grown), None
        case _:
            pass


def _of_several(target: ast.Tuple, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        yield from ((written(x), y) for x, y in zip(target.elts, value.elts, strict=True))
    elif isinstance(value, ast.Call):
        # ``states, actions = zip(*batch)``: a tuple of what each sample has.
        several = dotted(value.func) in {"zip", "map"}
        yield from ((written(x), None if several else value) for x in target.elts)
