"""Pieces of a syntax tree: what is in them, their names, and the arguments of calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst


def inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a piece and all in it, in the order of the text."""
    yield node
    for child in node.children:
        yield from inside(child)


def dotted(node: cst.CSTNode) -> str:
    """Return ``a.b.c`` for a name with attributes; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr.value}" if before else ""
    return ""


def names_in(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names that a piece reads or sets; what follows a dot is none."""
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, (cst.Attribute, cst.Arg)):
        yield from names_in(node.value)
    else:
        for child in node.children:
            yield from names_in(child)


def is_whole(index: cst.BaseSlice) -> bool:
    """Tell whether an index leaves an axis as it is: ``[:]``."""
    return isinstance(index, cst.Slice) and index.lower is index.upper is index.step is None


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.Arg | None:
    """Return an argument by its name or its place."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg
    plain = [arg for arg in call.args if arg.keyword is None]
    if position is not None and position < len(plain):
        return plain[position]
    return None


def has_stars(call: cst.Call) -> bool:
    """Tell whether arguments come from a list or a dict."""
    return any(arg.star for arg in call.args)


def with_argument(call: cst.Call, name: str, value: str) -> cst.Call:
    """Return a call with one more argument by name, laid out like the last; or a changed one."""
    expression = cst.parse_expression(value)
    for number, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            args = list(call.args)
            args[number] = arg.with_changes(value=expression)
            return call.with_changes(args=args)
    new = cst.Arg(
        expression,
        cst.Name(name),
        cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[new])
    *before, last = call.args
    after = last.comma
    # A call with one argument a line has the white space after its commas, perhaps with a comment.
    first: Any = call.whitespace_before_args
    commas = [x.comma.whitespace_after for x in before if isinstance(x.comma, cst.Comma)]
    lines = next((x for x in (*commas, first) if isinstance(x, cst.ParenthesizedWhitespace)), None)
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    if lines is not None:
        plain = lines.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())
        comma = cst.Comma(whitespace_after=plain)
    closing = last.whitespace_after_arg
    if isinstance(after, cst.Comma) and isinstance(
        after.whitespace_after, cst.ParenthesizedWhitespace
    ):
        # The comment behind the last argument stays with it; the bracket closes where it did.
        line = after.whitespace_after.first_line
        if isinstance(comma.whitespace_after, cst.ParenthesizedWhitespace):
            comma = comma.with_changes(
                whitespace_after=comma.whitespace_after.with_changes(first_line=line)
            )
            bare = after.whitespace_after.with_changes(first_line=cst.TrailingWhitespace())
            after = after.with_changes(whitespace_after=bare)
    last = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    new = new.with_changes(comma=after, whitespace_after_arg=closing)
    return call.with_changes(args=[*before, last, new])


def without_argument(call: cst.Call, name: str) -> cst.Call:
    """Return a call without an argument that was given by name."""
    args = [a for a in call.args if a.keyword is None or a.keyword.value != name]
    if args and len(args) < len(call.args):
        last = call.args[-1]
        args[-1] = args[-1].with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return call.with_changes(args=args)
