"""Lines of the user's that make a tensor of a list of Python's, number by number. Text only.

What a name holds follows from what it is given anywhere in its file; of what nothing says so, as of
a function's argument, it is not known.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.given import given
from whyidle.monitor.code.source import DEEPEST, callee, calls, dotted, imports, written
from whyidle.monitor.runs.stacks import CodeLine

_MAKES: Final = re.compile(
    r"torch\.(tensor|as_tensor|asarray|Tensor|(Float|Double|Half|Long|Int|Bool)Tensor)"
    r"|jax\.numpy\.(array|asarray)|tensorflow\.(constant|convert_to_tensor)"
    r"|paddle\.to_tensor|(cupy|mlx\.core)\.(array|asarray)"
)
_LISTS: Final = re.compile(
    r"list|tuple|sorted|reversed|(.*\.)?(tolist|split)|random\.(sample|choices)"
)
# Short for what is computed: what is done to the tensor beside making it.
_MOVES: Final = re.compile(
    r"to|cuda|cpu|float|long|int|bool|half|double|(un)?squeeze|view|reshape|flatten|contiguous|T"
    r"|pin_memory|requires_grad_|clone|detach|astype|unsqueeze_|transpose|permute"
)


@lru_cache(maxsize=4096)
def made_of_list(line: CodeLine) -> bool | None:
    """Tell whether a line does nothing but that; ``None``: it makes no tensor of a list."""
    made = [
        node
        for node in calls(line.file, line.line)
        if _MAKES.fullmatch(_whole(line.file, node)) and node.args
        if _is_list(line.file, node.args[0], DEEPEST)
    ]
    if not made:
        return None
    inside = {id(each) for call in made for each in ast.walk(call)}
    others = [node for node in calls(line.file, line.line) if id(node) not in inside]
    return all(_MOVES.fullmatch(getattr(node.func, "attr", "")) for node in others)


def _whole(file: str, call: ast.Call) -> str:
    """Return the name of what is called as its package has it."""
    name = dotted(call.func)
    first, _, rest = name.partition(".")
    module = imports(file).get(first, first)
    return f"{module}.{rest}" if rest else module


def _is_list(file: str, node: ast.expr, depth: int) -> bool:
    match node:
        case ast.ListComp():
            return True
        case ast.Call():
            return _LISTS.fullmatch(callee(node)) is not None
        case ast.Name() | ast.Attribute() if depth:
            held = given(file).get(written(node), ())
            return any(x is None or _is_list(file, x, depth - 1) for x in held)
        case _:
            return any(_is_list(file, part, depth) for part in _parts(node))


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return what a list would have to be in, for the whole to be made of it."""
    if isinstance(node, ast.List | ast.Tuple):
        # A few numbers are soon over, whatever they are in.
        return node.elts
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Subscript):
        return [node.value] if isinstance(node.slice, ast.Slice) else []
    return [node.value] if isinstance(node, ast.Starred) else []
