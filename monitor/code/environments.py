"""Environments that are stepped in Python: where an object is advanced by an action, and by whom.

The protocol says it, not a file's name: what has ``reset`` and ``step``, by these names or others,
is an environment where the one gives an observation and the other takes an action and gives three
things or more, an observation among them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from whyidle.monitor.code.source import (
    Function,
    arguments,
    dotted,
    functions,
    lines_of,
    made_by,
    nodes_of,
    reached,
    variables,
    written,
)
from whyidle.monitor.libraries.table import DEVICE_PACKAGES
from whyidle.monitor.runs.stacks import CodeLine

# Observation, reward, and whether it has ended.
_LEAST_RESULTS: Final = 3
_STEPS: Final = re.compile(r"(.*_)?step(s|_async|_wait|_all)?")
_NAMED: Final = re.compile(r"(.*\.)?(.*_)?(env|envs|environments?|venv|vec_env)")
_MANY: Final = re.compile(r"(.*\.)?(.*_)?(envs|environments|venvs?|vec_envs?)")
# What is done to results that are arrays, with a row for each of many environments.
_OF_ARRAYS: Final = re.compile(
    r"\w+\.(any|all|sum|mean|nonzero|astype|tolist)|(np|numpy|torch|jnp)\.(any|all|where|nonzero"
    r"|logical_or)|enumerate|zip"
)
_BASES: Final = re.compile(r"(.*\.)?\w*(Env|Environment|VecEnv)")
_HOW_MANY: Final = re.compile(r"(.*[._])?(n|num|number_of|nr)_?(envs|environments)")
_Loop = ast.For | ast.While


@dataclass(frozen=True, slots=True)
class Played:
    """Where a file plays: by line."""

    # Calls that advance an environment, and those of them that give arrays for many.
    steps: frozenset[int] = frozenset()
    many: frozenset[int] = frozenset()
    # The methods of environments of the user's own, and of those that name no framework.
    inside: frozenset[int] = frozenset()
    on_host: frozenset[int] = frozenset()
    # In the same loop what the action is made from.
    acting: frozenset[int] = field(default_factory=frozenset)


@lru_cache(maxsize=64)
def only_one(file: str) -> int | None:
    """Return the line at which a program rules out more than one environment."""
    for node in nodes_of(file):
        match node:
            case ast.Assert(test=test) if _compares(test, ast.Eq, ast.LtE):
                return node.lineno
            case ast.If(test=test, body=[*_, ast.Raise()]) if _compares(test, ast.NotEq, ast.Gt):
                return node.lineno
            case _:
                pass
    return None


def _compares(test: ast.expr, *how: type[ast.cmpop]) -> bool:
    """Tell whether the number of environments is held against one."""
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=1)]):
            return isinstance(op, how) and bool(_HOW_MANY.fullmatch(dotted(left)))
        case _:
            return False


@lru_cache(maxsize=64)
def played(file: str) -> Played:
    """Return where a file plays; nowhere where it cannot be read."""
    nodes = nodes_of(file)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    # What gives an observation as it begins anew, and is advanced, is one whatever it is called.
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    begun = {_owner(x) for x in calls if _last(dotted(x.func)) == "reset" and id(x) not in alone}
    given = {id(n.value): n.targets[0] for n in nodes if isinstance(n, ast.Assign)}
    begun |= set(_begun_and_advanced(calls, given))
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    device = {name for node in nodes for name in _of_device(node)}
    found = [x for x in calls if _advances(x, given.get(id(x)), begun, loops)]
    defined = [node for node in nodes if isinstance(node, Function)]
    plain = {each.name for each in defined if not variables(each) & device}
    found += [x for x in calls if dotted(x.func) in plain and _plays(x, given.get(id(x)), loops)]
    host = [node for node in classes if not variables(node) & device]
    many = [
        x
        for x in found
        if _MANY.fullmatch(_owner(x)) or _gives_arrays(given.get(id(x)), _around(x, loops))
    ]
    return Played(
        steps=frozenset(line for call in found for line in lines_of(call)),
        many=frozenset(line for call in many for line in lines_of(call)),
        inside=frozenset(line for each in classes for line in _methods(each)),
        on_host=frozenset(line for each in host for line in _methods(each)),
        acting=frozenset(n for call in found for n in _makes_action(call, _around(call, loops))),
    )


def acts(lines: Iterable[CodeLine]) -> CodeLine | None:
    """Return which of these lines makes an action that a step of an environment waits for."""
    return next((line for line in lines if line.line in played(line.file).acting), None)


def plays(file: str, body: Sequence[ast.AST]) -> bool:
    """Tell whether some statements advance an environment, or call in their file what does."""
    steps = played(file).steps
    nodes = reached(body, partial(functions, file)) if steps else ()
    return any(getattr(node, "lineno", None) in steps for node in nodes)


def step_line(frames: tuple[CodeLine, ...]) -> CodeLine | None:
    """Return the line of a stack that advances an environment; ``None``: none does."""
    inside = None
    for line in frames:
        there = played(line.file)
        if line.line in there.steps:
            return line
        if line.line in there.inside:
            # A library may stand between the loop and the user's environment.
            inside = line
    return inside


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _owner(call: ast.Call) -> str:
    return dotted(call.func).rpartition(".")[0]


def _advances(call: ast.Call, into: ast.expr | None, begun: set[str], loops: list[_Loop]) -> bool:
    """Tell whether an action goes in, by what else is done to the object and what comes out."""
    name, owner = _last(dotted(call.func)), _owner(call)
    steps = _STEPS.fullmatch(name) is not None
    if not owner or name == "reset" or not (steps or owner in begun):
        return False
    if not arguments(call):
        return False
    if steps and (owner in begun or _NAMED.fullmatch(owner)):
        return True
    results = into.elts if isinstance(into, ast.Tuple | ast.List) else []
    loop = _around(call, loops) if len(results) >= _LEAST_RESULTS else None
    if loop is None:
        return False
    # What comes out makes the next action: no batch does, and no state that only goes through.
    before = variables(*(node.value for node in _made(call, loop)))
    return bool(variables(*results) & before)


def _plays(call: ast.Call, into: ast.expr | None, loops: list[_Loop]) -> bool:
    """Tell whether a function without a framework takes an action that comes of what it gave.

    The action is made in the loop, of one or more results: none of these goes back in as it is.
    """
    results = into.elts if isinstance(into, ast.Tuple | ast.List) else []
    if len(results) < _LEAST_RESULTS:
        return False
    # Of ``seen[i]`` it is ``seen`` that holds it.
    names = variables(*(x.value if isinstance(x, ast.Subscript) else x for x in results))
    around = [x for x in loops if x.lineno <= call.lineno <= (x.end_lineno or 0)]
    made = [node for loop in around for node in _made(call, loop)]
    return bool(names & variables(*(node.value for node in made)))


def _begun_and_advanced(calls: list[ast.Call], given: dict[int, ast.expr]) -> Iterator[str]:
    """Yield objects that give by one method, of nothing, what another one gives for an argument.

    Beside that the other one gives two things more at least: what it is worth, and whether it ends.
    """
    first: dict[str, set[str]] = {}
    for call in calls:
        into = given.get(id(call))
        if into is not None and _owner(call) and not arguments(call):
            first.setdefault(_owner(call), set()).update(variables(into))
    for call in calls:
        into = given.get(id(call))
        many = isinstance(into, ast.Tuple) and len(into.elts) >= _LEAST_RESULTS
        takes = len(arguments(call)) == 1
        if into is not None and many and takes and variables(into) & first.get(_owner(call), set()):
            yield _owner(call)


def _gives_arrays(into: ast.expr | None, loop: _Loop | None) -> bool:
    """Tell whether rewards, or what has ended, are used as arrays in the loop."""
    names = variables(*into.elts[1:]) if isinstance(into, ast.Tuple | ast.List) else set()
    for node in () if loop is None else (n for each in loop.body for n in ast.walk(each)):
        if isinstance(node, ast.Subscript) and variables(node.slice) & names:
            return True
        if not isinstance(node, ast.Call) or not _OF_ARRAYS.fullmatch(dotted(node.func)):
            continue
        # A tuple that is gone through holds them, and is none of them.
        taken = [each for each in node.args if not isinstance(each, ast.Tuple | ast.List)]
        if variables(node.func, *taken) & names:
            return True
    return False


def _methods(node: ast.ClassDef) -> Iterator[int]:
    """Yield the lines of an environment's own methods; none for any other class."""
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    if _followsnames(node, methods) or _follows_protocol(methods):
        for each in methods.values():
            if each.name != "__init__":
                yield from lines_of(each)


