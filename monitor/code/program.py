"""One text of the user's as a tree: what stands in what, and where its text is. Nothing is run."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final

from whyidle.monitor.code.source import Function, dotted
from whyidle.monitor.code.trains import Loop, loop_trains

_BLANK: Final = re.compile(r"(?:[\s\\]|#[^\n]*)*")

# What has a name in it.
_NAMES: Final = ("id", "attr", "arg", "name", "asname", "module")


def inside(*some: ast.AST) -> Iterator[ast.AST]:
    """Yield pieces and all in them, outer ones before those in them, in the order of the text."""
    for node in some:
        yield node
        yield from inside(*ast.iter_child_nodes(node))


def sets(*some: ast.AST) -> Iterator[ast.AST]:
    """Yield what gives a name its value in some code: names, functions and classes, ``as``."""
    for each in inside(*some):
        match each:
            case ast.Name(ctx=ast.Store()) | ast.alias(asname=str()):
                yield each
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler():
                yield each
            case _:
                pass


def name_of(node: ast.AST) -> str:
    """Return the name that a piece is, or gives something to; empty for anything else."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(asname=str(name)):
            return name
        case ast.alias(name=name):
            return name.partition(".")[0]
        case _:
            return str(getattr(node, "name", None) or getattr(node, "rest", None) or "")


def names_set(*some: ast.AST) -> set[str]:
    """Return the names that some code sets."""
    return {name_of(each) for each in sets(*some)}


def targets(node: ast.AST) -> list[ast.expr]:
    """Return what an assignment writes to."""
    match node:
        case ast.Assign(targets=several):
            return several
        case ast.AugAssign(target=one) | ast.AnnAssign(target=one):
            return [one]
        case _:
            return []


def params(function: Function | ast.Lambda) -> list[ast.arg]:
    """Return all that a function takes."""
    args = function.args
    found = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    return [x for x in found if x is not None]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return an argument by its name or its place."""
    for each in call.keywords:
        if each.arg == name:
            return each.value
    return call.args[position] if position is not None and position < len(call.args) else None


def has_stars(call: ast.Call) -> bool:
    """Tell whether arguments come from a list or a dict."""
    return any(isinstance(x, ast.Starred) for x in call.args) or any(
        each.arg is None for each in call.keywords
    )


def plain_text(node: ast.AST | None) -> str | None:
    """Return a plain text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case _:
            return None


def is_plain(node: ast.AST | None, *kinds: type) -> bool:
    """Tell whether a piece is a plain number: a whole one, or of these kinds."""
    return isinstance(node, ast.Constant) and type(node.value) in (kinds or (int,))


