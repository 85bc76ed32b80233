"""What is kept of each step keeps no graph: ``detach()`` before it is added."""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside
from whyidle.monitor.code.source import last
from whyidle.monitor.fixes._change import Change, NotHere, Refused, detached
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._loops import statements_at

_NUMBERS: Final = {"item", "detach", "float", "int", "tolist", "numpy", "len", "cpu", "no_grad"}
_SHOWN: Final = {"print", "item", "float", "len", "tolist", "detach", "round", "str", "info", "log"}


def change(source: Source, wanted: Wanted) -> Change:
    """Detach what a line that was found adds."""
    if source.spelt("torch") is None:
        raise NotHere
    for statement in statements_at(source, wanted):
        added = None if source.training_loop(statement) is None else _added(statement)
        if added is None:
            continue
        total, value = added
        if any(isinstance(x, ast.Call) and last(x) in _NUMBERS for x in inside(value)):
            continue
        # Refuse where what was kept may be differentiated later.
        if source.is_shared(total):
            raise Refused(f"{total.id} is set by other functions, too", total)
        mine = set(inside(statement))
        for use in source.uses(total):
            if use not in mine and not any(map(_is_shown, source.within_statement(use))):
                raise Refused(f"{total.id} may be differentiated, or kept for something else", use)
        found = Change(source)
        found.replace(value, detached(source, value))
        return found
    raise NotHere


def _added(statement: ast.stmt) -> tuple[ast.Name, ast.expr] | None:
    """Return a sum or a list, and what is added to it."""
    match statement:
        case ast.AugAssign(target=ast.Name() as total, op=ast.Add(), value=value):
            return total, value
        case ast.Assign(
            targets=[ast.Name(id=name) as total],
            value=ast.BinOp(left=left, op=ast.Add(), right=right),
        ):
            for mine, other in ((left, right), (right, left)):
                if isinstance(mine, ast.Name) and mine.id == name:
                    return total, other
            return None
        case ast.Expr(
            ast.Call(func=ast.Attribute(ast.Name() as total, "append"), args=[value], keywords=[])
        ):
            return total, value
        case _:
            return None


def _is_shown(above: ast.AST) -> bool:
    is_call = isinstance(above, ast.Call) and last(above) in _SHOWN
    return is_call or isinstance(above, ast.FormattedValue)


codemod = Codemod(title="What is kept of a step keeps no graph", rules=("memory_growth",))
