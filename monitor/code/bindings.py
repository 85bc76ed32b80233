"""The names of a scope: what assigns them, and what it has of its own. Text only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
SCOPES: Final = (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)


def own(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the code of a scope, without that of scopes within it."""
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def assigned(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a scope assigns, and to what."""
    for node in own(tree):
        for target, value in bindings(node):
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield name.id, value


def bindings(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """Return what a statement assigns to, and what it assigns there."""
    match node:
        case ast.Assign():
            return [(target, node.value) for target in node.targets]
        case ast.AugAssign() | ast.NamedExpr():
            return [(node.target, node.value)]
        case ast.AnnAssign(value=ast.expr() as value):
            return [(node.target, value)]
        case ast.For() | ast.comprehension():
            return _of_loop(node.target, node.iter)
        case ast.withitem(optional_vars=ast.expr() as target):
            return [(target, node.context_expr)]
        case _:
            return []


def _of_loop(target: ast.expr, over: ast.expr) -> list[tuple[ast.AST, ast.AST]]:
    """Return what the names of a loop hold: a number that counts is no part of what is counted."""
    match target, over:
        case (
            ast.Tuple(elts=[number, each]),
            ast.Call(func=ast.Name(id="enumerate"), args=[rows, *_]),
        ):
            return [(number, ast.Constant(0)), *_of_loop(each, rows)]
        case ast.Tuple(elts=some), ast.Call(func=ast.Name(id="zip"), args=rows) if len(some) == len(
            rows
        ):
            return [
                pair for each, row in zip(some, rows, strict=True) for pair in _of_loop(each, row)
            ]
        case _:
            return [(target, over)]


def itself_of(function: ast.AST) -> str | None:
    """Return a method's name for what it is of; ``None``: it is none, as far as the text says."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    if any(isinstance(x, ast.Name) and x.id == "staticmethod" for x in function.decorator_list):
        return None
    first = (*function.args.posonlyargs, *function.args.args)[:1]
    return first[0].arg if first else None


def last_name(node: ast.AST) -> str:
    """Return the last name of a decorator."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
