"""What becomes of a text: pieces of it replaced where they stand. The rest stays to the letter."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, name_of

_COMMENT: Final = re.compile(r"[ \t]*(#.*)?(?=\r?\n)")


class Refused(Exception):  # noqa: N818  an answer, not a defect
    """The change cannot be proved right here: why, and at which piece, or line."""

    def __init__(self, why: str, at: ast.AST | int | None = None) -> None:
        super().__init__(why)
        self.why, self._at = why, at
        # There is what a person has to change.
        self.edits = False

    def is_about(self, node: ast.AST) -> bool:
        """Tell whether it is said of this piece."""
        return self._at is node

    def line(self, source: Source) -> int | None:
        """Return the line in its text."""
        return source.line(self._at) if isinstance(self._at, ast.AST) else self._at


class SetElsewhere(Refused):
    """An argument is given what other code sets: which one, and what it should be.

    ``times``: so many times what it is, where the source says that.
    """

    def __init__(
        self,
        name: str,
        given: ast.expr,
        wanted: str,
        at: ast.AST,
        why: str | None = None,
        times: int | None = None,
    ) -> None:
        super().__init__(why or f"{name} is set by other code", at)
        self.name, self.given, self.wanted, self.times = name, given, wanted, times

    def value(self, now: int | None) -> str:
        """Return what it should be, by what it is now."""
        return self.wanted if now is None or self.times is None else str(now * self.times)


class NotHere(Exception):  # noqa: N818  an answer, not a defect
    """There is nothing in this file that this codemod changes."""


class Change:
    """What becomes of which piece of the source, and what a user should know of it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        # From where to where there is another text; in one place those first that came first.
        self.edits: list[tuple[int, int, str]] = []
        # What is different for the user afterwards, in sentences.
        self.notes: list[str] = []
        self._imports: set[str] = set()
        self._wrapped: set[ast.stmt] = set()
        self._gone: set[ast.stmt] = set()

    def text(self) -> str:
        """Return the changed text."""
        found, at = [], 0
        for first, last, new in sorted(self.edits, key=lambda x: x[:2]):
            if first < at:
                raise Refused("several changes meet in one place")
            found += [self.source.text[at:first], new]
            at = last
        return "".join([*found, self.source.text[at:]])

    # Pieces --------------------------------------------------------------------------------------
    def _put(self, first: int, last: int, new: str) -> None:
        if (first, last, new) not in self.edits:
            self.edits.append((first, last, new))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        if not self.source.is_placed(node):
            raise Refused("where it stands in a text is not certain", node)
        return self.source.span(node)

    def replace(self, node: ast.AST, new: str) -> None:
        """Put a new piece in the place of an old one."""
        self._put(*self._span(node), new)

    def surround(self, node: ast.AST, before: str, after: str) -> None:
        """Put text before and after a piece."""
        first, last = self._span(node)
        self._put(first, first, before)
        self._put(last, last, after)

    def instead(self, node: ast.AST, part: ast.AST, before: str = "") -> None:
        """Leave of a piece nothing but a part of it."""
        first, last = self._span(part)
        is_long = bool(before) and "\n" in self.source.text[first:last]
        self._put(self.source.start(node), first, f"{before}{'(' * is_long}")
        self._put(last, self.source.end(node), ")" * is_long)

    # Arguments -----------------------------------------------------------------------------------
    def argument(self, call: ast.Call, name: str, value: str, *, instead: str = "") -> None:
        """Give a call one more argument by name, laid out like the last; or change it.

        ``instead``: the name of an argument that goes.
        """
        source = self.source
        given: list[Any] = sorted([*call.args, *call.keywords], key=source.start)
        old = next((x for x in call.keywords if x.arg == instead), None)
        if old is not None and old is given[-1]:
            self._put(source.start(old), self._ends(old), f"{name}={value}")
            return
        if old is not None:
            self._put(source.start(old), source.start(given[given.index(old) + 1]), "")
        self.arguments(call, {name: value})

    def arguments(self, call: ast.Call, new: dict[str, str]) -> None:
        """Give a call more arguments by name, laid out like the last; or change them."""
        source = self.source
        given: list[Any] = sorted([*call.args, *call.keywords], key=source.start)
        for each in call.keywords:
            if each.arg in new:
                self.replace(each.value, new.pop(each.arg))
        texts = [f"{name}={value}" for name, value in new.items()]
        if not given:
            at = source.end(call) - 1
            self._put(at, at, ", ".join(texts))
        elif isinstance(given[-1], ast.GeneratorExp) and self._ends(given[-1]) == source.end(call):
            raise Refused("the call has a generator as its one argument", call)
        elif texts:
            self._after(call, given, texts)

    def _ends(self, given: Any) -> int:
        """Return where an argument ends, with the parentheses around its value."""
        inner = given.value if isinstance(given, ast.keyword | ast.Starred) else given
        return self._span(inner)[1]

    def _after(self, call: ast.Call, given: list[Any], new: list[str]) -> None:
        """Put arguments behind the last, each in a line of its own where the others have one."""
        source = self.source
        ends = [self._ends(x) for x in given]
        opened = source.text.index("(", self._span(call.func)[1]) + 1
        # What stands between arguments, then before the first.
        gaps = [source.text[a : source.start(b)] for a, b in zip(ends, given[1:], strict=False)]
        gaps.append(source.text[opened : source.start(given[0])])
        lines = next((x for x in gaps if "\n" in x), None)
        gap = " " if lines is None else self._newline + lines.rpartition("\n")[2]
        comma = source.skipped(ends[-1])
        if source.text[comma] != ",":
            self._put(ends[-1], ends[-1], "".join(f",{gap}{each}" for each in new))
            return
        at = comma + 1
        if lines is not None and (rest := _COMMENT.match(source.text, at)):
            # The comment behind the last argument stays with it.
            at = rest.end()
        self._put(at, at, "".join(f"{gap}{each}," for each in new))

    def without_arguments(self, call: ast.Call, new: str = "") -> None:
        """Give a call other arguments than it has."""
        opened = self.source.text.index("(", self._span(call.func)[1])
        self._put(opened, self.source.end(call), f"({new})")

    # Lines ---------------------------------------------------------------------------------------
    def _begin(self, statement: ast.stmt) -> int:
        """Return the first line of a statement, of whose lines it has all to itself."""
        source = self.source
        marks = getattr(statement, "decorator_list", [])
        first: int = min([statement.lineno, *(x.lineno for x in marks)])
        before = source.row(statement.lineno)[: statement.col_offset]
        after = source.text[source.end(statement) :].partition("\n")[0].strip()
        if before.strip() or (after and not after.startswith("#")):
            raise Refused("several statements stand in one line", statement.lineno)
        return first

    def indent(self, statement: ast.stmt) -> str:
        """Return the white space before a statement."""
        return self.source.row(statement.lineno)[: statement.col_offset]

    def unit(self) -> str:
        """Return by how much the text indents its blocks."""
        for node in self.source.everything:
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list):
                if body[0].lineno > node.lineno:
                    return self.indent(body[0])[node.col_offset :]
        return "    "

    @property
    def _newline(self) -> str:
        return "\r\n" if self.source.row(1).endswith("\r\n") else "\n"

    def _lines(self, statement: ast.stmt, at: int, lines: Sequence[str]) -> None:
        """Put lines that stand as deep as a statement before the line of that number."""
        indent, end = self.indent(statement), self._newline
        new = "".join(f"{indent if x else ''}{x}{end}" for x in lines)
        is_open = at > 1 and not self.source.row(at - 1).endswith(("\n", "\r"))
        place = self.source.offset(at)
        self._put(place, place, end + new if is_open else new)

    def before(self, statement: ast.stmt, *lines: str) -> None:
        """Put lines before a statement, below the comments that stand before it."""
        self._lines(statement, self._begin(statement), lines)

    def above(self, statement: ast.stmt, *lines: str) -> None:
        """Put lines before a statement, above the comments that stand before it."""
        self._lines(statement, self._top(statement), lines)

    def after(self, statement: ast.stmt, *lines: str) -> None:
        """Put lines after a statement."""
        self._begin(statement)
        self._lines(statement, (statement.end_lineno or 0) + 1, lines)

    def head(self, loop: ast.For, new: str) -> None:
        """Put another head before the body of a loop."""
        end = self.source.skipped(self._span(loop.iter)[1])
        self._put(self.source.start(loop), end + 1, new)

    def wrap(self, statements: Sequence[ast.stmt], head: str) -> None:
        """Let statements that follow each other stand in a block: ``if ..``, ``with ..``."""
        source, first = self.source, statements[0]
        if self._wrapped & set(statements):
            raise Refused("several changes meet in one line", first)
        self._wrapped |= set(statements)
        begins = [self._begin(x) for x in statements]
        indent, unit = self.indent(first), self.unit()
        at = source.offset(begins[0])
        self._put(at, at, f"{indent}{head}:{self._newline}")
        for number in range(begins[0], (statements[-1].end_lineno or 0) + 1):
            row, at = source.row(number), source.offset(number)
            if row.startswith(indent) and row.strip() and number not in source.within_text:
                self.edits.append((at, at, unit))

    def remove(self, statement: ast.stmt) -> None:
        """Take away a statement, and the comments above it."""
        source, first = self.source, self._top(statement)
        self._gone.add(statement)
        if not set(source.block(statement)) - self._gone:
            self.replace(statement, "pass")
        else:
            last = source.offset((statement.end_lineno or 0) + 1)
            self._put(source.offset(first), last, "")

    def _top(self, statement: ast.stmt) -> int:
        """Return the first line of a statement, or of the comments above it."""
        first = self._begin(statement)
        while first > 1:
            row = self.source.row(first - 1)
            text = row.strip()
            is_deep = len(row) - len(row.lstrip()) > statement.col_offset
            is_code = not text.startswith("#") or first - 1 in self.source.within_text
            if text and (is_deep or is_code):
                break
            first -= 1
        return first

    # Imports -------------------------------------------------------------------------------------
    def after_imports(self, line: str) -> None:
        """Say something once, before anything else is done."""
        some = [x for x in self.source.module.body if _is_import(x)]
        given = {name_of(x) for x in inside(*some)}
        if line.partition(".")[0] not in given:
            raise Refused("what it needs is not imported by a line of its own")
        self.after(some[-1], "", line)

    def spelling(self, name: str, at: ast.AST) -> str:
        """Return how ``module.name`` is written at a place, importing its module where it must."""
        known = self.source.spelt(name, at)
        if known is not None:
            return known
        module = name.partition(".")[0]
        if module in self.source.words:
            raise Refused(f"{module} means something else here", at)
        self.imports(module)
        return name

    def imports(self, module: str) -> None:
        """Import a module before the first import that is not of ``__future__``."""
        if module in self._imports:
            return
        self._imports.add(module)
        body = self.source.module.body
        first = next((x for x in body if _is_import(x)), None)
        if first is not None:
            self.before(first, f"import {module}")
        elif ast.get_docstring(self.source.module) is not None:
            self.after(body[0], f"import {module}")
        else:
            self.before(body[0], f"import {module}")


def _is_import(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module != "__future__"
    return isinstance(statement, ast.Import)


def detached(source: Source, node: ast.expr) -> str:
    """Return ``x`` as ``x.detach()``."""
    text = source.code(node)
    is_whole = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    has_own = source.span(node)[0] < source.start(node)
    return f"{text}.detach()" if is_whole or has_own else f"({text}).detach()"
