"""Loops of Python in the user's own source: over the samples of a batch, or in a compiled function.

A loop whose passes build on one another (over time, over layers, over steps of training) is not
over samples; a sum or a list that grows does not make the passes build on one another. Such loops
in a compiled function are unrolled there.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.environments import step_line
from whyidle.monitor.code.growing import grows
from whyidle.monitor.code.source import (
    Function,
    arguments,
    callee,
    calls,
    dotted,
    functions_from,
    last,
    nodes_at,
    tree_of,
    variables,
    written,
)
from whyidle.monitor.code.trains import is_training, trains_at
from whyidle.monitor.core.finding import Place, SourceLine
from whyidle.monitor.libraries.frames import is_call
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import CodeLine, summed

Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp
Spot = tuple[str, int, int]
Loop = ast.For | ast.While | Comprehension

# What only gathers results.
_GATHERS: Final = re.compile(
    r"(.*\.)?(add|sum|append|extend|stack|tree\.map|tree_map|_?accumulate)"
)
# What renews a key for random numbers: the passes do not build on what is drawn.
_DRAWS: Final = re.compile(r"(.*\.)?(split|fold_in)")
# Nothing is computed by these.
_IS_PLAIN: Final = re.compile(
    r"(.*\.)?(range|len|enumerate|zip|print|float|int|str|list|tuple|item|time|perf_counter|split"
    r"|dict|set|get|setdefault|keys|values|items|pop|ord|chr|isinstance|sorted|lower|upper|strip"
    r"|join|startswith|endswith|format)"
)
# What gives pieces of a text.
_TEXTS: Final = re.compile(r"(.*\.)?(findall|finditer|split|splitlines|readlines|lower|strip)")
# A batch comes of such names.
_BATCHES: Final = re.compile(r".*(loader|batches|epochs?|dataset|steps|layers|blocks)\b.*")
# These read what is there: a memory, a text, or a file that something else opened.
_OF_OPEN: Final = frozenset({"read", "readinto", "readline", "loads", "recv", "recv_into"})
_WRITES: Final = frozenset({"w", "wb", "a", "ab", "x", "xb"})
# What a model consists of, and no batch: an optimizer or a norm goes through them.
_OF_A_MODEL: Final = (
    "_?(named_)?(parameters|modules|children|buffers)|params|grads|gradients|weights"
    "|param_groups|state_dict"
)
_MODEL: Final = re.compile(f"{_OF_A_MODEL}|model")
# As what is gone through itself is called: these, or leaves of a tree.
_PARTS: Final = re.compile(f"{_OF_A_MODEL}|(tree_)?(leaves|flatten)(_with_path)?")
# Where the device, or autograd, does what such a loop has asked for.
_FOLLOWS: Final = re.compile(
    r"(.*\.)?(backward|grad|block_until_ready|item|float|asarray|device_get)"
)

# The pass back through what a loop has made takes about twice as long as the loop: what follows a
# loop that takes next to nothing follows from something else.
MOST_FOLLOWING: Final = 3.0
# Fewer passes, where the source itself says how many, go over axes or views, and not over samples;
# the catalogue's mark for a motif that repeats within a step.
LEAST_TIMES: Final = 8


class Way(Enum):
    """What a pass may do with its part: give the whole to a call, call it, take a piece out."""

    WHOLE = auto()
    METHODS = auto()
    PIECES = auto()


@dataclass(frozen=True, slots=True)
class Looping:
    """The share of the main thread's time on such loops, with what they make wait."""

    share: float
    where: tuple[Place, ...]
    # Without what they make wait.
    inside: float = 0.0
    # What a pass of the one with the most time calls, by the last part of its name.
    calls: frozenset[str] = frozenset()


