"""Whether what a line is given is the same in each pass of a loop, or made anew.

A function is given it by who called it: then the caller's line tells, and where that is in no loop,
who called the caller.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from typing import Final

from whyidle.monitor.code.flow import Flows, flows_at
from whyidle.monitor.code.source import callee, calls, functions, imports, last, tree_of
from whyidle.monitor.code.statements import Flow, loaded
from whyidle.monitor.libraries.table import ARRAY_PACKAGES, DEVICE_PACKAGES
from whyidle.monitor.runs.stacks import CodeLine

# What these give holds what they were given.
_RESHAPES: Final = frozenset(
    ("asarray", "astype", "copy", "numpy", "ravel", "reshape", "transpose")
)
# Frames of their own, whose code is a part of a statement; of a generator each pass takes the next.
_GENERATOR: Final = "<genexpr>"
_PARTS: Final = frozenset(("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>"))
_OBJECTS: Final = frozenset(("self", "cls"))


def stays(file: str, line: int) -> bool:
    """Tell whether all that a line in a loop is given is the same in each pass, for sure.

    Nothing else in the loop uses it, so nothing fills it.
    """
    flows = flows_at(file, line)
    flow = None if flows is None else flows.at(line)
    if flows is None or flow is None or flow.loop is None or _any_new(file, flow.inner):
        return False
    modules = imports(file)
    names = {name for name in flow.uses if name.partition(".")[0] not in modules}
    others = [x for x in flows.within(flow.loop) if x is not flow]
    return bool(names) and not any(names & (x.uses | x.gives | x.adds_to) for x in others)


def made_anew(frames: Iterable[CodeLine]) -> bool:
    """Tell whether a line uses what is made anew in each pass of the loop that it runs in."""
    function, wanted = "", frozenset[str]()
    for frame in frames:
        if frame.function == _GENERATOR:
            return True
        flows = flows_at(frame.file, frame.line)
        flow = None if flows is None else flows.at(frame.line)
        if frame.function in _PARTS or flows is None or flow is None:
            continue
        given = _arguments(frame, function, wanted)
        names = {name for each in given for name in loaded(each)} if given else flow.uses
        asked = [x for each in given for x in ast.walk(each)] if given else flow.inner
        givers = {x for name in names for x in flows.gave(name, flow)} - {flow}
        if _any_new(frame.file, asked) or names & _set_again(frame.file):
            return True
        if (loop := flow.loop) is not None:
            return any(loop in x.within for x in givers) or _is_filled(names, flow, flows)
        made = givers.union(*map(flows.made_of, givers))
        if any(_any_new(frame.file, each.calls) for each in made):
            return True
        heads = {name for each in made if each.is_head for name in each.gives}
        by_library = bool(wanted) and not given
        function, wanted = frame.function, frozenset(heads & names.union(*(x.uses for x in made)))
        if not wanted:
            return by_library
    # A library gives what it likes.
    return bool(wanted)


def _arguments(caller: CodeLine, function: str, wanted: Set[str]) -> list[ast.expr]:
    """Return what a line gives a function that it calls for some arguments; none: not known."""
    here = [x for x in calls(caller.file, caller.line) if function and last(x) == function]
    known = next(functions(caller.file, function), None)
    if len(here) != 1 or known is None:
        return []
    (call,) = here
    order = [x.arg for x in (*known.args.posonlyargs, *known.args.args) if x.arg not in _OBJECTS]
    if len(call.args) > len(order) or any(isinstance(x, ast.Starred) for x in call.args):
        return []
    named = {each.arg: each.value for each in call.keywords}
    given = dict(zip(order, call.args, strict=False)) | {k: v for k, v in named.items() if k}
    return [given[name] for name in sorted(wanted) if name in given] if None not in named else []


def _any_new(file: str, some: Iterable[ast.AST]) -> bool:
    """Tell whether one of some calls may give something else each time, as ``next(rows)`` does."""
    return any(_may_be_new(file, each) for each in some if isinstance(each, ast.Call))


def _may_be_new(file: str, call: ast.Call) -> bool:
    name, modules = callee(call), imports(file)
    head, _, rest = name.partition(".")
    if head not in modules:
        same = last(call) in _RESHAPES or (hasattr(builtins, head) and head != next.__name__)
        return not same
    # Of what it was given these make the same each time, unless they draw.
    package = modules[head].partition(".")[0]
    draws = "random" in f"{modules[head]}.{rest}".split(".")
    return draws or package not in ARRAY_PACKAGES | DEVICE_PACKAGES


def _is_filled(names: Set[str], flow: Flow, flows: Flows) -> bool:
    """Tell whether something in the loop is called for what it does alone, with one of these."""
    loop = flow.loop
    others = [] if loop is None else [x for x in flows.within(loop) if x is not flow and x.is_bare]
    return any((names - _OBJECTS) & each.uses for each in others)


@lru_cache(maxsize=64)
def _set_again(file: str) -> frozenset[str]:
    """Return the attributes that an object is given outside of its ``__init__``."""
    tree = tree_of(file)
    return frozenset(() if tree is None else _attributes(tree))


def _attributes(tree: ast.AST) -> Iterator[str]:
    left = [tree]
    while left:
        match left.pop():
            case ast.FunctionDef(name="__init__"):
                continue
            case ast.Attribute(value=ast.Name(id=name), attr=attr, ctx=ast.Store()) if (
                name in _OBJECTS
            ):
                yield f"{name}.{attr}"
            case node:
                left.extend(ast.iter_child_nodes(node))
