"""A loop of Python within a compiled function becomes ``jax.lax.scan``: one pass is compiled.

Proved first: that a pass does nothing but compute, that it goes over arrays, that what it leaves
to the next is of one shape and type from the second pass on, and that of its results nothing is
used but what is handed on or stacked. Where the first pass may change a shape, by broadcasting, it
stands before the scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._like import CARRIED, Like, Names, Several, Value
from whyidle.monitor.fixes._loops import sets
from whyidle.monitor.fixes._pass import Pass, read
from whyidle.monitor.fixes._pieces import argument, inside
from whyidle.monitor.fixes._pure import Purity
from whyidle.monitor.fixes._source import Source
from whyidle.monitor.fixes._types import Types

_WHY_FIRST: Final = "# The first pass gives what is carried its shape and type."


def change(source: Source, wanted: Wanted) -> Change:
    """Scan the first such loop that was found."""
    why: Refused | None = None
    for loop in source.everything:
        if not isinstance(loop, cst.For) or source.line(loop) not in wanted.lines:
            continue
        if _is_of_host(source, loop):
            continue
        try:
            return _scanned(source, loop)
        except Refused as refused:
            why = why or refused
    raise why or NotHere


def _is_of_host(source: Source, loop: cst.For) -> bool:
    """Tell whether a pass of a loop calls what is compiled: such a loop is in no program."""
    if source.function(loop) is None:
        return True
    for node in inside(loop.body):
        if not isinstance(node, cst.Call):
            continue
        known = source.definition(node.func)
        marks = known.decorators if isinstance(known, cst.FunctionDef) else ()
        if any("jit" in source.code(mark) for mark in marks):
            return True
    return False


def _scanned(source: Source, loop: cst.For) -> Change:
    found = Change()
    one = read(source, loop, found)
    purity = Purity(source)
    for line in one.lines:
        purity.check_code(line, set(one.kept))
    _check_types(source, one)
    _stacks(source, one, found)
    _write(source, one, found)
    found.notes.append("Compiled once, not for each pass: last digits may differ.")
    return found


def _check_types(source: Source, one: Pass) -> None:
    """Refuse where what is carried may have another shape or type after each pass."""
    types, where = Types(source, one.picked), source.line(one.loop)
    before: Names = {x: Like.of(CARRIED.format(x)) for x in one.carried}
    first = _after(one, types, before)
    second = _after(one, types, first)
    for name in one.carried:
        if not types.same(first[name], second[name]):
            raise Refused(f"{name} may have another shape or type after each pass", where)
        if not _is_array(first[name]):
            raise Refused(f"{name} may be a number of Python's, not an array", where)
        one.is_peeled |= not types.same(before[name], first[name])
    for name, call in one.kept.items():
        value = types.of(call.args[0].value, second)
        if not isinstance(value, Like) or not value.is_array:
            raise Refused(f"what {name} gets may be no array", source.line(call))


def _after(one: Pass, types: Types, before: Names) -> Names:
    """Return what names are like after a pass."""
    names = before | {x: Like.of(x).array for x in one.over.values()}
    for small in (x for line in one.lines for x in line.body):
        types.run(small, names)
    return names


def _is_array(value: Value) -> bool:
    if isinstance(value, Like):
        return value.is_array
    if isinstance(value, Several):
        return False
    parts = list(value.values() if isinstance(value, Mapping) else value)
    return bool(parts) and all(map(_is_array, parts))


# What is kept ------------------------------------------------------------------------------------
def _stacks(source: Source, one: Pass, found: Change) -> None:
    """Let the array of all results stand where a list of them was stacked."""
    for name, call in one.kept.items():
        of = cst.ensure_type(cst.ensure_type(call.func, cst.Attribute).value, cst.Name)
        begin = _begins_empty(source, one, of)
        if {x.value for x in sets(begin)} <= set(one.kept):
            found.edits[begin] = lambda _: cst.RemoveFromParent()
        uses = [x for x in source.uses(of) if x is not of]
        stacks = [x for use in uses if (x := _stack(source, use)) is not None]
        if len(stacks) != len(uses) or not stacks:
            where = source.line(next((x for x in uses if _stack(source, x) is None), of))
            raise Refused(f"the results in {name} are not only stacked", where)
        for stack in stacks:
            if one.loop in source.around(stack):
                raise Refused(f"a pass reads {name}", source.line(stack))
            axis = argument(stack, "axis", 1)
            text = name
            if axis is not None and source.code(axis.value) != "0":
                move = found.spelling(source, "jax.numpy.moveaxis", stack)
                text = f"{move}({name}, 0, {source.code(axis.value)})"
            found.replace(stack, cst.parse_expression(text))


def _begins_empty(source: Source, one: Pass, name: cst.Name) -> cst.CSTNode:
    """Return the statement that makes an empty list before the loop."""
    places, made = source.assigned(name), source.value(name)
    where = source.line(name)
    if len(places) != 1 or not isinstance(made, cst.List) or made.elements:
        raise Refused(f"{name.value} is no list that is empty before the loop", where)
    statement, block = source.statement(places[0]), source.siblings(one.loop)
    if statement not in block or block.index(statement) > block.index(one.loop):
        raise Refused(f"{name.value} is filled by more than this loop", where)
    if any(isinstance(x, cst.Assign) and len(x.targets) > 1 for x in inside(statement)):
        raise Refused(f"{name.value} has another name", where)
    return statement


def _stack(source: Source, use: cst.CSTNode) -> cst.Call | None:
    """Return ``jnp.stack(kept)``."""
    arg = source.parent(use)
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or call.args[0] is not arg or arg.star or arg.keyword:
        return None
    if not source.means(call.func, "jax.numpy.stack"):
        return None
    axis = argument(call, "axis", 1)
    if axis is None:
        return call if len(call.args) == 1 else None
    is_number = source.code(axis.value).lstrip("-").isdigit()
    return call if is_number and len(call.args) == 2 else None


# Written -----------------------------------------------------------------------------------------
def _write(source: Source, one: Pass, found: Change) -> None:
    for node, part in one.picked.items():
        found.replace(node, cst.Name(part))
    results = [_result(source, one, found, kept) for kept in one.kept]
    state, carried = _names(source, one.carried, "carried")
    part, parts = _names(source, list(one.over.values()), "parts")
    name = source.fresh("one_pass", "each_pass")
    pairs = ((carried, state), (parts, part))
    before = [f"{left[1:-1]} = {right}" for left, right in pairs if left != right]
    returned = f"return {carried}, {_several(results)}"
    after = _calls(source, one, found, name)

    def edit(old: Any) -> Any:
        lines = [*map(cst.parse_statement, before), *old.body.body, cst.parse_statement(returned)]
        params = cst.Parameters([cst.Param(cst.Name(state)), cst.Param(cst.Name(part))])
        body = old.body.with_changes(body=lines)
        lines_before = [cst.EmptyLine(indent=False), *old.leading_lines]
        function = cst.FunctionDef(cst.Name(name), params, body, leading_lines=lines_before)
        first, *rest = map(cst.parse_statement, after)
        above = [cst.EmptyLine(indent=False)]
        if one.is_peeled:
            above.append(cst.EmptyLine(comment=cst.Comment(_WHY_FIRST)))
        return cst.FlattenSentinel([function, first.with_changes(leading_lines=above), *rest])

    found.edits[one.loop] = edit


def _names(source: Source, names: list[str], together: str) -> tuple[str, str]:
    """Return the parameter for these names, and how it is taken apart."""
    if not names:
        return "_", "_"
    return (names[0] if len(names) == 1 else source.fresh(together)), _several(names)


def _several(names: list[str]) -> str:
    return f"({', '.join(names)})" if len(names) > 1 else names[0] if names else "None"


def _result(source: Source, one: Pass, found: Change, kept: str) -> str:
    """Return the name of what a pass appended to a list; the call goes."""
    call = one.kept[kept]
    statement, value = source.statement(call), call.args[0].value
    if isinstance(value, cst.Name) and value not in one.picked:
        later = [x for x in one.lines if source.line(x) > source.line(statement)]
        if value.value not in {x.value for line in later for x in sets(line)}:
            found.edits[statement] = lambda _: cst.RemoveFromParent()
            return value.value
    name = source.fresh(f"one_of_{kept}")

    def assigned(old: Any) -> Any:
        target = cst.AssignTarget(cst.Name(name))
        return old.with_changes(body=[cst.Assign([target], old.body[0].value.args[0].value)])

    found.edits[statement] = assigned
    return name


def _calls(source: Source, one: Pass, found: Change, name: str) -> list[str]:
    """Return the lines that run the passes."""
    scan = found.spelling(source, "jax.lax.scan", one.loop)
    state, left = _several(one.carried), ", ".join(one.carried)
    left = left if len(one.carried) == 1 else f"({left})"
    kept = _several(list(one.kept)) if one.kept else "_"
    if not one.is_peeled:
        length = f", length={one.length}" if one.length else ""
        return [f"{left}, {kept} = {scan}({name}, {state}, {_several(list(one.over))}{length})"]
    lines, over = [], []
    for array, part in one.over.items():
        whole = array if array.isidentifier() else source.fresh(f"all_{part.removeprefix('one_')}")
        lines += [] if whole == array else [f"{whole} = {array}"]
        over.append(whole)
    firsts = [source.fresh(f"first_of_{x}") for x in one.kept]
    start = _several([f"{x}[0]" for x in over])
    lines.append(f"{left}, {_several(firsts) if firsts else '_'} = {name}({state}, {start})")
    length = f", length={_less_one(one.length)}" if one.length else ""
    rest = _several([f"{x}[1:]" for x in over])
    lines.append(f"{left}, {kept} = {scan}({name}, {state}, {rest}{length})")
    for first, array in zip(firsts, one.kept, strict=True):
        join = found.spelling(source, "jax.numpy.concatenate", one.loop)
        lines.append(f"{array} = {join}([{first}[None], {array}])")
    return lines


def _less_one(length: str) -> str:
    return str(int(length) - 1) if length.isdigit() else f"{length} - 1"


codemod = Codemod(
    title="One pass of the loop is compiled, not each",
    rules=("unrolled_loop",),
    change=change,
)