def over_samples(
    lines: Iterable[SourceLine],
    chains: Iterable[tuple[tuple[CodeLine, ...], float]] = (),
    *,
    fits: Callable[[set[str]], bool] | None = None,
    way: Way = Way.WHOLE,
) -> Looping | None:
    """Return the time on such loops, at any depth of calls; ``None``: no source could be read.

    ``chains`` are the user's lines from the innermost out, with shares; without them ``lines``.
    With ``fits`` those of whose calls it says so, by the last parts of their names; a pass that
    takes its part by a place in something calls ``__getitem__``. By ``Way.METHODS`` these may be
    methods of what the loop goes through: rows of a batch, but as well a list of metrics.
    """
    stacks = list(chains) or [((CodeLine(x.file, x.line, x.function),), x.share) for x in lines]
    stacks = [(frames, share) for frames, share in stacks if frames]
    if not any(tree_of(frames[0].file) for frames, _ in stacks):
        return None
    found = [(frames, share, _sample_loop(frames, way)) for frames, share in stacks]
    training = {spot for frames, _, _ in found for spot in _trained(frames)}
    inside = [(f, share, at) for f, share, at in found if at and _spot(*at) not in training]
    called: dict[Spot, set[str]] = {}
    for frames, _, (line, loop) in inside:
        further = (call for f in frames[: frames.index(line)] for call in calls(f.file, f.line))
        names_called = {last(call) for call in [*_calls_in(loop), *further]}
        taken = {"__getitem__"} if _takes_by_place(loop) else set[str]()
        called.setdefault(_spot(line, loop), set()).update(names_called | taken)
    inside = [each for each in inside if fits is None or fits(called[_spot(*each[2])])]
    if not inside:
        return Looping(0.0, ())
    # Who runs such a loop, and what each pass calls: elsewhere, too, it is the same work.
    nodes = (node for _, _, (line, _) in inside for node in nodes_at(line.file, line.line))
    names = {node.name for node in nodes if isinstance(node, Function)}
    names |= {dotted(call.func) for _, _, (_, loop) in inside for call in _works(loop)} - {""}
    mine = {frames for frames, _, _ in inside}
    around = [share for frames, share in stacks if frames not in mine and _calls(frames[0], names)]
    shares = summed((line, share) for _, share, (line, _) in inside)
    inside_of = sum(shares.values())
    share = min(1.0, inside_of + min(sum(around), MOST_FOLLOWING * inside_of))
    hottest = next(_spot(*at) for _, _, at in inside if at[0] == next(iter(shares)))
    where = tuple(Place(*line, part) for line, part in shares.items())
    return Looping(share, where, min(1.0, inside_of), frozenset(called[hottest]))


@lru_cache(maxsize=4096)
def _trains(line: CodeLine) -> bool:
    """Tell whether a line is a part of training, or of play: an object's state is renewed."""
    if trains_at(line) or step_line((line,)) is not None:
        return True
    stored = (node for target in _renewed(line) for node in ast.walk(target))
    return any(isinstance(node, ast.Attribute | ast.Subscript) for node in stored)


@lru_cache(maxsize=4096)
def _renewed(line: CodeLine) -> tuple[ast.expr, ...]:
    """Return what a line makes anew from what it was: of variables, only its function knows."""
    nodes = (node for node in nodes_at(line.file, line.line) if isinstance(node, ast.Assign))
    return tuple(
        target
        for node in nodes
        if isinstance(node.value, ast.Call)
        and grows(node) is None
        and not any(like.fullmatch(dotted(node.value.func)) for like in (_GATHERS, _DRAWS))
        for target in node.targets
        if _names(_whole(target)) & set().union(*map(_names, arguments(node.value))) - {"self"}
    )


def _whole(target: ast.expr) -> ast.expr:
    """Return what is written to: the place in it is only read, as ``row`` in ``moves[row]``."""
    if isinstance(target, ast.Tuple):
        return ast.Tuple([_whole(each) for each in target.elts], target.ctx)
    return _whole(target.value) if isinstance(target, ast.Subscript) else target


