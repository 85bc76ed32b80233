"""The user's own source, where it can be read on this machine: text only, nothing is run."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
# The functions of a name that are at hand.
Named = Callable[[str], Iterable[Function]]

# What Python calls the code of a file that is in no function.
MODULE: Final = "<module>"
# So deep is what a name was given followed, and what a function calls. It ends circles: with 4 in
# place of 3 to 8 nothing that was ever recorded was judged otherwise (``make golden``).
DEEPEST: Final = 4
# A larger file is no code that a person wrote, but data.
LARGEST: Final = 1 << 20


def line_of(file: str, line: int) -> str | None:
    """Return the text of one line; ``None`` where it cannot be read."""
    text = text_of(file)
    lines = [] if text is None else text.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else None


@lru_cache(maxsize=64)
def text_of(file: str) -> str | None:
    """Return the text of a file of source code."""
    if not file.endswith((".py", ".jl")) or not Path(file).is_absolute():
        return None
    try:
        # A job may name anything: a pipe would block, a device may do worse.
        handle = os.open(Path(file), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            return opened.read(LARGEST).decode(errors="replace")
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """Return the syntax tree of a file of source code; ``map`` is the loop that it stands for."""
    text = text_of(file)
    try:
        return None if text is None else _without_maps(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_maps(text: str) -> ast.Module:
    tree = ast.parse(text)
    try:
        _Maps().visit(tree)
    except RecursionError:
        # A sum of a thousand terms is nested a thousand deep.
        return ast.parse(text)
    return tree


class _Maps(ast.NodeTransformer):
    """Writes ``map(f, xs)`` as ``(f(x) for x in xs)``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite one call, and those in it."""
        self.generic_visit(node)
        function, *rows = node.args or (node,)
        is_map = isinstance(node.func, ast.Name) and node.func.id == "map"
        if not is_map or not rows or any(isinstance(x, ast.Starred) for x in node.args):
            return node
        names = [f"_each_{number}" for number in range(len(rows))]
        taken: ast.expr = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        of: ast.expr = ast.Call(ast.Name("zip", ast.Load()), rows, [])
        if len(rows) == 1:
            taken, of = ast.Name(names[0], ast.Store()), rows[0]
        made = ast.Call(function, [ast.Name(name, ast.Load()) for name in names], [])
        loop = ast.GeneratorExp(made, [ast.comprehension(taken, of, [], 0)])
        for new in ast.walk(loop):
            # What is new stands where the call does.
            if isinstance(new, ast.expr) and not hasattr(new, "lineno"):
                ast.copy_location(new, node)
        return loop


@lru_cache(maxsize=64)
def nodes_of(file: str) -> tuple[ast.AST, ...]:
    """Return all that stands in a file, outer pieces first; nothing where it cannot be read."""
    tree = tree_of(file)
    return () if tree is None else tuple(ast.walk(tree))


def written(node: ast.AST) -> str:
    """Return a piece of code as text; empty where it is nested too deep for that."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def readable(file: str | None) -> bool:
    """Tell whether a source can be read."""
    return file is not None and tree_of(file) is not None


def callee(call: ast.Call) -> str:
    """Return what is called; of what has no dotted name, as in ``open(path).write``, the last."""
    return dotted(call.func) or getattr(call.func, "attr", "")


def last(call: ast.Call) -> str:
    """Return the last part of that name."""
    return callee(call).rpartition(".")[2]


def called_in(some: Iterable[ast.AST]) -> Iterator[str]:
    """Yield what pieces of code call."""
    for each in some:
        yield from (callee(node) for node in ast.walk(each) if isinstance(node, ast.Call))


def is_generator(function: Function) -> bool:
    """Tell whether a function yields."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def variables(*some: ast.AST) -> set[str]:
    """Return the variables that stand in pieces of code."""
    return {node.id for each in some for node in ast.walk(each) if isinstance(node, ast.Name)}


def arguments(call: ast.Call) -> list[ast.expr]:
    """Return all that a call is given, by place or by name."""
    return [*call.args, *(each.value for each in call.keywords)]


def lines_of(node: ast.stmt | ast.expr) -> range:
    """Return the lines that a piece stands on."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def made_by(assigned: Iterable[ast.Assign], wanted: set[str]) -> list[ast.Assign]:
    """Return the assignments that give some names their values, also by way of others."""
    left, made = list(assigned), list[ast.Assign]()
    while more := [node for node in left if variables(*node.targets) & wanted]:
        made += more
        left = [node for node in left if node not in more]
        wanted = wanted.union(*(variables(node.value) for node in more))
    return made


