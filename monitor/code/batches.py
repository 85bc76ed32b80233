"""Batches as the source makes them: loaders begun for one, what samples are drawn of, and cuts."""

from __future__ import annotations

import ast
import re
from typing import Final

from whyidle.monitor.code.source import (
    MODULE,
    Function,
    callee,
    calls,
    dotted,
    function_at,
    in_loop,
    last,
    lines_of,
    nodes_at,
    nodes_of,
    variables,
)

# Of fewer places the drawing itself takes the time (``benchmarks/unit_costs.py``).
LEAST_PLACES: Final = 10_000
_BEGINS: Final = frozenset(("iter", "__iter__"))
_DRAWN_OF: Final = re.compile(r"random\.(sample|choices?)")


def begins_for_one(file: str, line: int) -> bool:
    """Tell whether a loader begins there, or before, and gives one batch alone.

    ``next(iter(loader))``, both in two statements of one block, and a loop that ends with a break.
    """
    some = nodes_at(file, line)
    if not in_loop(file, line) and function_at(file, line) == MODULE:
        # Once.
        return False
    return any(map(_is_begun, map(_takes, some))) or any(
        _ends_at_once(node, line) or _begins_and_takes(node, line) for node in some
    )


def _takes(node: ast.AST) -> ast.expr | None:
    """Return what a call takes the next of; ``None``: it is no such call."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[taken, *_]):
            return taken
        case ast.Call(func=ast.Attribute(attr="__next__", value=taken)):
            return taken
        case _:
            return None


def _is_begun(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and last(value) in _BEGINS


def _ends_at_once(node: ast.AST, line: int) -> bool:
    return (
        isinstance(node, ast.For) and node.lineno == line and isinstance(node.body[-1], ast.Break)
    )


def _begins_and_takes(node: ast.AST, line: int) -> bool:
    """Tell whether a block has a line of ``it = iter(loader)`` or of the only ``next(it)``."""
    if not isinstance(node, ast.For | ast.While | Function):
        return False
    plain = [each for each in node.body if isinstance(each, ast.Assign | ast.Return | ast.Expr)]
    begun = {
        dotted(target)
        for each in plain
        if isinstance(each, ast.Assign) and _is_begun(each.value)
        for target in each.targets
    }
    taken = [dotted(x) for x in map(_takes, ast.walk(node)) if x is not None]
    here = next((each for each in plain if line in lines_of(each)), None)
    names = (
        set() if here is None else {dotted(x) for x in ast.walk(here) if isinstance(x, ast.expr)}
    )
    ends = {dotted(x) for each in plain for x in map(_takes, ast.walk(each)) if x is not None}
    return any(taken.count(name) == 1 for name in names & begun & ends - {""})


def is_of_a_deque(file: str, line: int) -> bool:
    """Tell whether samples are drawn there of what the same file makes a deque of many places.

    NumPy makes an array of either first.
    """
    drawn = {
        dotted(call.args[0]).rpartition(".")[2]
        for call in calls(file, line)
        if _DRAWN_OF.fullmatch(callee(call)) and call.args
    } - {""}
    nodes = nodes_of(file) if drawn else ()
    made = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign)]
    return any(
        node.value is not None and _is_large_deque(node.value)
        for node in made
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if dotted(target).rpartition(".")[2] in drawn
    )


def _is_large_deque(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    named = {each.arg: each.value for each in value.keywords}
    if (factory := named.get("default_factory")) is not None:
        # A field of a dataclass.
        return dotted(factory).rpartition(".")[2] == "deque"
    match named.get("maxlen", value.args[1] if len(value.args) > 1 else None):
        case ast.Constant(value=int(places)) if places < LEAST_PLACES:
            return False
        case _:
            return last(value) == "deque"


def cuts(file: str) -> bool:
    """Tell whether rows are cut to a length that is found out: ``ids = ids[:, :longest]``."""
    return any(map(_is_cut, nodes_of(file)))


def _is_cut(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=rows, attr="narrow"), args=[_, _, to]):
            return _to_a_length(rows, to)
        case ast.Subscript(
            value=rows,
            slice=ast.Tuple(elts=[ast.Slice(), ast.Slice(lower=since, upper=to), *_]),
            ctx=ast.Load(),
        ):
            ends = [each for each in (since, to) if each is not None]
            return len(ends) == 1 and _to_a_length(rows, ends[0])
        case _:
            return False


def _to_a_length(rows: ast.expr, length: ast.expr) -> bool:
    # What belongs to the model is cut to the rows, and not they.
    is_models = isinstance(rows, ast.Attribute) and dotted(rows).startswith("self.")
    attributes = {x.attr for x in ast.walk(length) if isinstance(x, ast.Attribute)}
    return bool(variables(length)) and not is_models and not attributes & {"shape", "size"}
