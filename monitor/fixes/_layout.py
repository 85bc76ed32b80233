"""Python laid out for a screen: a statement that is too wide is broken within its brackets."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

INDENT: Final = 4
_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")
# Where a line is broken within brackets, the best first.
_BREAKS: Final = (frozenset({"for"}), frozenset({","}), frozenset({"and", "or"}),
                  frozenset({"+", "-", "*", "/", "@", "|", "&", "if", "else"}))  # fmt: skip
# Of these kinds no token is text of the statement.
_BESIDE: Final = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                  tokenize.DEDENT, tokenize.ENDMARKER)  # fmt: skip


def fitted(code: str, width: int) -> str | None:
    """Return code whose lines are no wider; ``None``: it cannot be broken so."""
    if all(len(row) <= width for row in code.splitlines()):
        return code
    # Behind the last of several arguments stands a comma; not everywhere may there be one.
    tries = (_laid_out(code, width, comma) for comma in (",", ""))
    return next((x for x in tries if _is_same(x, code) and _widest(x) <= width), None)


def _widest(code: str) -> int:
    return max(map(len, code.splitlines()), default=0)


def _is_same(code: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(code)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def _laid_out(code: str, width: int, comma: str) -> str:
    rows, found = code.splitlines(), list[str]()
    for first, last, tokens in _statements(code):
        mine = rows[first - 1 : last]
        if all(len(row) <= width for row in mine):
            found += mine
        elif tokens:
            indent = len(mine[0]) - len(mine[0].lstrip())
            found += _broken(_pieces(tokens), indent, width, comma)
    return "\n".join(found)


def _statements(code: str) -> Iterator[tuple[int, int, list[tokenize.TokenInfo]]]:
    """Yield the first and the last line of each statement, and its tokens; blank lines as well."""
    tokens: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NEWLINE:
            yield tokens[0].start[0], token.start[0], tokens
            tokens = []
        elif token.type == tokenize.NL and not tokens:
            yield token.start[0], token.start[0], []
        elif token.type not in _BESIDE:
            tokens.append(token)


def _pieces(tokens: list[tokenize.TokenInfo]) -> list[str]:
    """Return the tokens of a statement as it stands in one line, each with the gap before it."""
    found = [tokens[0].string]
    for before, token in pairwise(tokens):
        (row, column), (ended, at) = token.start, before.end
        is_tight = before.string in _OPEN or token.string in _CLOSE
        gap = " " * (column - at) if row == ended else "" if is_tight else " "
        found.append(gap + token.string)
    return found


def _broken(pieces: list[str], indent: int, width: int, comma: str) -> list[str]:
    """Return the lines of a statement, broken within its longest brackets where it is too wide."""
    line = f"{' ' * indent}{''.join(pieces).strip()}"
    pairs = list(_brackets(pieces))
    if len(line) <= width or not pairs:
        return [line]
    first, last = max(pairs, key=lambda pair: len("".join(pieces[pair[0] : pair[1]])))
    head, inside, tail = pieces[: first + 1], pieces[first + 1 : last], pieces[last:]
    deep = indent + INDENT
    if deep + len("".join(inside).strip()) <= width:
        rows = [f"{' ' * deep}{''.join(inside).strip()}"]
    else:
        parts = list(_parts(inside))
        rows = [row for part in parts for row in _broken(part, deep, width, comma)]
        if parts[0][-1].strip() == "," and not rows[-1].endswith(","):
            rows[-1] += comma
    return [
        f"{' ' * indent}{''.join(head).strip()}",
        *rows,
        f"{' ' * indent}{''.join(tail).strip()}",
    ]


def _brackets(pieces: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where the outermost brackets open and close that have something in them."""
    opened: list[int] = []
    for number, piece in enumerate(pieces):
        if piece.strip() in _OPEN:
            opened.append(number)
        elif piece.strip() in _CLOSE:
            first = opened.pop()
            if not opened and number > first + 1:
                yield first, number


def _parts(pieces: list[str]) -> Iterator[list[str]]:
    """Yield arguments with their commas; else the parts of a comprehension, or of a formula."""
    depth, outer = 0, list[str]()
    for piece in pieces:
        depth -= piece.strip() in _CLOSE
        outer.append("" if depth else piece.strip())
        depth += piece.strip() in _OPEN
    marks = next((x for x in _BREAKS if not x.isdisjoint(outer)), frozenset())
    part: list[str] = []
    for piece, mark in zip(pieces, outer, strict=True):
        if part and mark in marks and mark != ",":
            yield part
            part = []
        part.append(piece)
        if mark in marks and mark == ",":
            yield part
            part = []
    if part:
        yield part
