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

from whyidle.monitor.signals.source import dotted, imports, nodes_at, tree_of

_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_MAYBE: Final = (*_LOOPS, ast.If, ast.Try, ast.Match)
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
    # What it stands in that may not run, or may run again: the outermost first.
    within: tuple[ast.AST, ...]
    # Whether it hands what it uses to who called the function.
    leaves: bool

    @property
    def loop(self) -> ast.AST | None:
        """The innermost loop around it."""
        return next((each for each in reversed(self.within) if isinstance(each, _LOOPS)), None)


class Flows:
    """The statements of one function, or of a module, without those of functions within."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        self._flows = sorted(flows, key=lambda flow: flow.first)
        self._givers: dict[str, list[Flow]] = defaultdict(list)
        for flow in self._flows:
            for name in flow.gives | flow.adds_to:
                self._givers[name].append(flow)
        # What gave each statement what it uses, and what uses what it gives.
        self._before: dict[Flow, set[Flow]] = {flow: set() for flow in self._flows}
        self._after: dict[Flow, set[Flow]] = {flow: set() for flow in self._flows}
        for flow in self._flows:
            for giver in (each for name in flow.uses for each in self._gave(name, flow)):
                self._before[flow].add(giver)
                self._after[giver].add(flow)

    def at(self, line: int) -> Flow | None:
        """Return the statement that a line is of, the innermost."""
        around = [flow for flow in self._flows if flow.first <= line <= flow.last]
        return max(around, key=lambda flow: flow.first, default=None)

    def within(self, loop: ast.AST) -> Iterator[Flow]:
        """Yield the statements of a loop, and its head."""
        return (each for each in self._flows if loop in each.within)

    def beside(self, flow: Flow) -> Iterator[Flow]:
        """Yield the other statements that run whenever one in a loop does, in each pass of it."""
        for each in self._flows:
            if each is not flow and flow.loop is not None and each.within == flow.within:
                yield each

    def before(self, flow: Flow) -> Set[Flow]:
        """Return what gave the values that a statement uses."""
        return self._before[flow]

    def reached(self, flow: Flow) -> set[Flow]:
        """Return all that is made of what a statement gives."""
        return _closed(flow, self._after)

    def made_of(self, flow: Flow) -> set[Flow]:
        """Return all that what a statement uses is made of."""
        # What only adds to a list makes none of the rest of it.
        return _closed(flow, self._before, lambda each: not each.adds_to)

    def _gave(self, name: str, user: Flow) -> Iterator[Flow]:
        """Yield what may have given a name the value that it has there."""
        some = self._givers.get(name, [])
        here = bisect_left(some, user.first, key=lambda flow: flow.first)
        loops = [each for each in user.within if isinstance(each, _LOOPS)]
        for index in range(here - 1, -1, -1):
            yield some[index]
            if _surely_ran(some[index], user):
                if loops and loops[-1] in some[index].within:
                    return
                loops = [each for each in loops if each not in some[index].within]
                break
        # Of the pass before, where none in this one comes first.
        for index in range(len(some) - 1, here - 1, -1):
            if any(loop in some[index].within for loop in loops):
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


def stays(file: str, line: int) -> bool:
    """Tell whether all that a line in a loop is given is the same in each pass, for sure.

    Nothing else in the loop uses it, so nothing fills it.
    """
    flows = flows_at(file, line)
    flow = None if flows is None else flows.at(line)
    if flows is None or flow is None or flow.loop is None:
        return False
    modules = imports(file)
    names = {name for name in flow.uses if name.partition(".")[0] not in modules}
    others = [x for x in flows.within(flow.loop) if x is not flow]
    return bool(names) and not any(names & (x.uses | x.gives | x.adds_to) for x in others)


def made_anew(file: str, line: int) -> bool:
    """Tell whether a line in a loop uses what each pass makes anew."""
    flows = flows_at(file, line)
    flow = None if flows is None else flows.at(line)
    if flows is None or flow is None:
        return False
    loop = flow.loop
    return loop is not None and any(loop in giver.within for giver in flows.before(flow))


def flows_at(file: str, line: int) -> Flows | None:
    """Return the flows of the function around a line; ``None``: its source cannot be read."""
    tree = tree_of(file)
    if tree is None:
        return None
    around = [node for node in nodes_at(file, line) if isinstance(node, _SCOPES)]
    scope: ast.AST = max(around, key=lambda node: node.lineno, default=tree)
    return None if isinstance(scope, ast.Lambda) else _flows(scope)


@lru_cache(maxsize=256)
def _flows(scope: ast.AST) -> Flows | None:
    found: list[Flow] = []
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [
        (each, ()) for each in getattr(scope, "body", ())
    ]
    while waiting:
        node, within = waiting.pop()
        if isinstance(node, _SCOPES) or len(found) > _MOST:
            continue
        if isinstance(node, ast.stmt):
            found.append(_flow(node, within))
        inner = (*within, node) if isinstance(node, _MAYBE) else within
        waiting.extend(
            (each, inner)
            for each in ast.iter_child_nodes(node)
            if isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
        )
    return Flows(found) if len(found) <= _MOST else None


def _flow(node: ast.stmt, within: tuple[ast.AST, ...]) -> Flow:
    """Return what a statement does; of one that holds others only its head."""
    heads = _heads(node)
    gives = {name for each in _targets(node) for name in _stored(each)}
    adds: set[str] = set()
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr=attr))) if attr in _ADDS:
            adds = {dotted(holder)} - {"", "self", "cls"}
        case ast.AugAssign() | ast.Assign(targets=[ast.Subscript()]):
            adds, gives = gives, set()
        case _:
            pass
    for walrus in (x for head in heads for x in ast.walk(head) if isinstance(x, ast.NamedExpr)):
        gives |= set(_stored(walrus.target))
    uses = {name for head in heads for name in _loaded(head)} | adds
    within = (*within, node) if isinstance(node, _LOOPS) else within
    last = max((getattr(x, "end_lineno", 0) or 0 for x in heads), default=node.lineno)
    yields = any(isinstance(x, _YIELDS) for head in heads for x in ast.walk(head))
    leaves = isinstance(node, ast.Return) or yields
    return Flow(
        node.lineno, last, frozenset(gives), frozenset(uses), frozenset(adds), within, leaves
    )


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


def _loaded(node: ast.AST) -> Iterator[str]:
    """Yield the names that an expression reads: of ``a.b.c`` all that may have been given."""
    for each in ast.walk(node):
        match each:
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()) if name := dotted(each):
                yield name
            case _:
                pass