def _sample_loop(frames: tuple[CodeLine, ...], way: Way) -> tuple[CodeLine, Loop] | None:
    """Return the innermost loop over samples among the callers of a line."""
    some = ((line, loop) for line in frames if (loop := _loop_at(line, way)) is not None)
    return next(some, None)


def _spot(line: CodeLine, loop: Loop) -> Spot:
    return line.file, loop.lineno, loop.col_offset


def _trained(frames: tuple[CodeLine, ...]) -> Iterator[Spot]:
    """Yield where loops around a line that trains begin: what they go through are batches."""
    trains = False
    for line in frames:
        trains = trains or _trains(line)
        if trains or _renewed(line):
            around = nodes_at(line.file, line.line)
            yield from (_spot(line, node) for node in around if isinstance(node, Loop))


def _calls(line: CodeLine, names: set[str]) -> bool:
    names_called = (callee(call) for call in calls(line.file, line.line))
    return any(name in names or _FOLLOWS.fullmatch(name) for name in names_called)


@lru_cache(maxsize=4096)
def _loop_at(line: CodeLine, way: Way) -> Loop | None:
    """Return the innermost loop around a line, where its passes are on their own."""
    around = (node for node in nodes_at(line.file, line.line) if isinstance(node, Loop))
    loops = [loop for loop in around if not _is_of_few_passes(loop)]
    return loops[-1] if loops and _is_over_samples(loops[-1], way) else None


def _is_over_samples(loop: Loop, way: Way) -> bool:
    iterated = loop.test if isinstance(loop, ast.While) else _head(loop).iter
    if _BATCHES.fullmatch(written(iterated).replace("\n", " ")):
        return False
    if isinstance(iterated, ast.Call) and _TEXTS.fullmatch(callee(iterated)):
        return False
    each = _moving(loop)
    # What reads its samples itself goes through the data: no batch of them is there yet.
    reads = any(_reads(call, each) for call in _calls_in(loop))
    if reads or any(map(is_training, _calls_in(loop))) or _is_of_parts(iterated):
        return False
    carried = _carried(loop) - each
    if way is Way.METHODS and (carried or _is_of_a_model(iterated)):
        return False
    if way is Way.PIECES:
        # Heads and experts have parameters of their own.
        if _reads_what_it_wrote(loop) or any(
            _is_chosen(call.func, each) for call in _calls_in(loop)
        ):
            return False
        each |= _of_pass(loop, each) - carried
    used = [
        set().union(*map(_names, [*arguments(call), *([call.func] if way is Way.METHODS else [])]))
        for call in _works(loop)
    ]
    return any(each & one for one in used) and not any(carried & one for one in used)


def _reads(call: ast.Call, each: set[str]) -> bool:
    """Tell whether a call reads a file that is another in each pass."""
    fetches = is_call(Role.FETCH, (callee(call),)) and last(call) not in _OF_OPEN
    if not fetches and not is_call(Role.DECODE, (callee(call),)):
        return False
    writes = any(isinstance(x, ast.Constant) and x.value in _WRITES for x in arguments(call))
    return not writes and any(each & _names(argument) for argument in arguments(call))


def _is_of_few_passes(loop: Loop) -> bool:
    """Tell whether the source itself says that there are few passes: ``range(2)``, ``(a, b)``."""
    if isinstance(loop, ast.While):
        return False
    heads = [loop] if isinstance(loop, ast.For) else loop.generators
    each = [_passes(head.iter) for head in heads]
    return math.prod(LEAST_TIMES if n is None else n for n in each) < LEAST_TIMES