class Program:
    """One text as a tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.module = ast.parse(text)
        # All pieces, outer ones before those in them.
        self.everything = tuple(inside(self.module))
        self._parents = {
            child: node for node in self.everything for child in ast.iter_child_nodes(node)
        }
        self._lines = list(io.StringIO(text, newline=""))
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._trains: dict[Loop, bool] = {}

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """All calls."""
        return tuple(x for x in self.everything if isinstance(x, ast.Call))

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name and attribute that occurs."""
        return self.words_of(self.everything)

    def words_of(self, some: Iterable[ast.AST]) -> frozenset[str]:
        """Return every name and attribute among some pieces."""
        found = {getattr(x, key, None) for x in some for key in _NAMES}
        return frozenset(part for x in found if isinstance(x, str) for part in x.split("."))

    @cached_property
    def texts(self) -> frozenset[str]:
        """Every plain text that occurs."""
        return frozenset(x for node in self.everything if (x := plain_text(node)) is not None)

    # What stands in what -------------------------------------------------------------------------
    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return what a piece stands in."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a piece stands in, from the inside out."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that a piece is, or stands in."""
        return next(x for x in (node, *self.around(node)) if isinstance(x, ast.stmt))

    def within_statement(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a piece stands in, within its statement, from the inside out."""
        for above in self.around(node):
            if isinstance(above, ast.stmt):
                return
            yield above

    def call_with(self, node: ast.AST) -> ast.Call | None:
        """Return the call that is given a piece, by its place or by name."""
        above = self.parent(node)
        above = self.parent(above) if isinstance(above, ast.keyword) else above
        return above if isinstance(above, ast.Call) and above.func is not node else None

    def function(self, node: ast.AST) -> Function | ast.Lambda | None:
        """Return the innermost function around a piece."""
        return next((x for x in self.around(node) if isinstance(x, Function | ast.Lambda)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the innermost class around a piece."""
        return next((x for x in self.around(node) if isinstance(x, ast.ClassDef)), None)

    def loops(self, node: ast.AST) -> list[Loop]:
        """Return the loops around a piece in its own function, from the inside out."""
        found: list[Loop] = []
        below = node
        for each in self.around(node):
            if isinstance(each, Function | ast.Lambda | ast.ClassDef):
                break
            # What a loop goes over is computed before it.
            if isinstance(each, Loop) and below in each.body:
                found.append(each)
            below = each
        return found

    def trains(self, loop: Loop) -> bool:
        """Tell whether a loop trains, by what it does and what it calls in its text."""
        if loop not in self._trains:
            self._trains[loop] = loop_trains(self.everything, loop)
        return self._trains[loop]

    def training_loop(self, node: ast.AST) -> Loop | None:
        """Return the innermost loop around a piece, a pass of which is a step of training."""
        function = self.function(node)
        if isinstance(function, Function) and self.is_compiled(function):
            # It hands on what its loops carry.
            return None
        return next((loop for loop in self.loops(node) if self.trains(loop)), None)

    def is_compiled(self, function: Function) -> bool:
        """Tell whether a function is marked to be compiled."""
        return any("jit" in self.code(mark) for mark in function.decorator_list)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements beside one, and itself; none for an ``elif``."""
        above = self.parent(statement)
        some = [getattr(above, name, None) for name in ("body", "orelse", "finalbody")]
        is_elif = isinstance(statement, ast.If) and self.text.startswith(
            "elif", self.start(statement)
        )
        mine = (x for x in some if isinstance(x, list) and statement in x and not is_elif)
        return next(mine, [])

    def at_lines(self, lines: Iterable[int]) -> list[ast.stmt]:
        """Return the smallest statement at each of some lines."""
        found = [
            next((x for x in reversed(self._statements) if self.covers(x, line)), None)
            for line in lines
        ]
        return list(dict.fromkeys(x for x in found if x is not None))

    @cached_property
    def _statements(self) -> tuple[ast.stmt, ...]:
        return tuple(x for x in self.everything if isinstance(x, ast.stmt))

    # Where the text is ---------------------------------------------------------------------------
    def line(self, node: ast.AST) -> int:
        """Return the line that a piece begins in."""
        return next((int(x.lineno) for x in inside(node) if hasattr(x, "lineno")), 0)

    def covers(self, node: ast.AST, line: int) -> bool:
        """Tell whether a line is in a piece."""
        return bool(self.line(node) <= line <= (getattr(node, "end_lineno", None) or 0))

    def offset(self, line: int, column: int = 0) -> int:
        """Return where a place is in the text; Python counts columns in bytes."""
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._starts[line - 1] + len(text.encode()[:column].decode())

    def start(self, node: Any) -> int:
        """Return where a piece begins in the text."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        """Return where it ends."""
        return self.offset(node.end_lineno, node.end_col_offset)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a piece is in the text, with the parentheses of its own around it."""
        first, last = self.start(node), self.end(node)
        above = self.parent(node)
        while isinstance(above, ast.keyword | ast.Starred):
            above = self.parent(above)
        end = self.end(above) if hasattr(above, "end_lineno") else len(self.text)
        # The last one is the call's.
        end -= isinstance(above, ast.Call) and node is not above.func
        while isinstance(node, ast.expr):
            before, after = first - 1, self.skipped(last)
            while self.text[before : before + 1].isspace():
                before -= 1
            if self.text[before : before + 1] != "(" or self.text[after : after + 1] != ")":
                break
            if after >= end:
                break
            first, last = before, after + 1
        return first, last

    def skipped(self, at: int) -> int:
        """Return what follows white space and comments."""
        found = _BLANK.match(self.text, at)
        return at if found is None else found.end()

    def code(self, node: ast.AST) -> str:
        """Return a piece as text."""
        if not self.is_placed(node):
            return ast.unparse(node)
        first, last = self.span(node)
        return self.text[first:last]

    def is_bare(self, node: ast.AST) -> bool:
        """Tell whether a piece is a tuple without parentheses: ``a, b``."""
        text = self.code(node)
        if not isinstance(node, ast.Tuple) or not text.startswith("("):
            return isinstance(node, ast.Tuple)
        try:
            within = ast.parse(f"{text[1:-1]}", mode="eval").body
        except SyntaxError:
            return True
        return not isinstance(within, ast.Tuple)

    def code_with(self, node: ast.AST, new: dict[ast.AST, str]) -> str:
        """Return a piece as text, in which pieces of it are others."""
        at, last = self.span(node)
        found = ""
        for part in sorted(new, key=self.start):
            first, end = self.span(part)
            found += self.text[at:first] + new[part]
            at = end
        return found + self.text[at:last]

    def is_placed(self, node: ast.AST) -> bool:
        """Tell whether the text of a piece is where Python says: in formatted text it may not be.

        Before 3.12 that was wrong where such a text goes over several lines.
        """
        if not any(isinstance(x, ast.JoinedStr) for x in self.around(node)):
            return True
        try:
            there = ast.parse(self.text[self.start(node) : self.end(node)].strip(), mode="eval")
        except (SyntaxError, ValueError):
            return False
        return ast.dump(there.body) == ast.dump(node)

    def row(self, line: int) -> str:
        """Return the text of one line, with its end."""
        return self._lines[line - 1] if 0 < line <= len(self._lines) else ""

    @cached_property
    def within_text(self) -> frozenset[int]:
        """The lines that begin within a text, where white space is a part of it."""
        found, opened = set[int](), list[int]()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "FSTRING_START":
                opened.append(token.start[0])
            first = opened.pop() if kind == "FSTRING_END" else token.start[0]
            if kind in {"STRING", "FSTRING_END"}:
                found |= set(range(first + 1, token.end[0] + 1))
        return frozenset(found)


def is_call_of_method(node: ast.AST, *names: str) -> bool:
    """Tell whether a method of one of these names is called."""
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in names


def is_of_self(node: ast.AST) -> bool:
    """Tell whether a piece is an attribute of ``self``."""
    return isinstance(node, ast.Attribute) and dotted(node.value) == "self"
