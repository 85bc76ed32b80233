"""Python's collector leaves alone what is alive before the loop, and is not called in each step."""

from __future__ import annotations

import ast

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.source import Function
from whyidle.monitor.code.trains import Loop
from whyidle.monitor.fixes._change import Change, NotHere, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted
from whyidle.monitor.fixes._loops import EVERY, counter, guards, of_loop


def change(source: Source, wanted: Wanted) -> Change:
    """Freeze before the loop, and thin out the calls in it."""
    found = Change(source)
    loops: list[Loop] = []
    for call in source.calls_of("gc.collect"):
        statement = source.statement(call)
        loop = source.training_loop(statement)
        if loop is None or any(guards(source, statement, loop)):
            continue
        if not isinstance(statement, ast.Expr) or statement.value is not call:
            raise Refused("what gc.collect() returns is used", call)
        if of_loop(source, loop, statement) is not statement:
            raise Refused("gc.collect() stands inside another statement", call)
        found.wrap([statement], f"if {counter(source, loop, found)} % {EVERY} == 0")
        loops.append(loop)
    if {"weakref", "__del__", "tracemalloc"} & source.words:
        raise Refused("the program relies on when objects end (weakref or __del__)")
    loop = _loop(source, wanted, loops)
    if source.calls_of("gc.freeze", "gc.disable"):
        if not found.edits:
            raise Refused("the program steers the collector already")
        return found
    name = found.spelling("gc", loop)
    why = "# the collector never looks again at what is alive now"
    found.before(loop, f"{name}.collect()", f"{name}.freeze()  {why}")
    found.notes.append("The collector never looks again at what is alive before the loop.")
    return found


def _loop(source: Source, wanted: Wanted, known: list[Loop]) -> Loop:
    """Return the loop before which the program is set up."""
    training = [x for x in source.everything if isinstance(x, Loop) and source.trains(x)]
    here = [x for x in training if wanted.at(source, x)]
    inner = known or here or training
    outer = {([loop, *source.loops(loop)])[-1] for loop in inner}
    if not outer:
        raise NotHere
    if len(outer) > 1:
        raise Refused("several loops train, one after the other", inner[0])
    loop = outer.pop()
    function = source.function(loop)
    if isinstance(function, Function) and any(map(source.loops, source.uses(function))):
        raise Refused("its function is called in a loop: it would freeze again and again", loop)
    return loop


codemod = Codemod(
    title="The collector leaves alone what is alive before the loop", rules=("gc_pauses",)
)
