"""A loop of Python within a compiled function becomes ``jax.lax.scan``: one pass is compiled.

Proved first: that a pass does nothing but compute, that it goes over arrays, that what it leaves
to the next is of one shape and type from the second pass on, and that of its results nothing is
used but what is handed on or stacked. Where the first pass may change a shape, by broadcasting, it
stands before the scan.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import argument, inside, names_set
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted, first_of
from whyidle.monitor.fixes._like import CARRIED, Like, Names, Several, Value
from whyidle.monitor.fixes._pass import Pass, read
from whyidle.monitor.fixes._pure import Purity
from whyidle.monitor.fixes._types import Types


def change(source: Source, wanted: Wanted) -> Change:
    """Scan the first such loop that was found."""
    loops = [x for x in source.everything if isinstance(x, ast.For) and x.lineno in wanted.lines]
    some = [loop for loop in loops if not _is_of_host(source, loop)]
    return first_of(some, lambda loop: _scanned(source, loop))


def _is_of_host(source: Source, loop: ast.For) -> bool:
    """Tell whether a pass of a loop calls what is compiled: such a loop is in no program."""
    calls = [x for x in inside(*loop.body) if isinstance(x, ast.Call)]
    known = [x for call in calls if (x := source.defined(call.func)) is not None]
    return source.function(loop) is None or any(map(source.is_compiled, known))


def _scanned(source: Source, loop: ast.For) -> Change:
    found = Change(source)
    one = read(source, loop, found)
    Purity(source).check_code(one.lines, set(one.kept))
    # Refuse where what is carried may have another shape or type after each pass.
    types = Types(source, one.picked)
    before: Names = {x: Like.of(CARRIED.format(x)) for x in one.carried}
    first = _after(one, types, before)
    second = _after(one, types, first)
    for name in one.carried:
        if not types.same(first[name], second[name]):
            raise Refused(f"{name} may have another shape or type after each pass", one.loop)
        if not _is_array(first[name]):
            raise Refused(f"{name} may be a number of Python's, not an array", one.loop)
        one.is_peeled |= not types.same(before[name], first[name])
    for name, call in one.kept.items():
        value = types.of(call.args[0], second)
        if not isinstance(value, Like) or not value.is_array:
            raise Refused(f"what {name} gets may be no array", call)
    _stacks(source, one, found)
    _write(source, one, found)
    found.notes.append("Compiled once, not for each pass: last digits may differ.")
    return found


def _after(one: Pass, types: Types, before: Names) -> Names:
    """Return what names are like after a pass."""
    names = before | {x: Like.of(x).array for x in one.over.values()}
    for line in one.lines:
        types.run(line, names)
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
        of = next(x for x in inside(call.func) if isinstance(x, ast.Name))
        begin = _begins_empty(source, one, of)
        if names_set(begin) <= set(one.kept):
            found.remove(begin)
        uses = [x for x in source.uses(of) if x is not of]
        stacks = [x for use in uses if (x := _stack(source, use)) is not None]
        if len(stacks) != len(uses) or not stacks:
            where = next((x for x in uses if _stack(source, x) is None), of)
            raise Refused(f"the results in {name} are not only stacked", where)
        for stack in stacks:
            if one.loop in source.around(stack):
                raise Refused(f"a pass reads {name}", stack)
            axis = argument(stack, "axis", 1)
            text = name
            if axis is not None and source.code(axis) != "0":
                move = found.spelling("jax.numpy.moveaxis", stack)
                text = f"{move}({name}, 0, {source.code(axis)})"
            found.replace(stack, text)


def _begins_empty(source: Source, one: Pass, name: ast.Name) -> ast.stmt:
    """Return the statement that makes an empty list before the loop."""
    places, made = source.assigned(name), source.value(name)
    if len(places) != 1 or not isinstance(made, ast.List) or made.elts:
        raise Refused(f"{name.id} is no list that is empty before the loop", name)
    statement, block = source.statement(places[0]), source.block(one.loop)
    if statement not in block or block.index(statement) > block.index(one.loop):
        raise Refused(f"{name.id} is filled by more than this loop", name)
    if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
        raise Refused(f"{name.id} has another name", name)
    return statement


def _stack(source: Source, use: ast.AST) -> ast.Call | None:
    """Return ``jnp.stack(kept)``."""
    call = source.parent(use)
    if not isinstance(call, ast.Call) or use not in call.args[:1]:
        return None
    axis, given = argument(call, "axis", 1), len(call.args) + len(call.keywords)
    is_number = axis is not None and source.code(axis).lstrip("-").isdigit()
    is_stack = source.means(call.func, "jax.numpy.stack")
    return call if is_stack and given == (1 if axis is None else 1 + is_number) else None


# Written -----------------------------------------------------------------------------------------
def _write(source: Source, one: Pass, found: Change) -> None:
    for node, part in one.picked.items():
        found.replace(node, part)
    results = [_result(source, one, found, kept) for kept in one.kept]
    state, carried = _names(source, one.carried, "carried")
    part, parts = _names(source, list(one.over.values()), "parts")
    name = source.fresh("one_pass", "each_pass")
    pairs = ((carried, state), (parts, part))
    before = [f"{left[1:-1]} = {right}" for left, right in pairs if left != right]
    after = ["", *_calls(source, one, found, name)]
    if one.is_peeled:
        after.insert(1, "# The first pass gives what is carried its shape and type.")
    found.above(one.loop, "")
    found.head(one.loop, f"def {name}({state}, {part}):")
    found.above(one.lines[0], *before)
    found.after(one.lines[-1], f"return {carried}, {_several(results)}")
    found.after(one.loop, *after)


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
    statement, value = source.statement(call), call.args[0]
    later = one.lines[one.lines.index(statement) + 1 :]
    if isinstance(value, ast.Name) and value.id not in names_set(*later):
        found.remove(statement)
        return value.id
    name = source.fresh(f"one_of_{kept}")
    found.instead(statement, value, f"{name} = ")
    return name


def _calls(source: Source, one: Pass, found: Change, name: str) -> list[str]:
    """Return the lines that run the passes."""
    scan = found.spelling("jax.lax.scan", one.loop)
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
        join = found.spelling("jax.numpy.concatenate", one.loop)
        lines.append(f"{array} = {join}([{first}[None], {array}])")
    return lines


def _less_one(length: str) -> str:
    return str(int(length) - 1) if length.isdigit() else f"{length} - 1"


codemod = Codemod(title="One pass of the loop is compiled, not each", rules=("unrolled_loop",))
