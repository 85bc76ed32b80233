"""How values flow through a function of the user's: which statement uses what which one gives.

Text only. A name is looked up where it was last given one, as the lines stand; in a loop also where
the pass before gave it. What is not sure of a branch counts on both sides.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from whyidle.monitor.signals.source import dotted, nodes_at, tree_of

# A lambda is a part of the statement that it stands in.
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (*_FUNCTIONS, ast.ClassDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_MAYBE: Final = (*_LOOPS, ast.If, ast.Try, ast.ExceptHandler, ast.Match, ast.match_case)
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
        return next((each for each in reversed(self.within) if isinstance(each, _LOOPS)), None)

    @property
    def is_head(self) -> bool:
        """Whether it is no statement, but what gives a function its arguments."""
        return not self.first


class Flows:
    """The statements of one function, or of a module, without those of functions within."""

    def __init__(self, flows: Iterable[Flow], outlive: Set[str]) -> None:
        self._flows = sorted(flows, key=lambda flow: flow.first)
        # Beside attributes the names that are there in the next call of the function.
        self._outlive = outlive
        self._givers: dict[str, list[Flow]] = defaultdict(list)
        for flow in self._flows:
            for name in flow.gives | flow.adds_to:
                self._givers[name].append(flow)
        # What gave each statement what it uses, and what uses what it gives.
        self._before: dict[Flow, set[Flow]] = {flow: set() for flow in self._flows}
        self._after: dict[Flow, set[Flow]] = {flow: set() for flow in self._flows}
        for flow in self._flows:
            for giver in (each for name in flow.uses for each in self.gave(name, flow)):
                self._before[flow].add(giver)
                self._after[giver].add(flow)

    def __iter__(self) -> Iterator[Flow]:
        return iter(self._flows)

    def at(self, line: int) -> Flow | None:
        """Return the statement that a line is of, the innermost."""
        around = [flow for flow in self._flows if flow.first <= line <= flow.last]
        return around[-1] if around else None

    def within(self, loop: ast.AST) -> Iterator[Flow]:
        """Yield the statements of a loop, and its head."""
        return (each for each in self._flows if loop in each.within)

    def beside(self, flow: Flow) -> Iterator[Flow]:
        """Yield the other statements that run whenever one in a loop does, in each pass of it."""
        for each in self._flows:
            if each is not flow and flow.loop is not None and each.within == flow.within:
                yield each

    def tell(self, flow: Flow) -> Iterator[Flow]:
        """Yield the statements that tell something to what a statement uses or makes."""
        for each in self._flows:
            if each is not flow and each.tells in flow.uses | flow.gives:
                yield each

    def reached(self, flow: Flow) -> set[Flow]:
        """Return all that is made of what a statement gives."""
        return _closed(flow, self._after)

    def made_of(self, flow: Flow) -> set[Flow]:
        """Return all that what a statement uses is made of."""
        # What only adds to a list makes none of the rest of it.
        return _closed(flow, self._before, lambda each: not each.adds_to)

    def gave(self, name: str, user: Flow) -> Iterator[Flow]:
        """Yield what may have given a name the value that it has there."""
        some = self._givers.get(name, [])
        here = bisect_left(some, user.first, key=lambda flow: flow.first)
        loops = [each for each in user.within if isinstance(each, _LOOPS)]
        outlives = "." in name or name in self._outlive
        for index in range(here - 1, -1, -1):
            yield some[index]
            if _surely_ran(some[index], user):
                if loops and loops[-1] in some[index].within:
                    return
                loops = [each for each in loops if each not in some[index].within]
                outlives = False
                break
        # Of the pass or the call before, where none in this one comes first.
        for index in range(len(some) - 1, here - 1, -1):
            if outlives or any(loop in some[index].within for loop in loops):
                yield some[index]
                if _surely_ran(some[index], user):
                    return


def _surely_ran(giver: Flow, user: Flow) -> bool:
    """Tell whether a statement gave its value whenever another one runs, whatever else did."""
    return not giver.adds_to and all(each in user.within for each in giver.within)


def _closed(
    flow: Flow, edges: Mapping[Flow, Set[Flow]], counts: Callable[[Flow], bool] = lambda _: True
) -> set[Flow]:
    """Return all that is reached from a statement; itself only on a way that comes back."""
    found, waiting = set[Flow](), [flow]
    while waiting:
        for each in edges[waiting.pop()]:
            if each not in found and counts(each):
                found.add(each)
                waiting.append(each)
    return found


def flows_at(file: str, line: int) -> Flows | None:
    """Return the flows of the function around a line; ``None``: its source cannot be read."""
    tree = tree_of(file)
    if tree is None:
        return None
    around = [node for node in nodes_at(file, line) if isinstance(node, _SCOPES)]
    scope: ast.AST = max(around, key=lambda node: node.lineno, default=tree)
    return _flows(scope)


@lru_cache(maxsize=256)
def _flows(scope: ast.AST) -> Flows | None:
    found: list[Flow] = [_head(scope)] if isinstance(scope, _FUNCTIONS) else []
    outlive: set[str] = set()
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [
        (each, ()) for each in getattr(scope, "body", ())
    ]
    while waiting:
        node, within = waiting.pop()
        if isinstance(node, _SCOPES):
            found.append(_inner(node, within))
        if isinstance(node, _SCOPES) or len(found) > _MOST:
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
    return Flows(found, frozenset(outlive)) if len(found) <= _MOST else None


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
    within = (*within, node) if isinstance(node, _LOOPS) else within
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
