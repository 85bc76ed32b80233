"""Python's collector leaves alone what is alive before the loop, and is not called in each step."""

from __future__ import annotations

from typing import Any, Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import counter, guards, of_loop, training_loop, trains, wrapped
from whyidle.monitor.fixes._source import Loop, Source, Statement

# As the rule's own fix has it.
EVERY: Final = 100


def change(source: Source, wanted: Wanted) -> Change:
    """Freeze before the loop, and thin out the calls in it."""
    found = Change()
    loops: list[Loop] = []
    for call in source.calls_of("gc.collect"):
        statement = source.statement(call)
        loop = training_loop(source, statement)
        if loop is None or any(guards(source, statement, loop)):
            continue
        if not _stands_alone(statement, call):
            raise Refused("what gc.collect() returns is used", source.line(call))
        own = of_loop(source, loop, statement)
        if own is not statement:
            raise Refused("gc.collect() stands inside another statement", source.line(call))
        wrapped(source, found, [own], f"{counter(source, loop, found)} % {EVERY} == 0")
        loops.append(loop)
    if any({"weakref", "__del__", "tracemalloc"} & source.words):
        raise Refused("the program relies on when objects end (weakref or __del__)")
    loop = _loop(source, wanted, loops)
    if source.calls_of("gc.freeze", "gc.disable"):
        if not found.edits:
            raise Refused("the program steers the collector already")
        return found
    _freeze(source, found, loop)
    found.notes.append("The collector never looks again at what is alive before the loop.")
    return found


def _stands_alone(statement: Statement, call: cst.Call) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and len(statement.body) == 1
        and isinstance(statement.body[0], cst.Expr)
        and statement.body[0].value is call
    )


def _loop(source: Source, wanted: Wanted, known: list[Loop]) -> Loop:
    """Return the loop before which the program is set up."""
    inner = known or [
        node for node in source.everything
        if isinstance(node, cst.For | cst.While) and trains(source, node)
        and any(source.covers(node, line) for line in wanted.lines)
    ]  # fmt: skip
    if not inner:
        inner = [
            x for x in source.everything if isinstance(x, cst.For | cst.While) and trains(source, x)
        ]
    outer = {([loop, *source.loops(loop)])[-1] for loop in inner}
    if not outer:
        raise NotHere
    if len(outer) > 1:
        raise Refused("several loops train, one after the other", source.line(inner[0]))
    loop = next(iter(outer))
    function = source.function(loop)
    if isinstance(function, cst.FunctionDef) and any(
        source.loops(use) for use in source.uses(function.name)
    ):
        raise Refused("its function is called in a loop: it would freeze again and again",
                      source.line(loop))  # fmt: skip
    return loop


def _freeze(source: Source, found: Change, loop: Loop) -> None:
    name = found.spelling(source, "gc", loop)
    lines = (
        cst.parse_statement(f"{name}.collect()"),
        cst.parse_statement(
            f"{name}.freeze()  # the collector never looks again at what is alive now"
        ),
    )
    inner = found.edits.get(loop)

    def edit(old: Any) -> Any:
        new = old if inner is None else inner(old)
        first = lines[0].with_changes(leading_lines=new.leading_lines)
        return cst.FlattenSentinel([first, lines[1], new.with_changes(leading_lines=())])

    found.edits[loop] = edit


codemod = Codemod(
    title="The collector leaves alone what is alive before the loop",
    rules=("gc_pauses",),
    change=change,
)