def _followsnames(node: ast.ClassDef, methods: dict[str, Function]) -> bool:
    """Tell whether it has the usual names."""
    step = next((each for name, each in methods.items() if _STEPS.fullmatch(name)), None)
    if step is None or "reset" not in methods or len(step.args.args) < 2:
        return False
    is_named = any(_BASES.fullmatch(dotted(base)) for base in node.bases)
    return is_named or any(_is_many(each) for each in _gives(step))


def _follows_protocol(methods: dict[str, Function]) -> bool:
    """Tell whether one gives for an action, first of three or more, what another gives at once."""
    first = {
        written(each.elts[0] if isinstance(each, ast.Tuple) and each.elts else each)
        for method in methods.values()
        if len(method.args.args) == 1
        for each in _gives(method)
        if not isinstance(each, ast.Constant)
    }
    return any(
        isinstance(each, ast.Tuple) and _is_many(each) and written(each.elts[0]) in first
        for method in methods.values()
        if len(method.args.args) == 2
        for each in _gives(method)
    )


def _gives(method: Function) -> Iterator[ast.expr]:
    returns = (each.value for each in ast.walk(method) if isinstance(each, ast.Return))
    return (each for each in returns if each is not None)


def _is_many(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple) and len(value.elts) >= _LEAST_RESULTS


def _around(call: ast.Call, loops: list[_Loop]) -> _Loop | None:
    """Return the innermost loop around a call."""
    around = [x for x in loops if x.lineno <= call.lineno <= (x.end_lineno or 0)]
    return max(around, key=lambda x: x.lineno, default=None)


def _makes_action(call: ast.Call, loop: _Loop | None) -> Iterator[int]:
    """Yield the lines of the loop around a step, before it, that its action is made at."""
    for node in () if loop is None else _made(call, loop):
        if node.lineno <= call.lineno:
            yield from lines_of(node)


def _made(call: ast.Call, loop: _Loop) -> list[ast.Assign]:
    """Return what a loop assigns on the way to the arguments of a call in it."""
    inside = (node for each in loop.body for node in ast.walk(each))
    some = (x for x in inside if isinstance(x, ast.Assign) and x.value is not call)
    return made_by(some, variables(*arguments(call)))


def _of_device(node: ast.AST) -> Iterator[str]:
    """Yield the names that an import gives to what is a framework's."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        inside = getattr(node, "module", None)
        for each in node.names:
            if (inside or each.name).partition(".")[0] in DEVICE_PACKAGES:
                yield each.asname or each.name.partition(".")[0]
