"""Loops over a sequence that grows: what is made of it is put to its end.

The sequence is an array, or a list that an array is made of in each pass; or it is kept as keys and
values that grow, in a function that the loop calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from whyidle.monitor.code.source import (
    Function,
    arguments,
    callee,
    dotted,
    lines_of,
    made_by,
    nodes_of,
    variables,
    written,
)
from whyidle.monitor.code.trains import trains
from whyidle.monitor.libraries.frames import is_call
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import CodeLine

_JOINS: Final = re.compile(
    r"(torch|np|numpy|jnp|jax\.numpy|tf)\.(cat|concat|concatenate|[hv]stack|append)"
)
_ADDS: Final = re.compile(r"append|extend")
# What makes an array of a list.
_MAKES: Final = re.compile(
    r"(torch|np|numpy|jnp|jax\.numpy|tf)\.(tensor|as_tensor|LongTensor|IntTensor|array|asarray"
    r"|constant|convert_to_tensor|stack)"
)
_Loop = ast.For | ast.While


class _Growth(NamedTuple):
    """A statement that puts something to the end of a sequence."""

    node: ast.stmt
    name: str
    new: tuple[ast.expr, ...]
    is_list: bool


class Loop(NamedTuple):
    """The lines of a loop in a file."""

    file: str
    first: int
    last: int

    def has(self, line: CodeLine) -> bool:
        """Tell whether a line is in it."""
        return line.file == self.file and self.first <= line.line <= self.last


@lru_cache(maxsize=64)
def _loops(file: str) -> dict[int, int]:
    """Return by line within such a loop the line at which the sequence grows."""
    found: dict[int, int] = {}
    for loop in _all(file):
        inside = [node for each in loop.body for node in ast.walk(each)]
        # Data that a model is trained on grows from round to round, and is no sequence.
        if is_call(Role.TRAIN, [callee(x) for x in inside if isinstance(x, ast.Call)]):
            continue
        for growth in filter(None, map(grows, inside)):
            if _goes_on(growth, inside, _targets(loop)):
                lines = {*_lines(loop.body)}
                # Who goes the other way grows nothing.
                for node in inside:
                    if isinstance(node, ast.If) and growth.node.lineno in _lines(node.body):
                        lines -= {*_lines(node.orelse)}
                    elif isinstance(node, ast.If) and growth.node.lineno in _lines(node.orelse):
                        lines -= {*_lines(node.body)}
                found |= dict.fromkeys(lines, growth.node.lineno)
    return found


def _lines(body: list[ast.stmt]) -> range:
    return range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1) if body else range(0)


def grown_at(frames: tuple[CodeLine, ...]) -> CodeLine | None:
    """Return the line at which the sequence of a loop around a stack grows; ``None``: none does."""
    for line in frames:
        at = _loops(line.file).get(line.line)
        if at is not None:
            return line._replace(line=at)
    return None


# Keys and values that grow ---------------------------------------------------------------------
def caching_loops(stacks: Iterable[tuple[CodeLine, ...]]) -> dict[Loop, CodeLine]:
    """Return the loops that call what keeps keys and values that grow, each with where they do."""
    found: dict[Loop, CodeLine] = {}
    for frames in stacks:
        for depth, line in enumerate(frames):
            at = _kept(line.file).get(line.line)
            for outer in frames[depth + 1 :] if at is not None else ():
                loop = _feeding(outer)
                if loop is not None and at is not None:
                    found.setdefault(loop, line._replace(line=at))
                    break
    return found


@lru_cache(maxsize=64)
def _kept(file: str) -> dict[int, int]:
    """Return by line of a function in which a cache grows the line at which it does."""
    found: dict[int, int] = {}
    for node in nodes_of(file):
        if isinstance(node, Function):
            assigned = (each for each in ast.walk(node) if isinstance(each, ast.Assign))
            at = next((each.lineno for each in assigned if _keeps(each, node)), None)
            if at is not None:
                found |= dict.fromkeys(lines_of(node), at)
    return found


def _keeps(node: ast.Assign, function: Function) -> bool:
    """Tell whether something that was there before the call grows, and stays after it."""
    if not isinstance(node.value, ast.Call):
        return False
    parts, target = _parts(node.value), node.targets[0]
    if not parts:
        return False
    if not isinstance(target, ast.Name):
        return written(target) == written(parts[0])
    given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    if not isinstance(parts[0], ast.Name | ast.Subscript | ast.Attribute):
        return False
    is_before = bool(variables(parts[0]) & given - {"self"}) and target.id in variables(*parts[1:])
    gives = (each.value for each in ast.walk(function) if isinstance(each, ast.Return))
    return is_before and any(
        isinstance(each, ast.Name) and each.id == target.id
        for value in gives
        if value is not None
        for each in _listed(value)
    )


def _feeding(line: CodeLine) -> Loop | None:
    """Return the loop around a call whose results it is given in the next pass."""
    around = [x for x in _all(line.file) if x.lineno < line.line <= (x.end_lineno or 0)]
    for loop in sorted(around, key=lambda each: -each.lineno):
        assigned = [x for n in loop.body for x in ast.walk(n) if isinstance(x, ast.Assign)]
        if trains(line.file, loop.body):
            return None
        for each in assigned:
            if line.line in lines_of(each) and variables(*each.targets) & _feeds(each, assigned):
                return Loop(line.file, loop.body[0].lineno, loop.end_lineno or loop.lineno)
    return None


def _feeds(node: ast.Assign, assigned: list[ast.Assign]) -> set[str]:
    """Return the names that go into what is called, also by way of others of the loop."""
    inside = (call for call in ast.walk(node.value) if isinstance(call, ast.Call))
    wanted = variables(*(x for call in inside for x in arguments(call)))
    made = made_by((each for each in assigned if each is not node), wanted)
    return wanted | variables(*(each.value for each in made))


# What grows --------------------------------------------------------------------------------------
@lru_cache(maxsize=64)
def _all(file: str) -> tuple[_Loop, ...]:
    return tuple(node for node in nodes_of(file) if isinstance(node, ast.For | ast.While))


def _targets(loop: _Loop) -> set[str]:
    return variables(loop.target) if isinstance(loop, ast.For) else set()


def grows(node: ast.AST) -> _Growth | None:
    """Return the growth of a name that gets its own value with more at its end."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Call() as call):
            match _parts(call):
                case (ast.Name(id=first), *new) if first == name:
                    return _Growth(node, name, tuple(new), is_list=False)
                case _:
                    return None
        case ast.Assign(
            targets=[ast.Name(id=name), *_],
            value=ast.BinOp(left=ast.Name(id=first), op=ast.Add(), right=new),
        ):
            return _Growth(node, name, (new,), is_list=True) if first == name else None
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.List() as new):
            return _Growth(node, name, (new,), is_list=True)
        case ast.Expr(value=ast.Call(func=func, args=args)):
            owner, _, last = dotted(func).rpartition(".")
            is_added = owner and "." not in owner and _ADDS.fullmatch(last)
            return _Growth(node, owner, tuple(args), is_list=True) if is_added else None
        case _:
            return None