@lru_cache(maxsize=64)
def imports(file: str) -> dict[str, str]:
    """Return the names that a file imports, and what they are in full."""
    found: dict[str, str] = {}
    for node in nodes_of(file):
        if isinstance(node, ast.ImportFrom):
            inside = "." * node.level + (node.module or "")
            found |= {x.asname or x.name: f"{inside}.{x.name}" for x in node.names}
        elif isinstance(node, ast.Import):
            for each in node.names:
                head = each.name.partition(".")[0]
                found[each.asname or head] = each.name if each.asname else head
    return found


@lru_cache(maxsize=64)
def _spans(file: str) -> tuple[tuple[int, int, ast.AST], ...]:
    """Return what stands in a file, each with its first and last line, the outermost first."""
    return tuple(
        (first, getattr(node, "end_lineno", None) or first, node)
        for node in nodes_of(file)
        if (first := getattr(node, "lineno", 0))
    )


@lru_cache(maxsize=4096)
def nodes_at(file: str, line: int) -> tuple[ast.AST, ...]:
    """Return what a line is in or has, the outermost first."""
    return tuple(node for first, last, node in _spans(file) if first <= line <= last)


def goes_through(file: str, line: int) -> list[str]:
    """Return what the loops that begin at a line call to go through it; empty: nothing."""
    loops = (x for x in nodes_at(file, line) if isinstance(x, ast.For) and x.lineno == line)
    return [dotted(x.iter.func) if isinstance(x.iter, ast.Call) else "" for x in loops]


def functions(file: str, name: str) -> Iterator[Function]:
    """Yield the functions of that name in a file."""
    for _, _, node in _spans(file):
        if isinstance(node, Function) and node.name == name:
            yield node


def functions_from(
    file: str, name: str, calls_in: Callable[[ast.AST], Iterable[ast.Call]]
) -> Iterator[Function]:
    """Yield the functions of that name, and those of the file that they call or hand on."""
    done, names = set[str](), {name}
    for _ in range(DEEPEST):
        some = [function for each in names for function in functions(file, each)]
        yield from some
        done |= names
        calls = (call for function in some for call in calls_in(function))
        named = {dotted(each) for call in calls for each in (call.func, *call.args)}
        names = named - done - {""}


def reached(body: Sequence[ast.AST], named: Named) -> Iterator[ast.AST]:
    """Yield what some statements are, and the functions that they call, and those these call."""
    known: set[str] = set()
    for _ in range(DEEPEST + 1):
        nodes = [node for each in body for node in ast.walk(each)]
        yield from nodes
        names = {last(x) for x in nodes if isinstance(x, ast.Call)} - known - {""}
        known |= names
        body = [x for name in sorted(names) for each in named(name) for x in each.body]


def in_loop(file: str, line: int) -> bool:
    """Tell whether a line stands in a loop, or begins one."""
    return any(isinstance(node, ast.For | ast.While) for node in nodes_at(file, line))


def function_at(file: str, line: int) -> str:
    """Return the name of the innermost function around a line."""
    around = [node for node in nodes_at(file, line) if isinstance(node, Function)]
    return max(around, key=lambda node: node.lineno).name if around else MODULE


def dotted(node: ast.expr) -> str:
    """Return the dotted name of what is called: ``np.random.rand``; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def calls(file: str, line: int) -> tuple[ast.Call, ...]:
    """Return the calls that begin on a line; else the shortest that goes on over it."""
    found = [node for node in nodes_at(file, line) if isinstance(node, ast.Call)]
    if here := [call for call in found if call.lineno == line]:
        return tuple(here)
    return tuple(sorted(found, key=lambda call: (call.end_lineno or 0) - call.lineno)[:1])


def computes(file: str, line: int) -> bool:
    """Tell whether a line computes by itself: it calls nothing, and has operators or loops."""
    here = [node for node in nodes_at(file, line) if getattr(node, "lineno", 0) == line]
    kinds = (ast.BinOp, ast.AugAssign, ast.Compare, ast.ListComp, ast.GeneratorExp, ast.DictComp)
    return not any(isinstance(n, ast.Call) for n in here) and any(
        isinstance(n, kinds) for n in here
    )


def called(file: str, line: int) -> tuple[str, ...]:
    """Return the dotted names of these."""
    return tuple(name for call in calls(file, line) if (name := dotted(call.func)))
