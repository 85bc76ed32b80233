"""One file of the user's as a syntax tree that keeps its formatting, and what is certain of names.

A name means what it says only where every assignment that may reach it is known: each answer here
is "certain" or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import libcst as cst
from libcst._metadata_dependent import LazyValue
from libcst.metadata import (
    Assignment,
    BuiltinAssignment,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedName,
    QualifiedNameProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from whyidle.monitor.fixes._pieces import dotted, inside

Edit = Callable[[Any], Any]
Loop = cst.For | cst.While
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_SURE: Final = {QualifiedNameSource.IMPORT, QualifiedNameSource.BUILTIN}


class Source:
    """One file, parsed."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        wrapper = MetadataWrapper(cst.parse_module(text))
        self.module = wrapper.module
        self._positions = wrapper.resolve(PositionProvider)
        self._parents: Mapping[cst.CSTNode, cst.CSTNode] = wrapper.resolve(ParentNodeProvider)
        self._named = wrapper.resolve(QualifiedNameProvider)
        self._scopes = wrapper.resolve(ScopeProvider)

    # Where ---------------------------------------------------------------------------------------
    def line(self, node: cst.CSTNode) -> int:
        """Return the line that a piece begins in."""
        return int(self._positions[node].start.line)

    def covers(self, node: cst.CSTNode, line: int) -> bool:
        """Tell whether a line is in a piece."""
        place = self._positions[node]
        return bool(place.start.line <= line <= place.end.line)

    def column(self, node: cst.CSTNode) -> int:
        """Return the column that a piece begins in."""
        return int(self._positions[node].start.column)

    def code(self, node: cst.CSTNode) -> str:
        """Return a piece as text."""
        return self.module.code_for_node(node).strip()

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return what a piece stands in."""
        return self._parents.get(node)

    def around(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what a piece stands in, from the inside out."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def statement(self, node: cst.CSTNode) -> Statement:
        """Return the statement that a piece is, or stands in."""
        for each in (node, *self.around(node)):
            if isinstance(each, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                return each
        raise KeyError("no statement")

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | cst.Lambda | None:
        """Return the innermost function around a piece."""
        return next(
            (x for x in self.around(node) if isinstance(x, cst.FunctionDef | cst.Lambda)), None
        )

    def loops(self, node: cst.CSTNode) -> list[Loop]:
        """Return the loops around a piece in its own function, from the inside out."""
        found: list[Loop] = []
        below = node
        for each in self.around(node):
            if isinstance(each, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                break
            # What a loop goes over is computed before it.
            if isinstance(each, cst.For | cst.While) and below is each.body:
                found.append(each)
            below = each
        return found

    def siblings(self, statement: Statement) -> list[cst.BaseStatement]:
        """Return the statements of the block that one stands in."""
        above = self.parent(statement)
        if isinstance(above, cst.IndentedBlock | cst.Module):
            return list(above.body)
        return []

    # What there is -------------------------------------------------------------------------------
    @cached_property
    def everything(self) -> tuple[cst.CSTNode, ...]:
        """All pieces, outer ones before those in them, in the order of the text."""
        return tuple(inside(self.module))

    @cached_property
    def calls(self) -> tuple[cst.Call, ...]:
        """All calls."""
        return tuple(x for x in self.everything if isinstance(x, cst.Call))

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name and attribute that occurs."""
        return frozenset(x.value for x in self.everything if isinstance(x, cst.Name))

    def fresh(self, *wanted: str) -> str:
        """Return the first of these names that no variable has."""
        taken = {
            node.value for node in self.everything
            if isinstance(node, cst.Name) and not self._is_attribute(node)
        }  # fmt: skip
        more = (f"{wanted[0]}_{number}" for number in range(2, 1000))
        return next(name for name in (*wanted, *more) if name not in taken)

    def _is_attribute(self, name: cst.Name) -> bool:
        above = self.parent(name)
        return (isinstance(above, cst.Attribute) and above.attr is name) or (
            isinstance(above, cst.Arg) and above.keyword is name
        )

    # What names mean -----------------------------------------------------------------------------
    def named(self, node: cst.CSTNode) -> Collection[QualifiedName]:
        """Return what a name may mean."""
        found: Any = self._named.get(node, ())
        return found() if isinstance(found, LazyValue) else found  # type: ignore[no-any-return]

    def means(self, node: cst.CSTNode, *names: str) -> bool:
        """Tell whether a name certainly means one of these, as they are imported."""
        found = self.named(node) if dotted(node) else ()
        return bool(found) and all(
            q.source in _SURE and q.name.removeprefix("builtins.") in names for q in found
        )

    def imported(self, node: cst.CSTNode) -> str | None:
        """Return the full name of something imported; ``None``: it is not certain."""
        if not dotted(node):
            return None
        found = {q.name for q in self.named(node)}
        sure = all(q.source in _SURE for q in self.named(node))
        return next(iter(found)).removeprefix("builtins.") if sure and len(found) == 1 else None

    def calls_of(self, *names: str) -> list[cst.Call]:
        """Return the calls that certainly call one of these."""
        return [call for call in self.calls if self.means(call.func, *names)]

    def scope(self, node: cst.CSTNode) -> Scope:
        """Return the scope of a piece."""
        found = self._scopes.get(node)
        if found is None:
            found = next(s for x in self.around(node) if (s := self._scopes.get(x)) is not None)
        return found

    def assigned(self, name: cst.Name) -> list[cst.CSTNode]:
        """Return where a name that stands here may get its value: names, functions, imports."""
        return [
            x.node
            for x in self.scope(name)[name.value]
            if isinstance(x, Assignment) and not isinstance(x, BuiltinAssignment)
        ]

    def uses(self, name: cst.Name) -> list[cst.CSTNode]:
        """Return where the value of a name may be read, in nested functions too."""
        found: dict[cst.CSTNode, None] = {}
        for each in self.scope(name)[name.value]:
            found |= dict.fromkeys(access.node for access in each.references)
        return sorted(found, key=lambda x: (self.line(x), self.column(x)))

    def is_shared(self, name: cst.Name) -> bool:
        """Tell whether others may set it: by ``global`` or ``nonlocal``."""
        return any(
            isinstance(x, cst.Global | cst.Nonlocal)
            and any(item.name.value == name.value for item in x.names)
            for x in self.everything
        )

    def value(self, name: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return what a name is set to, where there is one place that sets it alone."""
        if not isinstance(name, cst.Name):
            return None
        places = self.assigned(name)
        if len(places) != 1 or self.is_shared(name):
            return None
        return self.set_to(places[0])

    def set_to(self, place: cst.CSTNode) -> cst.BaseExpression | None:
        """Return what a name is set to at one place."""
        target = self.parent(place)
        if isinstance(target, cst.Element):
            return self._of_several(target)
        statement = self.parent(target) if isinstance(target, cst.AssignTarget) else target
        if isinstance(statement, cst.Assign) and isinstance(target, cst.AssignTarget):
            return statement.value
        if isinstance(statement, cst.AnnAssign) and statement.target is place:
            return statement.value
        return None

    def _of_several(self, element: cst.Element) -> cst.BaseExpression | None:
        """Return what a name is set to beside others: ``a, b = 1, 2``."""
        names = self.parent(element)
        target = None if names is None else self.parent(names)
        given = self.parent(target) if isinstance(target, cst.AssignTarget) else None
        if not isinstance(names, cst.Tuple) or not isinstance(given, cst.Assign):
            return None
        sides = names.elements, given.value.elements if isinstance(given.value, cst.Tuple) else ()
        plain = all(isinstance(x, cst.Element) for side in sides for x in side)
        if not plain or len(sides[0]) != len(sides[1]):
            return None
        return sides[1][sides[0].index(element)].value

    def constant(self, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
        """Return the literal that an expression is or names; else the expression itself."""
        known = node if node is None else self.value(node)
        return node if known is None else known

    def definition(self, name: cst.CSTNode) -> cst.FunctionDef | cst.ClassDef | None:
        """Return the function or class of this file that a name certainly is."""
        if not isinstance(name, cst.Name):
            return None
        try:
            places = self.assigned(name)
        except KeyError:
            return None
        found = [x for x in places if isinstance(x, cst.FunctionDef | cst.ClassDef)]
        return found[0] if len(found) == len(places) == 1 and not self.is_shared(name) else None

    def function_named(self, name: str) -> cst.FunctionDef | None:
        """Return the one function of that name at the level of the module."""
        scope = self.scope(self.module)
        places = [x.node for x in scope[name] if isinstance(x, Assignment)]
        one = places[0] if len(places) == 1 else None
        return one if isinstance(one, cst.FunctionDef) else None

    def spelt(self, qualified: str, at: cst.CSTNode | None = None) -> str | None:
        """Return how something imported is written at a place, or at the level of the module.

        ``None``: no import gives it.
        """
        scope = self.scope(self.module if at is None else at)
        for size in range(qualified.count("."), -1, -1):
            parts = qualified.split(".")
            head, rest = ".".join(parts[: size + 1]), parts[size + 1 :]
            for alias in self._aliases(head):
                if self._is_import(scope, alias, head):
                    return ".".join([alias, *rest])
        return None

    def _aliases(self, module: str) -> Iterator[str]:
        """Yield the names that imports at the level of the module give to something."""
        for node in self.everything:
            if isinstance(node, cst.ImportAlias):
                name = node.evaluated_alias or node.evaluated_name.split(".")[0]
                above = self.parent(node)
                if isinstance(above, cst.ImportFrom):
                    dots = "" if above.module is None else dotted(above.module)
                    full = f"{dots}.{node.evaluated_name}" if not above.relative else ""
                    name = node.evaluated_alias or node.evaluated_name
                elif node.evaluated_alias:
                    full = node.evaluated_name
                else:
                    full = node.evaluated_name.split(".")[0]
                if full == module:
                    yield name

    @staticmethod
    def _is_import(scope: Scope, alias: str, full: str) -> bool:
        try:
            found = list(scope[alias])
        except KeyError:
            return False
        return bool(found) and all(
            isinstance(x, ImportAssignment)
            and {q.name for q in x.get_qualified_names_for(alias)} == {full}
            for x in found
        )
