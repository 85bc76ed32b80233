"""A statement of the user's source: what it gives a value, and what it uses. Text only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import dotted

# A lambda is a part of the statement that it stands in.
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES: Final = (*_FUNCTIONS, ast.ClassDef)
LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_MAYBE: Final = (*LOOPS, ast.If, ast.Try, ast.ExceptHandler, ast.Match, ast.match_case)
_YIELDS: Final = (ast.Yield, ast.YieldFrom)
# Methods of what Python keeps values in; what those of an object of one's own do is not known.
_ADDS: Final = frozenset(
    ("add", "append", "appendleft", "extend", "extendleft", "insert", "put", "put_nowait")
) | {"setdefault", "update"}
# A function of more statements was written by no person.
_MOST: Final = 1000


@dataclass(frozen=True, eq=False)
class Flow:
    """A statement, or the head of one: what it gives a value, and what it uses."""

    first: int
    last: int
    gives: frozenset[str]
    uses: frozenset[str]
    # Given by a method of its own, as in ``rows.append(row)``: what it was stays in it.
    adds_to: frozenset[str]
    # Whose method it calls for what that does alone, as in ``memory.note(errors)``.
    tells: str
    # What it stands in that may not run, or may run again: the outermost first.
    within: tuple[ast.AST, ...]
    # Whether it hands what it uses to who called the function.
    leaves: bool
    # Whether what runs next depends on what it uses.
    decides: bool = False
    # Whether it is run for what it does alone, as ``fill(rows)`` is.
    is_bare: bool = False
    # What it calls; and of this that whose results it hands on, as in ``put(next(rows))``.
    calls: tuple[ast.Call, ...] = ()
    inner: tuple[ast.Call, ...] = ()

    @property
    def loop(self) -> ast.AST | None:
        """The innermost loop around it."""
        return next((each for each in reversed(self.within) if isinstance(each, LOOPS)), None)

    @property
    def lines(self) -> range:
        """The lines that it stands on."""
        return range(self.first, self.last + 1)

    @property
    def is_head(self) -> bool:
        """Whether it is no statement, but what gives a function its arguments."""
        return not self.first


def statements(scope: ast.AST) -> tuple[list[Flow], frozenset[str]] | None:
    """Return those of a function, or of a module, without those of functions within.

    Beside them the names that are there in its next call; ``None``: there are too many.
    """
    found: list[Flow] = [_head(scope)] if isinstance(scope, _FUNCTIONS) else []
    outlive: set[str] = set()
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [
        (each, ()) for each in getattr(scope, "body", ())
    ]
    while waiting:
        node, within = waiting.pop()
        if isinstance(node, SCOPES):
            found.append(_inner(node, within))
        if isinstance(node, SCOPES) or len(found) > _MOST:
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            outlive.update(node.names)
        if isinstance(node, ast.stmt):
            found.append(_flow(node, within))
        waiting.extend(
            (each, (*within, *_around(each, node)))
            for each in ast.iter_child_nodes(node)
            if isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
        )
    return (found, frozenset(outlive)) if len(found) <= _MOST else None


def _around(node: ast.AST, outer: ast.AST) -> tuple[ast.AST, ...]:
    """Return what a part of a statement stands in by that: of two branches only one runs."""
    match outer:
        case ast.If(body=body, orelse=other):
            return outer, (body if node in body else other)[0]
        case ast.For(orelse=last) | ast.AsyncFor(orelse=last) | ast.While(orelse=last) if (
            node in last
        ):
            return ()
        case _:
            return (outer,) if isinstance(outer, _MAYBE) else ()


def _head(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Flow:
    """Return what gives a function its arguments; an object is there before each call of it."""
    arguments = {x.arg for x in ast.walk(function.args) if isinstance(x, ast.arg)}
    gives = frozenset(arguments - {"self", "cls"})
    nothing = frozenset[str]()
    return Flow(0, -1, gives, nothing, nothing, "", (), leaves=False)


def _inner(
    scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, within: tuple[ast.AST, ...]
) -> Flow:
    """Return what a function within makes: itself, of the names that it takes from around it."""
    nothing = frozenset[str]()
    own = {x.arg for x in ast.walk(scope) if isinstance(x, ast.arg)}
    own |= {x.id for x in ast.walk(scope) if isinstance(x, ast.Name) and not _is_read(x)}
    uses = {name for name in loaded(scope) if name.partition(".")[0] not in own}
    sets = frozenset({scope.name}), frozenset(uses), nothing
    # Its lines are those of who calls it.
    return Flow(scope.lineno, scope.lineno - 1, *sets, "", within, leaves=False)


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _flow(node: ast.stmt, within: tuple[ast.AST, ...]) -> Flow:
    """Return what a statement does; of one that holds others only its head."""
    heads = _heads(node)
    gives = {name for each in _targets(node) for name in _stored(each)}
    adds: set[str] = set()
    tells = ""
    match node:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=holder, attr=attr))
            | ast.Await(value=ast.Call(func=ast.Attribute(value=holder, attr=attr)))
        ) if dotted(holder) not in {"", "self", "cls"}:
            tells = dotted(holder)
            adds = {tells} if attr in _ADDS else set()
        case ast.Match(cases=cases):
            gives = {name for each in cases for name in _captured(each.pattern)}
        case ast.AugAssign() | ast.Assign(targets=[ast.Subscript()]):
            adds, gives = gives, set()
        case _:
            pass
    for walrus in (x for head in heads for x in ast.walk(head) if isinstance(x, ast.NamedExpr)):
        gives |= set(_stored(walrus.target))
    uses = {name for head in heads for name in loaded(head)} | adds
    within = (*within, node) if isinstance(node, LOOPS) else within
    end = max((getattr(x, "end_lineno", 0) or 0 for x in heads), default=node.lineno)
    yields = any(isinstance(x, _YIELDS) for head in heads for x in ast.walk(head))
    leaves = isinstance(node, ast.Return) or yields
    calls = _calls_in(heads)
    inner = _calls_in(child for call in calls for child in ast.iter_child_nodes(call))
    sets = frozenset(gives), frozenset(uses), frozenset(adds)
    decides = isinstance(node, ast.If | ast.While | ast.Match)
    is_bare = isinstance(node, ast.Expr)
    some = calls, inner
    return Flow(node.lineno, end, *sets, tells, within, leaves, decides, is_bare, *some)


def _calls_in(some: Iterable[ast.AST]) -> tuple[ast.Call, ...]:
    return tuple(x for each in some for x in ast.walk(each) if isinstance(x, ast.Call))


def _heads(node: ast.stmt) -> list[ast.AST]:
    """Return the expressions that run at a statement itself."""
    return [
        each
        for each in ast.iter_child_nodes(node)
        if isinstance(each, ast.expr | ast.withitem | ast.keyword)
    ]


def _targets(node: ast.stmt) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case ast.For(target=target) | ast.AsyncFor(target=target):
            return [target]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return [item.optional_vars for item in items if item.optional_vars is not None]
        case _:
            return []


def _stored(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment gives a value, or a part of one."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for each in parts:
                yield from _stored(each)
        case ast.Starred(value=inner) | ast.Subscript(value=inner):
            yield from _stored(inner)
        case ast.Name() | ast.Attribute():
            if name := dotted(target):
                yield name
        case _:
            pass


def _captured(pattern: ast.AST) -> Iterator[str]:
    """Yield the names that a pattern gives a value."""
    for each in ast.walk(pattern):
        match each:
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case _:
                pass


def loaded(node: ast.AST) -> Iterator[str]:
    """Yield the names that an expression reads: of ``a.b.c`` all that may have been given.

    A name of its own, as ``x`` in ``[f(x) for x in rows]``, is none of those around it.
    """
    own: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.comprehension(target=target):
                own |= set(_stored(target))
            case ast.arg(arg=name):
                own.add(name)
            case _:
                pass
    for each in ast.walk(node):
        match each:
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()) if name := dotted(each):
                if name.partition(".")[0] not in own:
                    yield name
            case _:
                pass
