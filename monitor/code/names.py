"""What the names of a text certainly mean: where each gets its value, and where it is read.

A name means what it says only where every assignment that may reach it is known: each answer here
is certain, or nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from whyidle.monitor.code.program import Program, name_of, params
from whyidle.monitor.code.source import Function, dotted

_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(eq=False, slots=True)
class Scope:
    """Where names are on their own: a module, a function, a class, a comprehension."""

    node: ast.AST
    outer: Scope | None = None
    # What gives each name its value: names, functions, classes, imports, arguments.
    given: dict[str, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    read: dict[str, list[ast.Name]] = field(default_factory=lambda: defaultdict(list))
    # Names of ``global`` and ``nonlocal``.
    outside: dict[str, Scope] = field(default_factory=dict)

    def owner(self, name: str) -> Scope | None:
        """Return the scope that a name is of which stands in this one."""
        here: Scope | None = self
        while here is not None:
            if name in here.outside:
                return here.outside[name]
            if name in here.given and (here is self or not isinstance(here.node, ast.ClassDef)):
                return here
            here = here.outer
        return None


class Source(Program):
    """One text, and what is certain of its names."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._scopes: dict[ast.AST, Scope] = {}
        self._reads: list[tuple[ast.Name, Scope]] = []
        self._top = Scope(self.module)
        self._enter(self.module, self._top)
        for name, scope in self._reads:
            owner = scope.owner(name.id)
            if owner is not None:
                owner.read[name.id].append(name)

    # Scopes --------------------------------------------------------------------------------------
    def _enter(self, node: ast.AST, scope: Scope) -> None:
        """Note what a piece does to the names of a scope, and all that is in it."""
        self._scopes[node] = scope
        match node:
            case ast.Name(ctx=ast.Load() | ast.Del()):
                self._reads.append((node, scope))
            case ast.Global(names=names):
                scope.outside |= dict.fromkeys(names, self._top)
            case ast.Nonlocal(names=names):
                outer = scope.outer or scope
                scope.outside |= {name: outer.owner(name) or self._top for name in names}
            case ast.Name() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._give(node, scope)
            case ast.alias() | ast.ExceptHandler() | ast.pattern():
                self._give(node, scope)
            case _:
                pass
        inner = self._inner(node)
        mine = Scope(node, scope) if inner else scope
        for each in inner:
            if isinstance(each, ast.arg):
                self._scopes[each] = mine
                self._give(each, mine)
            else:
                self._enter(each, mine)
        for each in self._outside(node, inner):
            self._enter(each, scope)

    @staticmethod
    def _inner(node: ast.AST) -> list[ast.AST]:
        """Return the parts of a piece that belong to a scope of its own."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return [*params(node), *(node.body if isinstance(node.body, list) else [node.body])]
            case ast.ClassDef(body=body):
                return [*body]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                # What the first loop goes over is computed outside.
                first, *rest = node.generators
                made = [x for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr)]
                return [first.target, *first.ifs, *rest, *made]
            case _:
                return []

    @staticmethod
    def _outside(node: ast.AST, inner: list[ast.AST]) -> Iterator[ast.AST]:
        """Yield the parts of a piece that belong to the scope around it."""
        if isinstance(node, _COMPREHENSIONS):
            yield node.generators[0].iter
        elif isinstance(node, Function | ast.Lambda):
            args = node.args
            yield from (x for x in (*args.defaults, *args.kw_defaults) if x is not None)
            yield from (x.annotation for x in inner if isinstance(x, ast.arg) and x.annotation)
            if isinstance(node, Function):
                yield from (*node.decorator_list, *([node.returns] if node.returns else []))
        else:
            yield from (x for x in ast.iter_child_nodes(node) if x not in inner)

    def _give(self, node: ast.AST, scope: Scope) -> None:
        """Note that a piece gives its name a value."""
        name, above = name_of(node), self.parent(node)
        if isinstance(above, ast.NamedExpr) and above.target is node:
            while isinstance(scope.node, _COMPREHENSIONS) and scope.outer is not None:
                scope = scope.outer
        if name and name != "*":
            scope.outside.get(name, scope).given[name].append(node)

    def scope(self, node: ast.AST) -> Scope:
        """Return the scope that a piece stands in."""
        return next(self._scopes[x] for x in (node, *self.around(node)) if x in self._scopes)

    def owner(self, node: ast.AST) -> Scope | None:
        """Return the scope that a name is of; ``None``: nothing here gives it a value."""
        return self.scope(node).owner(name_of(node))

    def is_of_module(self, node: ast.AST) -> bool:
        """Tell whether a name is one of the module's."""
        return self.owner(node) is self._top

    def is_of_top(self, node: ast.AST) -> bool:
        """Tell whether a function or a class stands in the module itself."""
        return self.parent(node) is self.module

    # Values --------------------------------------------------------------------------------------
    def assigned(self, name: ast.AST) -> list[ast.AST]:
        """Return where a name that stands here may get its value."""
        owner = self.owner(name)
        return [] if owner is None else owner.given[name_of(name)]

    def set_in_module(self, name: str) -> list[ast.AST]:
        """Return where a name of the module gets its value."""
        return list(self._top.given.get(name, ()))

    def uses(self, name: ast.AST) -> list[ast.Name]:
        """Return where the value of a name may be read, in nested functions too."""
        owner = self.owner(name)
        found = [] if owner is None else owner.read[name_of(name)]
        return sorted(found, key=lambda x: (x.lineno, x.col_offset))

    @cached_property
    def _shared(self) -> frozenset[str]:
        some = (x for x in self.everything if isinstance(x, ast.Global | ast.Nonlocal))
        return frozenset(name for each in some for name in each.names)

    def is_shared(self, name: ast.AST) -> bool:
        """Tell whether others may set it: by ``global`` or ``nonlocal``."""
        return name_of(name) in self._shared

    def value(self, name: ast.AST | None) -> ast.expr | None:
        """Return what a name is set to, where there is one place that sets it alone."""
        places = self.assigned(name) if isinstance(name, ast.Name) else []
        return self.set_to(places[0]) if len(places) == 1 and not self._is_moved(name) else None

    def _is_moved(self, name: ast.AST | None) -> bool:
        return name is None or self.is_shared(name)

    def set_to(self, place: ast.AST) -> ast.expr | None:
        """Return what a name is set to at one place, also beside others: ``a, b = 1, 2``."""
        above = self.parent(place)
        match above:
            case ast.Assign(value=value):
                return value
            case ast.AnnAssign(target=target, value=value) if target is place:
                return value
            case ast.Tuple(elts=names):
                given = self.parent(above)
                if isinstance(given, ast.Assign) and isinstance(given.value, ast.Tuple):
                    sides = names, given.value.elts
                    is_plain = not any(isinstance(x, ast.Starred) for side in sides for x in side)
                    if is_plain and len(names) == len(given.value.elts):
                        return given.value.elts[names.index(place)]  # type: ignore[arg-type]
                return None
            case _:
                return None

    def constant(self, node: ast.expr | None) -> ast.expr | None:
        """Return the literal that an expression is or names; else the expression itself."""
        return self.value(node) or node

    def definition(self, name: ast.AST | None) -> Function | ast.ClassDef | None:
        """Return the function or class of this text that a name certainly is."""
        places = self.assigned(name) if isinstance(name, ast.Name) else []
        one = places[0] if len(places) == 1 and not self._is_moved(name) else None
        return one if isinstance(one, Function | ast.ClassDef) else None

    def defined(self, name: ast.AST | None) -> Function | None:
        """Return the function of this text that a name certainly is."""
        found = self.definition(name)
        return found if isinstance(found, Function) else None

    # What is imported ----------------------------------------------------------------------------
    def meanings(self, node: ast.AST | None) -> set[str]:
        """Return what a name may mean, in full; nothing where it may be one of the text's own."""
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
            return {str(node.value)}
        name = dotted(node) if isinstance(node, ast.expr) else ""
        head, dot, rest = name.partition(".")
        owner = self.scope(node).owner(head) if name and node is not None else None
        if owner is None:
            return {name} if head and hasattr(builtins, head) else set()
        found = {self._full(place) for place in owner.given[head]}
        return set() if "" in found else {f"{full}{dot}{rest}" for full in found}

    def _full(self, place: ast.AST) -> str:
        """Return the full name of what an import gives a name to; empty for anything else."""
        if not isinstance(place, ast.alias):
            return ""
        above = self.parent(place)
        if isinstance(above, ast.ImportFrom):
            inside = f"{'.' * above.level}{above.module or ''}"
            return f"{inside}{'' if inside.endswith('.') else '.'}{place.name}"
        return place.name if place.asname else place.name.partition(".")[0]

    def means(self, node: ast.AST | None, *names: str) -> bool:
        """Tell whether a name certainly means one of these, as they are imported."""
        found = self.meanings(node)
        return bool(found) and found <= set(names)

    def imported(self, node: ast.AST | None) -> str | None:
        """Return the full name of something imported; ``None``: it is not certain."""
        found = self.meanings(node)
        return next(iter(found)) if len(found) == 1 else None

    def calls_of(self, *names: str) -> list[ast.Call]:
        """Return the calls that certainly call one of these."""
        return [call for call in self.calls if self.means(call.func, *names)]

    def spelt(self, qualified: str, at: ast.AST | None = None) -> str | None:
        """Return how something imported is written at a place, or at the level of the module.

        ``None``: no import gives it.
        """
        parts = qualified.split(".")
        scope = self._top if at is None else self.scope(at)
        for size in range(len(parts), 0, -1):
            head = ".".join(parts[:size])
            for node in self.everything:
                if isinstance(node, ast.alias) and self._full(node) == head:
                    owner = scope.owner(name_of(node))
                    given = [] if owner is None else owner.given[name_of(node)]
                    if given and all(self._full(x) == head for x in given):
                        return ".".join([name_of(node), *parts[size:]])
        return None

    def fresh(self, *wanted: str) -> str:
        """Return the first of these names that no variable has."""
        taken = {name_of(x) for x in self.everything}
        more = (f"{wanted[0]}_{number}" for number in range(2, 1000))
        return next(name for name in (*wanted, *more) if name not in taken)


@lru_cache(maxsize=16)
def source_of(text: str) -> Source:
    """Return a text as a tree; several look at the same one, and change nothing of it."""
    return Source(text)
