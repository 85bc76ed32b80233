"""How values flow through a function of the user's: which statement uses what which one gives.

Text only. A name is looked up where it was last given one, as the lines stand; in a loop also where
the pass before gave it. What is not sure of a branch counts on both sides.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import lru_cache

from whyidle.monitor.code.source import nodes_at, tree_of
from whyidle.monitor.code.statements import LOOPS, SCOPES, Flow, statements


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
        loops = [each for each in user.within if isinstance(each, LOOPS)]
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
    around = [node for node in nodes_at(file, line) if isinstance(node, SCOPES)]
    scope: ast.AST = max(around, key=lambda node: node.lineno, default=tree)
    return _flows(scope)


@lru_cache(maxsize=256)
def _flows(scope: ast.AST) -> Flows | None:
    found = statements(scope)
    return None if found is None else Flows(*found)
