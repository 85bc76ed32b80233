"""The statements that a patch changes, as a person pastes them: the user's own, with the change."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final

from whyidle.monitor.fixes._codemod import Patch
from whyidle.monitor.fixes._layout import fitted
from whyidle.monitor.processes.secrets import mask_text

# A screen has 80 columns, and begins code a few to the right.
WIDTH: Final = 72
# What is longer is a patch to apply, and nothing to paste.
MOST_LINES: Final = 24
# A block of so few lines is shown whole; of a longer one only what changes in it.
SHORT: Final = 8
_LITERAL: Final = re.compile(r"['\"#]")


@lru_cache(maxsize=16)
def opcodes(before: str, after: str) -> Sequence[tuple[str, int, int, int, int]]:
    """Return which lines became which."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return matcher.get_opcodes()


def of(patch: Patch, *notes: str) -> str | None:
    """Return it with the place of each piece; ``None``: it is too long or too wide, or may not be.

    ``notes``: what a person is to know of the patch beyond its own.
    """
    name, said = Path(patch.file).name, f": {patch.title}"
    found: list[str] = []
    for line, code in _pieces(patch):
        laid_out = fitted(code, WIDTH)
        if laid_out is None:
            return None
        found += [*_comment(f"{name}:{line}{said}"), *laid_out.splitlines()]
        said = ""
    found += [row for note in (*patch.notes, *notes) for row in _comment(note)]
    is_fit = not said and len(found) <= MOST_LINES and all(map(_may_be_shown, found))
    return "\n".join(found) if is_fit else None


def whole(patch: Patch) -> str:
    """Return all statements that it changes, however long and wide they are."""
    return "\n".join(code for _, code in _pieces(patch))


def edited(patch: Patch) -> int | None:
    """Return the line to edit: of the first statement that is more than an import."""
    pieces = _pieces(patch)
    own = (line for line, code in pieces if not code.startswith(("import ", "from ")))
    return next(chain(own, (line for line, _ in pieces)), None)


@lru_cache(maxsize=16)
def _pieces(patch: Patch) -> Sequence[tuple[int, str]]:
    """Return the statements that it changes, and where each stands, or will."""
    return sorted([*_removed(patch), *_changed(patch)])


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def _may_be_shown(line: str) -> bool:
    """Tell whether a line is plain text without a secret in it."""
    return line.isprintable() and (_LITERAL.search(line) is None or mask_text(line) == line)


def _removed(patch: Patch) -> Iterator[tuple[int, str]]:
    """Yield the statements that go, as comments, and where they stand."""
    rows = patch.before.splitlines()
    for kind, first, last, _, _ in opcodes(patch.before, patch.after):
        gone = [row.strip() for row in rows[first:last] if row.strip()[:1] not in {"", "#"}]
        if kind == "delete" and gone:
            yield first + 1, "\n".join(row for x in gone for row in _comment(f"without: {x}"))


def _changed(patch: Patch) -> Iterator[tuple[int, str]]:
    """Yield the statements that are new or different, and where they stand, or will."""
    rows, before = patch.after.splitlines(), dict[int, int]()
    for kind, first, last, begins, ends in opcodes(patch.before, patch.after):
        for number in range(begins, ends) if kind in {"insert", "replace"} else ():
            before[number + 1] = min(first + number - begins, max(first, last - 1)) + 1
    for statement in _smallest(ast.parse(patch.after).body, set(before)):
        line = next(before[n] for n in _lines(statement) if n in before)
        shown = [rows[n - 1] for n in _lines(statement)]
        if len(shown) > SHORT:
            shown = list(_without_rest(statement, set(before), rows))
        yield line, textwrap.dedent("\n".join(shown).expandtabs(4))


def _lines(statement: ast.stmt) -> range:
    """Return the lines of a statement, with what marks it."""
    marks: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(x.lineno for x in marks)])
    return range(first, (statement.end_lineno or first) + 1)


def _blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        some = getattr(statement, name, None)
        if isinstance(some, list) and some:
            if isinstance(some[0], ast.stmt):
                yield some
            else:
                yield from (block for each in some for block in _blocks(each))


def _smallest(some: Sequence[ast.stmt], changed: set[int]) -> Iterator[ast.stmt]:
    """Yield the smallest statements that all changes are in."""
    for each in some:
        mine = changed & set(_lines(each))
        inner = [x for block in _blocks(each) for x in block]
        within = {n for x in inner for n in _lines(x)}
        is_elif = any(x.col_offset == each.col_offset and changed & set(_lines(x)) for x in inner)
        if mine and (mine - within or is_elif):
            yield each
        elif mine:
            yield from _smallest(inner, changed)


def _without_rest(statement: ast.stmt, changed: set[int], rows: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a statement; of the blocks in it only what changes, and ... for more."""
    inner = [x for block in _blocks(statement) for x in block]
    within = {n: x for x in inner for n in _lines(x)}
    is_left_out = False
    for number in _lines(statement):
        each, row = within.get(number), rows[number - 1]
        if each is None:
            # Comments and blank lines between statements are left out with these.
            if not inner or row.strip()[:1] not in {"", "#"}:
                is_left_out = False
                yield row
        elif number != _lines(each)[0]:
            pass
        elif changed & set(_lines(each)):
            is_left_out = False
            yield from _without_rest(each, changed, rows)
        elif not is_left_out:
            is_left_out = True
            yield f"{row[: len(row) - len(row.lstrip())]}..."
