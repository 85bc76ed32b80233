"""Lines of code that belong to a fault: the user's own, and only where something ties them to it.

Where the main thread was found says what a job does, and not what is wrong with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from whyidle.monitor.code.source import (
    called,
    calls,
    dotted,
    function_at,
    functions,
    last,
    nodes_at,
    text_of,
    tree_of,
    variables,
)
from whyidle.monitor.core.finding import Place, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.window import Window

MOST: Final = 3
# Methods of a data set or a loader, and what makes a batch of samples.
_LOADS: Final = re.compile(r"__(next|iter|getitem|getitems)__|.*collate.*")
# Such a loop does not fetch anything.
_COUNTS: Final = re.compile(r"(itertools\.)?(range|count)")
# What is called so is gone through from then on, once more for each time that it was.
_REGISTERS: Final = re.compile(r"register_\w+_hook|addHandler|add_param_group|add_callback")
_TAKES_BACK: Final = re.compile(r"remove|removeHandler|remove_callback|clear")
# What is kept of these is a number of Python's.
_NUMBERS: Final = re.compile(r"(.*\.)?(item|float|int|len|perf_counter|time|str|round)")


def own(places: Iterable[Place], most: int | None = MOST) -> tuple[Place, ...]:
    """Leave out the lines of frameworks, of installed packages, and of generated code."""
    return tuple(place for place in places if is_users(place.file))[:most]


def of_slice(window: Window, part: Slice) -> tuple[Place, ...]:
    """Return the user's lines that a trace gives to a slice; none where it gives none."""
    if window.trace is None:
        return ()
    places = window.trace.places(part)
    return own(Place(p["file"], p["line"] or 0, p["function"], p["share"]) for p in places)


def seen(job: Recorded, does: Callable[[SourceLine], bool]) -> tuple[Place, ...]:
    """Return the lines that the main thread was found at, of those that do something."""
    return own(Place.at(x) for x in job.lines if does(x))


def at(job: Recorded, places: Iterable[Place]) -> tuple[Place, ...]:
    """Return places as the main thread was found there; as they are where it was not."""
    places = tuple(places)
    wanted = {(place.file, place.line) for place in places}
    return seen(job, lambda line: (line.file, line.line) in wanted) or own(places)


def of_main(job: Recorded, places: Iterable[Place]) -> tuple[Place, ...]:
    """Return places with their shares of the main thread's time; none where it never was."""
    main = {(line.file, line.line): line.share for line in job.lines}
    return tuple(replace(place, share=main.get((place.file, place.line))) for place in places)


def asking(job: Recorded, pattern: re.Pattern[str], most: int | None = MOST) -> tuple[Place, ...]:
    """Return the lines that ask for something, in the files that the main thread was found in."""
    files = dict.fromkeys(line.file for line in job.lines)
    found = (
        Place(file, number, function_at(file, number))
        for file in files
        for number, text in enumerate((text_of(file) or "").splitlines(), 1)
        if pattern.search(text.partition("#")[0])
    )
    return own(found, most)


def making(job: Recorded, kinds: Iterable[str]) -> tuple[Place, ...]:
    """Return the lines that make something of these classes."""
    return asking(job, re.compile("|".join(rf"\b{re.escape(kind)}\(" for kind in kinds)))


def fetches(line: SourceLine) -> bool:
    """Tell whether a line is a loader's, asks one for a batch, or goes through one."""
    if _LOADS.fullmatch(line.function) or "next" in called(line.file, line.line):
        return True
    tree = tree_of(line.file)
    heads = (node for node in ast.walk(tree) if isinstance(node, ast.For)) if tree else ()
    return any(_COUNTS.fullmatch(_head(node)) is None for node in heads if node.lineno == line.line)


def _head(loop: ast.For) -> str:
    return dotted(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""


def kept(job: Recorded) -> tuple[Place, ...]:
    """Return the lines that add to what was there before a loop, where the main thread is in it."""
    found: dict[Place, None] = {}
    for file, name in dict.fromkeys((line.file, line.function) for line in job.lines):
        for function in functions(file, name):
            found |= dict.fromkeys(Place(file, number, name) for number in _adding(function))
    return own(found)


def registering(job: Recorded) -> tuple[Place, ...]:
    """Return the lines at which the main thread was found while it registered what stays."""
    return own(Place(x.file, x.line, x.function) for x in job.lines if _registers(x))


def _registers(line: SourceLine) -> bool:
    if not any(_REGISTERS.fullmatch(last(call)) for call in calls(line.file, line.line)):
        return False
    # What runs more than once: a function, or the whole of a loop that is in none.
    around = nodes_at(line.file, line.line)
    defined = [x for x in around if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)]
    loops = [x for x in around if isinstance(x, ast.For | ast.While)]
    inside = (x for runs in (defined[-1:] or loops[:1]) for x in ast.walk(runs))
    taken = (x for x in inside if isinstance(x, ast.Call) and _TAKES_BACK.fullmatch(last(x)))
    return bool(defined or loops) and next(taken, None) is None


def _adding(function: ast.AST) -> Iterator[int]:
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.While):
            made = {name for each in loop.body for name in _set(each)}
            for node in (n for each in loop.body for n in ast.walk(each)):
                if _keeps(node, made):
                    yield node.lineno  # type: ignore[attr-defined]


def _set(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement makes anew: a list of this pass keeps nothing."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id not in variables(node.value):
                    yield target.id


def _keeps(node: ast.AST, made: set[str]) -> bool:
    """Tell whether something of a pass, and more than a number, is added to what was there."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        to = dotted(node.func.value).partition(".")[0]
        return node.func.attr in {"append", "extend"} and to not in made and _is_much(node.args)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return isinstance(node.op, ast.Add) and _is_much([node.value])
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        is_sum = isinstance(node.value.op, ast.Add)
        return is_sum and bool(names & variables(node.value)) and _is_much([node.value])
    return False


def _is_much(values: Iterable[ast.expr]) -> bool:
    """Tell whether it may be an array, by what it is made with."""
    nodes = [node for value in values for node in ast.walk(value)]
    numbers = any(
        isinstance(node, ast.Call) and _NUMBERS.fullmatch(last(node)) is not None for node in nodes
    )
    return any(isinstance(node, ast.Name) for node in nodes) and not numbers
