"""One pass of a loop, as ``jax.lax.scan`` would take it: what it is given, hands on and leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import Scope

from whyidle.monitor.fixes._codemod import Change, Refused
from whyidle.monitor.fixes._loops import sets, targets
from whyidle.monitor.fixes._over import check_array, counted, length_of, zipped
from whyidle.monitor.fixes._pieces import inside, is_whole, names_in
from whyidle.monitor.fixes._source import Source


@dataclass(slots=True)
class Pass:
    """One pass of a loop: what it is given, what it hands on, and what of it is kept."""

    loop: cst.For
    # What is gone over, and the name of one pass's part of each.
    over: dict[str, str] = field(default_factory=dict)
    # How often, where no array says it alone.
    length: str | None = None
    # Pieces that are a part of an array: ``xs[t]``.
    picked: dict[cst.CSTNode, str] = field(default_factory=dict)
    carried: list[str] = field(default_factory=list)
    # Lists that results are appended to, with the call.
    kept: dict[str, cst.Call] = field(default_factory=dict)
    # The first pass gives what is carried its shape.
    is_peeled: bool = False

    @property
    def lines(self) -> list[cst.SimpleStatementLine]:
        """Its statements."""
        return [cst.ensure_type(x, cst.SimpleStatementLine) for x in self.loop.body.body]


def read(source: Source, loop: cst.For, found: Change) -> Pass:
    """Return what a pass is; refuse what no function could be."""
    one = Pass(loop)
    _check_form(source, loop)
    _appended(source, one)
    _gone_over(source, one, found)
    _carried(source, one)
    return one


def _check_form(source: Source, loop: cst.For) -> None:
    where = source.line(loop)
    if loop.orelse is not None or loop.asynchronous is not None:
        raise Refused("the loop has an else, or waits", where)
    if not isinstance(loop.body, cst.IndentedBlock):
        raise Refused("a pass stands in the line of its loop", where)
    for line in loop.body.body:
        if not isinstance(line, cst.SimpleStatementLine):
            raise Refused("the loop decides, or loops again, within a pass", source.line(line))
        for small in line.body:
            if isinstance(small, cst.Break | cst.Continue | cst.Return):
                raise Refused("a pass may leave the loop", source.line(line))


def _appended(source: Source, one: Pass) -> None:
    """Find the lists that results of each pass are appended to."""
    for line in one.lines:
        for small in line.body:
            call = small.value if isinstance(small, cst.Expr) else None
            if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
                continue
            of = call.func.value
            if call.func.attr.value != "append" or not isinstance(of, cst.Name):
                continue
            if len(call.args) != 1 or of.value in one.kept or len(line.body) > 1:
                raise Refused("several results of a pass go into one list", source.line(line))
            one.kept[of.value] = call


# What is gone over -------------------------------------------------------------------------------
def _gone_over(source: Source, one: Pass, found: Change) -> None:
    """Find the arrays that each pass gets a part of."""
    loop, where = one.loop, source.line(one.loop)
    number = counted(source, loop.iter)
    if number is not None and isinstance(loop.target, cst.Name):
        _picked(source, one, loop.target, number, found)
        return
    over = zipped(source, loop.iter)
    names: list[cst.BaseExpression] = [loop.target]
    if over != [loop.iter]:
        elements = loop.target.elements if isinstance(loop.target, cst.Tuple) else ()
        names = [x.value for x in elements]
    if len(names) != len(over) or not all(isinstance(x, cst.Name) for x in names):
        raise Refused("what the loop goes over is not certain", where)
    for array, name in zip(over, names, strict=True):
        check_array(source, array)
        one.over[source.code(array)] = source.code(name)
    if len(one.over) != len(over):
        raise Refused("the loop goes over one array twice", where)


def _picked(
    source: Source, one: Pass, number: cst.Name, count: cst.BaseExpression, found: Change
) -> None:
    """Find what is picked by the number of the pass: ``xs[t]``, ``xs[:, t]``."""
    places: dict[tuple[str, int], str] = {}
    for node in inside(one.loop.body):
        if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Name):
            continue
        axis = _axis(node, number.value)
        if axis is None:
            continue
        if axis == 0:
            check_array(source, node.value)
        array = node.value.value
        if any(name == array and other != axis for name, other in places):
            raise Refused(f"{array} is gone over along two axes", source.line(node))
        name = source.fresh(f"one_{array}", f"part_of_{array}")
        places[array, axis] = one.picked[node] = name
    mine = {x for node in one.picked for x in inside(node)}
    for node in inside(one.loop.body):
        if isinstance(node, cst.Name) and node.value == number.value and node not in mine:
            why = "the number of the pass is used for more than to pick a part of an array"
            raise Refused(why, source.line(node))
    whole, written = length_of(source, count), source.code(count)
    for (array, axis), name in places.items():
        text = array
        if axis:
            move = found.spelling(source, "jax.numpy.moveaxis", one.loop)
            text = f"{move}({array}, {axis}, 0)"
        one.over[text if whole == (array, axis) else f"{text}[:{written}]"] = name
    if whole not in places:
        one.length = written


def _axis(node: cst.Subscript, number: str) -> int | None:
    """Return the axis that the number of a pass picks from."""
    slices = [x.slice for x in node.slice]
    found = [
        place
        for place, x in enumerate(slices)
        if isinstance(x, cst.Index) and isinstance(x.value, cst.Name) and x.value.value == number
    ]
    others = [x for place, x in enumerate(slices) if place not in found]
    return found[0] if len(found) == 1 and all(map(is_whole, others)) else None


# What is carried ---------------------------------------------------------------------------------
def _carried(source: Source, one: Pass) -> None:
    """Find what a pass leaves to the next; refuse what of it is used otherwise."""
    body, where = one.loop.body, source.line(one.loop)
    smalls = [x for line in one.lines for x in line.body]
    mine = set(inside(one.loop))
    scope = source.scope(one.loop)
    assigned = {x.value: x for x in sets(body) if source.scope(x) is scope}
    given = {x.value for x in targets(one.loop.target)}
    done: set[str] = set()
    for small in smalls:
        ends = _targets(small)
        seen = {x.value for x in names_in(small) if x not in ends and _is_of(source, x, scope)}
        if isinstance(small, cst.AugAssign):
            seen |= {x.value for x in ends}
        one.carried += [x for x in assigned if x in seen - done and x not in one.carried]
        done |= {x.value for x in ends}
    if not one.carried:
        raise Refused("no pass builds on the one before", where)
    if (given | set(one.kept)) & set(assigned):
        raise Refused("a pass sets what the loop sets itself", where)
    for name in (*assigned.values(), *targets(one.loop.target)):
        if source.is_shared(name):
            raise Refused(f"{name.value} is shared with other functions", source.line(name))
        for use in source.uses(name):
            if use in mine:
                continue
            if source.function(use) is not source.function(one.loop):
                raise Refused(f"{name.value} is read by another function", source.line(use))
            # In a loop around it, what stands before it comes after it, too.
            is_later = source.line(use) > where or source.loops(one.loop)
            if is_later and name.value not in one.carried:
                raise Refused(f"{name.value} of the last pass is used after it", source.line(use))
    for text in (*one.over, one.length or "0"):
        if {x.value for x in names_in(cst.parse_expression(text))} & set(assigned):
            raise Refused("a pass changes what the loop goes over", where)


def _is_of(source: Source, name: cst.Name, scope: Scope) -> bool:
    """Tell whether a name is one of a function's own, not of a lambda's in it."""
    try:
        return any(x.scope is scope for x in source.scope(name)[name.value])
    except KeyError:
        return False


def _targets(small: cst.BaseSmallStatement) -> list[cst.Name]:
    if isinstance(small, cst.Assign):
        return [x for each in small.targets for x in targets(each.target)]
    if isinstance(small, cst.AugAssign | cst.AnnAssign):
        return list(targets(small.target))
    return []