def _parts(call: ast.Call) -> tuple[ast.expr, ...]:
    """Return what a call puts one after the other; nothing where it is another call."""
    if _JOINS.fullmatch(dotted(call.func)) is None or not call.args:
        return ()
    first = call.args[0]
    parts = first.elts if isinstance(first, ast.Tuple | ast.List) else call.args
    return tuple(parts) if len(parts) > 1 else ()


def _goes_on(growth: _Growth, inside: list[ast.AST], layers: set[str]) -> bool:
    """Tell whether what is put to the end was computed from all before it, or its last part.

    What goes through ``layers``, which the loop itself goes through, is the depth of a network.
    """
    assigned = [x for x in inside if isinstance(x, ast.Assign) and x is not growth.node]
    if any(_begins(each, growth.name) for each in assigned):
        return False
    sequence = {growth.name}
    for each in assigned:
        if _is_part(each.value, sequence) or _made(each.value, sequence):
            sequence |= variables(*each.targets)
    if growth.is_list and not any(_made(call, sequence) for call in inside):
        return False
    new = list(growth.new)
    wanted = variables(*new) - {growth.name}
    # From the new part back through what it was made of.
    while True:
        if any(_given(call, sequence) for each in new for call in _calls(each, layers)):
            return True
        made = [each for each in assigned if variables(*each.targets) & wanted]
        if not made:
            return False
        assigned = [each for each in assigned if each not in made]
        new = [each.value for each in made]
        wanted |= {name for each in new for name in variables(each)}


def _begins(node: ast.Assign, name: str) -> bool:
    """Tell whether a name begins anew, in each pass of the loop."""
    is_its = any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    return is_its and name not in variables(node.value)


def _is_part(value: ast.expr, sequence: set[str]) -> bool:
    """Tell whether a value is a part of the sequence that grows with it, or is one by choice."""
    if isinstance(value, ast.IfExp):
        return any(_is_part(each, sequence) for each in (value.body, value.orelse))
    if isinstance(value, ast.Subscript):
        return bool(variables(value.value) & sequence) and not _is_last(value.slice)
    return isinstance(value, ast.Name) and value.id in sequence


def _is_last(part: ast.expr) -> bool:
    """Tell whether an index takes only the last one: a model with a cache is given no more."""
    parts = part.elts if isinstance(part, ast.Tuple) else [part]
    lower = [each.lower if isinstance(each, ast.Slice) else each for each in parts]
    return any(isinstance(each, ast.UnaryOp) and written(each) == "-1" for each in lower)


def _made(call: ast.AST, names: set[str]) -> bool:
    """Tell whether a call makes an array of one of them."""
    if not isinstance(call, ast.Call) or _MAKES.fullmatch(dotted(call.func)) is None:
        return False
    return _given(call, names)


def _calls(node: ast.AST, layers: set[str]) -> Iterator[ast.Call]:
    """Yield the calls in a piece of code, but those of layers and what these are given."""
    if isinstance(node, ast.Call):
        if dotted(node.func).partition(".")[0] in layers:
            return
        yield node
    for each in ast.iter_child_nodes(node):
        yield from _calls(each, layers)


def _given(call: ast.Call, names: set[str]) -> bool:
    """Tell whether one of them is an argument, by itself or in a list, and not only its last."""
    return any(_is_part(each, names) for given in arguments(call) for each in _listed(given))


def _listed(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.Tuple | ast.List):
        for each in value.elts:
            yield from _listed(each)
    else:
        yield value
