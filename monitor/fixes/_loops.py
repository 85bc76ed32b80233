"""Loops that train: what counts their steps, what of them may run less often, and what may not."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, is_plain, name_of, names_set, sets
from whyidle.monitor.code.source import Function, dotted
from whyidle.monitor.code.trains import Loop
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Wanted

# Methods and functions that only compute a value of others.
ONLY_COMPUTE: Final = {
    "abs", "all", "any", "argmax", "array", "asarray", "astype", "clone", "concatenate", "copy",
    "cpu", "detach", "device_get", "exp", "flatten", "float", "int", "item", "len", "linalg", "max",
    "mean", "median", "min", "norm", "numpy", "percentile", "quantile", "reshape", "round", "sqrt",
    "square", "stack", "std", "sum", "tolist", "var",
}  # fmt: skip
COUNTERS: Final = ("step", "number", "iteration")
# What a person wants to see, and nobody waits for, may come so seldom; as the rules say it.
EVERY: Final = 100


def statements_at(source: Source, wanted: Wanted) -> list[ast.stmt]:
    """Return the smallest statement at each line that was found."""
    found = source.at_lines(wanted.lines)
    if not found:
        raise NotHere
    return found


def of_loop(source: Source, loop: Loop, node: ast.AST) -> ast.stmt:
    """Return the statement of a loop's own body that a piece stands in."""
    for each in (node, *source.around(node)):
        if isinstance(each, ast.stmt) and each in loop.body:
            return each
    raise Refused("the line is in no loop that trains", node)


# Counting ----------------------------------------------------------------------------------------
def counter(source: Source, loop: Loop, change: Change) -> str:
    """Return the name that counts the passes of a loop; a ``for`` that has none gets one."""
    known = _counted(source, loop) or _added_up(source, loop)
    if known is not None:
        return known
    if not isinstance(loop, ast.For) or "enumerate" in names_set(source.module):
        raise Refused("nothing counts the steps of this loop", loop)
    name = source.fresh(*COUNTERS)
    # ``for a, b in xs`` becomes ``for name, (a, b) in enumerate(xs)``.
    is_bare = source.is_bare(loop.target)
    change.surround(loop.target, f"{name}, {'(' * is_bare}", ")" * is_bare)
    change.surround(loop.iter, "enumerate(", ")")
    return name


def _counted(source: Source, loop: Loop) -> str | None:
    over = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    if isinstance(loop, ast.While) or not isinstance(over, ast.Call):
        return None
    name: ast.expr = loop.target
    # A bar of progress goes through what it is given.
    bar = dotted(over.func).rpartition(".")[2]
    if bar in {"tqdm", "track"} and over.args:
        over = over.args[0]
        if not isinstance(over, ast.Call):
            return None
    if source.means(over.func, "enumerate"):
        if not isinstance(name, ast.Tuple):
            return None
        name = name.elts[0]
    elif not (source.means(over.func, "range", "itertools.count") or "trange" in dotted(over.func)):
        return None
    if not isinstance(name, ast.Name) or name.id in names_set(*loop.body) | {"_"}:
        return None
    return name.id


def _added_up(source: Source, loop: Loop) -> str | None:
    """Return a name to which each pass adds one, whatever else it does."""
    for statement in loop.body:
        match statement:
            case ast.AugAssign(target=ast.Name(id=name) as target, op=ast.Add(), value=value):
                again = [each for each in sets(*loop.body) if name_of(each) == name]
                skipped = any(
                    isinstance(x, ast.Continue) and source.loops(x)[:1] == [loop]
                    for x in inside(*loop.body)
                )
                is_one = is_plain(value) and ast.literal_eval(value) == 1
                if is_one and len(again) == 1 and not skipped and not source.is_shared(target):
                    return name
            case _:
                pass
    return None


# Less often --------------------------------------------------------------------------------------
def check_flow(source: Source, statements: Iterable[ast.stmt]) -> None:
    """Refuse statements that steer the loop, or leave it."""
    for statement in statements:
        for node in inside(statement):
            loops = source.loops(node)[:1]
            steers = isinstance(node, ast.Break | ast.Continue) and not (
                loops and loops[0] in inside(statement)
            )
            leaves = isinstance(
                node, ast.Return | ast.Yield | ast.YieldFrom | ast.Raise | ast.Await
            )
            if steers or (leaves and source.function(node) is source.function(statement)):
                raise Refused("it steers the loop", node)


def read_outside(source: Source, statements: Sequence[ast.stmt]) -> list[ast.Name]:
    """Return the uses elsewhere of names that statements set."""
    mine = set(inside(*statements))
    return [
        use
        for place in sets(*statements)
        if not isinstance(place, Function | ast.ClassDef)
        for use in source.uses(place)
        if use not in mine
    ]


def guards(source: Source, node: ast.AST, loop: ast.AST | None) -> Iterator[ast.If]:
    """Yield the conditions that a piece stands under, inside a loop, from the inside out."""
    below = node
    for above in source.around(node):
        if above is loop or isinstance(above, Function):
            return
        if isinstance(above, ast.If) and below in above.body:
            yield above
        below = above


def period(test: ast.expr) -> ast.BinOp | None:
    """Return ``a % n`` of ``a % n == 0`` or ``not a % n``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.BinOp(op=ast.Mod()) as found):
            return found
        case ast.Compare(left=ast.BinOp(op=ast.Mod()) as found, ops=[ast.Eq()], comparators=[to]):
            return found if is_plain(to) else None
        case ast.BoolOp(op=ast.And(), values=several):
            return next((x for each in several if (x := period(each)) is not None), None)
        case _:
            return None