def _passes(iterated: ast.expr) -> int | None:
    match iterated:
        case ast.Tuple(elts=each) | ast.List(elts=each) | ast.Set(elts=each):
            return None if any(isinstance(one, ast.Starred) for one in each) else len(each)
        case ast.Call(func=ast.Name(id="range"), args=bounds):
            try:
                known = [int(ast.literal_eval(bound)) for bound in bounds]
                return len(range(*known))
            except (ValueError, TypeError, ArithmeticError):
                # Names, too many, or a number beyond all memory.
                return None
        case ast.Call(func=ast.Name(id="enumerate" | "reversed"), args=[one, *_]):
            return _passes(one)
        case ast.Call(func=ast.Name(id="zip"), args=each):
            return min((n for one in each if (n := _passes(one)) is not None), default=None)
        case _:
            return None


def _is_of_a_model(iterated: ast.expr) -> bool:
    parts = {part for name in _names(iterated) for part in name.split(".")}
    return any(_MODEL.fullmatch(part) for part in parts)


def _is_of_parts(iterated: ast.expr) -> bool:
    """Tell whether it is the parts of a model or of a tree: few, and each another.

    Weights beside something else are those of samples.
    """
    match iterated:
        case ast.Call(func=ast.Name(id="zip" | "enumerate" | "list" | "sorted"), args=each):
            return any(
                _is_of_parts(one) for n, one in enumerate(each) if not n or dotted(one) != "weights"
            )
        case ast.Call(func=ast.Attribute(value=owner, attr="items" | "values" | "keys")):
            return _is_of_parts(owner)
        case ast.Call():
            return bool(_PARTS.fullmatch(last(iterated)))
        case ast.Subscript(value=whole):
            return _is_of_parts(whole)
        case ast.Name() | ast.Attribute():
            return bool(_PARTS.fullmatch(dotted(iterated).rpartition(".")[2]))
        case _:
            return False


def _head(loop: ast.For | Comprehension) -> ast.For | ast.comprehension:
    return loop if isinstance(loop, ast.For) else loop.generators[0]


def _counters(loop: ast.While) -> set[str]:
    """Return the names that a pass moves on by a constant: ``i += 1``."""
    moved = (node for node in _inside(loop) if isinstance(node, ast.AugAssign))
    return {
        name
        for node in moved
        if isinstance(node.value, ast.Constant)
        for name in _names(node.target)
    } & _names(loop.test)


def _moving(loop: Loop) -> set[str]:
    """Return the names that are another in each pass, by the head of the loop."""
    return _counters(loop) if isinstance(loop, ast.While) else _names(_head(loop).target)


def _takes_by_place(loop: Loop) -> bool:
    each = _moving(loop)
    taken = (node for node in _inside(loop) if isinstance(node, ast.Subscript))
    return any(isinstance(x.ctx, ast.Load) and each & _names(x.slice) for x in taken)


def _is_chosen(func: ast.expr, each: set[str]) -> bool:
    """Tell whether each pass calls another function: ``head(x)``, ``self.experts[e](x)``."""
    if isinstance(func, ast.Name):
        return func.id in each
    return isinstance(func, ast.Subscript) and bool(each & _names(func.slice))


def _reads_what_it_wrote(loop: Loop) -> bool:
    """Tell whether passes hand something on through a list or an array: ``h[t] = f(h[t - 1])``."""
    nodes = [node for node in _inside(loop) if isinstance(node, ast.Subscript)]
    written_to = {dotted(x.value) for x in nodes if isinstance(x.ctx, ast.Store)}
    for call in _calls_in(loop):
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"append", "extend"}:
            written_to.add(dotted(call.func.value))
    read = {dotted(x.value) for x in nodes if isinstance(x.ctx, ast.Load)}
    return bool((written_to & read) - {""})


def _of_pass(loop: Loop, each: set[str]) -> set[str]:
    """Return the names that hold what a pass goes through: ``rows = x[owner == each]``."""
    if not isinstance(loop, ast.For | ast.While):
        return set()
    found = set[str]()
    for node in (node for statement in loop.body for node in ast.walk(statement)):
        if isinstance(node, ast.Assign) and (each | found) & _taken(node.value):
            found |= {name for target in node.targets for name in _names(target, ast.Store)}
    return found


