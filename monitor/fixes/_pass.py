"""One pass of a loop, as ``jax.lax.scan`` would take it: what it is given, hands on and leaves."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from whyidle.monitor.code.names import Scope, Source
from whyidle.monitor.code.program import inside, name_of, names_set, sets, targets
from whyidle.monitor.code.source import variables
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._over import check_array, counted, indices, is_whole, length_of, zipped


@dataclass(slots=True)
class Pass:
    """One pass of a loop: what it is given, what it hands on, and what of it is kept."""

    loop: ast.For
    # What is gone over, and the name of one pass's part of each.
    over: dict[str, str] = field(default_factory=dict)
    # How often, where no array says it alone.
    length: str | None = None
    # Pieces that are a part of an array: ``xs[t]``.
    picked: dict[ast.AST, str] = field(default_factory=dict)
    carried: list[str] = field(default_factory=list)
    # Lists that results are appended to, with the call.
    kept: dict[str, ast.Call] = field(default_factory=dict)
    # The first pass gives what is carried its shape.
    is_peeled: bool = False

    @property
    def lines(self) -> list[ast.stmt]:
        """Its statements."""
        return self.loop.body


def read(source: Source, loop: ast.For, found: Change) -> Pass:
    """Return what a pass is; refuse what no function could be."""
    one = Pass(loop)
    if loop.orelse:
        raise Refused("the loop has an else, or waits", loop)
    if loop.body[0].lineno == source.line(loop):
        raise Refused("a pass stands in the line of its loop", loop)
    for line in loop.body:
        if hasattr(line, "body") or isinstance(line, ast.Match):
            raise Refused("the loop decides, or loops again, within a pass", line)
        if isinstance(line, ast.Break | ast.Continue | ast.Return):
            raise Refused("a pass may leave the loop", line)
    _appended(one)
    _gone_over(source, one, found)
    _carried(source, one)
    return one


def _appended(one: Pass) -> None:
    """Find the lists that results of each pass are appended to."""
    for line in one.lines:
        match line:
            case ast.Expr(ast.Call(func=ast.Attribute(ast.Name(id=name), "append")) as call):
                if len(call.args) != 1 or name in one.kept:
                    raise Refused("several results of a pass go into one list", line)
                one.kept[name] = call
            case _:
                pass


# What is gone over -------------------------------------------------------------------------------
def _gone_over(source: Source, one: Pass, found: Change) -> None:
    """Find the arrays that each pass gets a part of."""
    loop = one.loop
    number = counted(source, loop.iter)
    if number is not None and isinstance(loop.target, ast.Name):
        _picked(source, one, loop.target.id, number, found)
        return
    over = zipped(source, loop.iter)
    names: list[ast.expr] = [loop.target]
    if over != [loop.iter]:
        names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    if len(names) != len(over) or not all(isinstance(x, ast.Name) for x in names):
        raise Refused("what the loop goes over is not certain", one.loop)
    for array, name in zip(over, names, strict=True):
        check_array(source, array)
        one.over[source.code(array)] = source.code(name)
    if len(one.over) != len(over):
        raise Refused("the loop goes over one array twice", one.loop)


def _picked(source: Source, one: Pass, number: str, count: ast.expr, found: Change) -> None:
    """Find what is picked by the number of the pass: ``xs[t]``, ``xs[:, t]``."""
    places: dict[tuple[str, int], str] = {}
    for node in inside(*one.loop.body):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            continue
        axis, array = _axis(node, number), node.value.id
        if axis is None:
            continue
        if axis == 0:
            check_array(source, node.value)
        if any(name == array and other != axis for name, other in places):
            raise Refused(f"{array} is gone over along two axes", node)
        name = source.fresh(f"one_{array}", f"part_of_{array}")
        places[array, axis] = one.picked[node] = name
    mine = set(inside(*one.picked))
    for node in inside(*one.loop.body):
        if isinstance(node, ast.Name) and node.id == number and node not in mine:
            why = "the number of the pass is used for more than to pick a part of an array"
            raise Refused(why, node)
    whole, written = length_of(source, count), source.code(count)
    for (array, axis), name in places.items():
        text = array
        if axis:
            move = found.spelling("jax.numpy.moveaxis", one.loop)
            text = f"{move}({array}, {axis}, 0)"
        one.over[text if whole == (array, axis) else f"{text}[:{written}]"] = name
    if whole not in places:
        one.length = written


def _axis(node: ast.Subscript, number: str) -> int | None:
    """Return the axis that the number of a pass picks from."""
    some = indices(node)
    found = [n for n, x in enumerate(some) if isinstance(x, ast.Name) and x.id == number]
    is_sure = len(found) == 1 and all(is_whole(x) for n, x in enumerate(some) if n not in found)
    return found[0] if is_sure else None


# What is carried ---------------------------------------------------------------------------------
def _carried(source: Source, one: Pass) -> None:
    """Find what a pass leaves to the next; refuse what of it is used otherwise."""
    loop, mine = one.loop, set(inside(one.loop))
    scope = source.scope(loop)
    assigned = {name_of(x): x for x in sets(*one.lines) if source.owner(x) is scope}
    given = names_set(loop.target)
    done: set[str] = set()
    for line in one.lines:
        ends = names_set(*targets(line))
        seen = _read(source, line, scope)
        if isinstance(line, ast.AugAssign):
            seen |= ends
        one.carried += [x for x in assigned if x in seen - done and x not in one.carried]
        done |= ends
    if not one.carried:
        raise Refused("no pass builds on the one before", loop)
    if (given | set(one.kept)) & set(assigned):
        raise Refused("a pass sets what the loop sets itself", loop)
    for name in (*assigned.values(), *sets(loop.target)):
        text = name_of(name)
        if source.is_shared(name):
            raise Refused(f"{text} is shared with other functions", name)
        for use in source.uses(name):
            if use in mine:
                continue
            if source.function(use) is not source.function(loop):
                raise Refused(f"{text} is read by another function", use)
            # In a loop around it, what stands before it comes after it, too.
            is_later = source.line(use) > source.line(loop) or source.loops(loop)
            if is_later and text not in one.carried:
                raise Refused(f"{text} of the last pass is used after it", use)
    for text in (*one.over, one.length or "0"):
        if variables(ast.parse(f"({text})", mode="eval")) & set(assigned):
            raise Refused("a pass changes what the loop goes over", loop)


def _read(source: Source, line: ast.stmt, scope: Scope) -> set[str]:
    """Return the names of a function's own that a statement reads, not those of a lambda in it."""
    return {
        x.id
        for x in inside(line)
        if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load) and source.owner(x) is scope
    }
