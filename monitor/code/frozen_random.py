"""Random numbers of the host that are drawn within a function that was compiled: drawn once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from whyidle.monitor.code.source import dotted, functions_from, imports, tree_of
from whyidle.monitor.core.finding import Place
from whyidle.monitor.runs.aggregates import Compiled

# Modules that draw on the host, and what of them makes a generator.
_MODULES: Final = ("numpy.random", "random")
_MAKES: Final = re.compile(r"(numpy\.random\.(default_rng|RandomState|Generator)|random\.Random)")
# These set up, and draw nothing.
_SETS_UP: Final = re.compile(r".*\.(seed|default_rng|RandomState|Generator|SeedSequence|Random)")
# What is called through these runs again with each step.
_CALLBACKS: Final = re.compile(r"(.*\.)?(pure_callback|io_callback|debug\.callback)")


def frozen(compiled: Iterable[Compiled]) -> list[Place]:
    """Return the lines that draw numbers in what JAX has compiled."""
    found: dict[Place, None] = {}
    for one in compiled:
        if one.file and one.framework == "jax":
            found |= dict.fromkeys(_in_function(one.file, one.function))
    return list(found)


def lambdas(compiled: Iterable[Compiled]) -> int:
    """Return how many functions without a name were compiled: their source is not looked for."""
    return sum(1 for one in compiled if one.framework == "jax" and "lambda" in one.function)


def _in_function(file: str, name: str) -> Iterator[Place]:
    tree = tree_of(file)
    if tree is None:
        return
    known = imports(file)
    # What a generator of the host was given to.
    generators = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _MAKES.fullmatch(_full(dotted(node.value.func), known))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in functions_from(file, name, _calls):
        mine = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        for call in _calls(function):
            if _draws(call, known, generators - mine):
                yield Place(file, call.lineno, function.name)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls within, but for those that are handed to a callback."""
    # No recursion: a sum of a thousand terms is nested a thousand deep.
    waiting = [*ast.iter_child_nodes(node)][::-1]
    while waiting:
        child = waiting.pop()
        if isinstance(child, ast.Call):
            if _CALLBACKS.fullmatch(dotted(child.func)):
                continue
            yield child
        waiting += [*ast.iter_child_nodes(child)][::-1]


def _draws(call: ast.Call, known: dict[str, str], generators: set[str]) -> bool:
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        # ``np.random.default_rng(0).normal()``: made and used at once.
        return _MAKES.fullmatch(_full(dotted(call.func.value.func), known)) is not None
    name = dotted(call.func)
    head, dot, rest = name.partition(".")
    if dot and head in generators:
        return "." not in rest
    full = _full(name, known)
    return not _SETS_UP.fullmatch(full) and any(
        full.startswith(f"{module}.") for module in _MODULES
    )


def _full(name: str, known: dict[str, str]) -> str:
    """Return a name as its module has it; as it is where nothing of that name was imported."""
    head, dot, rest = name.partition(".")
    return f"{known[head]}{dot}{rest}" if head in known else ""