def _taken(value: ast.expr) -> set[str]:
    """Return the names by which a value is taken out of something, or that are given to a call."""
    match value:
        case ast.Subscript(slice=place):
            return _names(place)
        case ast.Call():
            return set().union(*map(_names, arguments(value)))
        case _:
            return set()


def _calls_in(loop: Loop) -> list[ast.Call]:
    return [node for node in _inside(loop) if isinstance(node, ast.Call)]


def _works(loop: Loop) -> list[ast.Call]:
    """Return the calls that compute something, and do not only gather it."""
    # ``out = torch.cat((out, y))``
    joining = {
        id(node.value) for node in _inside(loop) if isinstance(node, ast.Assign) and grows(node)
    }
    return [
        call
        for call in _calls_in(loop)
        if id(call) not in joining
        and not _GATHERS.fullmatch(name := dotted(call.func))
        and not _IS_PLAIN.fullmatch(name)
    ]


def _inside(loop: Loop) -> Iterator[ast.AST]:
    if isinstance(loop, ast.For | ast.While):
        for statement in loop.body:
            yield from ast.walk(statement)
    else:
        yield from ast.walk(loop.elt)


def _names(node: ast.AST, kind: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Return the names in a piece of code, those of attributes with what they belong to."""
    return {
        name
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.Attribute)
        and isinstance(one.ctx, kind)
        and (name := dotted(one))
    }


def _carried(loop: Loop) -> set[str]:
    """Return the names that one pass leaves to the next: read before they are set in it."""
    if not isinstance(loop, ast.For | ast.While):
        return set()
    known, carried = set[str](), set[str]()
    assigned = set[str]().union(*(_names(statement, ast.Store) for statement in loop.body))
    for statement in loop.body:
        # What a loop within it goes through is set before it is read.
        within = (
            node for node in ast.walk(statement) if isinstance(node, ast.For | ast.comprehension)
        )
        bound = set[str]().union(*(_names(each.target) for each in within))
        carried |= (_names(statement, ast.Load) & assigned) - known - bound
        known |= _names(statement, ast.Store)
    return carried


# In a compiled function ---------------------------------------------------------------------------
def loops_in(file: str, name: str) -> Iterator[Place]:
    """Yield the lines of the loops in a function, and in those of the file that it names."""
    # Also functions that are handed on, as to ``jax.grad``.
    every = lambda node: (x for x in ast.walk(node) if isinstance(x, ast.Call))  # noqa: E731
    for function in functions_from(file, name, every):
        for node in ast.walk(function):
            if isinstance(node, ast.For) and _builds_on_itself(node):
                yield Place(file, node.lineno, function.name)


def _builds_on_itself(loop: ast.For) -> bool:
    """Tell whether a call in it takes a name that the same statement gives a new value to."""
    return any(
        isinstance(x.value, ast.Call | ast.BinOp) and variables(*x.targets) & variables(x.value)
        for x in ast.walk(loop)
        if isinstance(x, ast.Assign)
    )


def loops_over_data(line: CodeLine) -> bool:
    """Tell whether a line is, in its function, in a loop over anything but the parts of a model."""
    around = list(nodes_at(line.file, line.line))
    inner = [at for at, node in enumerate(around) if isinstance(node, ast.FunctionDef)]
    loops = [x for x in around[inner[-1] if inner else 0 :] if isinstance(x, ast.For | ast.While)]
    return any(isinstance(loop, ast.While) or not _is_of_itself(loop.iter) for loop in loops)


def _is_of_itself(iterated: ast.expr) -> bool:
    """Tell whether attributes of ``self`` are gone through, alone or numbered."""
    if isinstance(iterated, ast.Call):
        names = variables(iterated.func)
        if "range" in names:
            return False
        return any(map(_is_of_itself, iterated.args)) or "self" in names
    return "self" in variables(iterated)
