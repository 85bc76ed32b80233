"""What stays: lines that add to what was there before a loop, and those that register something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from whyidle.monitor.code.source import (
    Function,
    calls,
    dotted,
    functions,
    last,
    nodes_at,
    variables,
)

# What is called so is gone through from then on, once more for each time that it was.
_REGISTERS: Final = re.compile(r"register_\w+_hook|addHandler|add_param_group|add_callback")
_TAKES_BACK: Final = re.compile(r"remove|removeHandler|remove_callback|clear")
# What is kept of these is a number of Python's.
_NUMBERS: Final = re.compile(r"(.*\.)?(item|float|int|len|perf_counter|time|str|round)")


def registers(file: str, line: int) -> bool:
    """Tell whether a line registers what stays, more than once, and nothing around takes back."""
    if not any(_REGISTERS.fullmatch(last(call)) for call in calls(file, line)):
        return False
    # What runs more than once: a function, or the whole of a loop that is in none.
    around = nodes_at(file, line)
    defined = [x for x in around if isinstance(x, Function)]
    loops = [x for x in around if isinstance(x, ast.For | ast.While)]
    runs = defined[-1:] or loops[:1]
    inside = (x for each in runs for x in ast.walk(each) if isinstance(x, ast.Call))
    return bool(runs) and not any(_TAKES_BACK.fullmatch(last(call)) for call in inside)


def adding(file: str, name: str) -> Iterator[int]:
    """Yield the lines of functions of a name that add to what was there before a loop of theirs."""
    for function in functions(file, name):
        for loop in ast.walk(function):
            if not isinstance(loop, ast.For | ast.While):
                continue
            inside = [node for each in loop.body for node in ast.walk(each)]
            # What a pass makes anew, a list of its own, keeps nothing.
            made = {
                target.id
                for node in inside
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name) and target.id not in variables(node.value)
            }
            yield from (node.lineno for node in inside if _keeps(node, made))  # type: ignore[attr-defined]


def _keeps(node: ast.AST, made: set[str]) -> bool:
    """Tell whether something of a pass, and more than a number, is added to what was there."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend"), args=given):
            return dotted(owner).partition(".")[0] not in made and _is_much(given)
        case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value):
            return _is_much([value])
        case ast.Assign(targets=targets, value=ast.BinOp(op=ast.Add()) as value):
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            return bool(names & variables(value)) and _is_much([value])
        case _:
            return False


def _is_much(values: Iterable[ast.expr]) -> bool:
    """Tell whether it may be an array, by what it is made with."""
    nodes = [node for value in values for node in ast.walk(value)]
    numbers = (x for x in nodes if isinstance(x, ast.Call) and _NUMBERS.fullmatch(last(x)))
    return any(isinstance(node, ast.Name) for node in nodes) and not any(numbers)
