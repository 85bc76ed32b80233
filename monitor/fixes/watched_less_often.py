"""What only looks at the training, and prints or logs what it sees, does so every hundred steps.

Proved first: that no value of it is used by anything but itself, and that it changes nothing else.
"""

from __future__ import annotations

import ast
from typing import Final

from whyidle.monitor.code.names import Source
from whyidle.monitor.code.program import inside, name_of, names_set, sets, targets
from whyidle.monitor.code.source import DEEPEST, Function, dotted, last, variables
from whyidle.monitor.code.trains import Loop
from whyidle.monitor.fixes._change import Change, Refused
from whyidle.monitor.fixes._codemod import Codemod, Wanted, first_of
from whyidle.monitor.fixes._loops import (
    EVERY,
    ONLY_COMPUTE,
    check_flow,
    counter,
    of_loop,
    read_outside,
    statements_at,
)

# Methods that tell somebody, and change nothing of the training.
_TELLS: Final = {
    "write", "flush", "info", "debug", "warning", "log", "add_scalar", "add_scalars",
    "add_histogram", "set_postfix", "set_description", "writerow", "log_metric",
}  # fmt: skip
_READS: Final = {"item", "tolist", "numpy", "cpu", "float", "asarray", "device_get",
                 "block_until_ready"}  # fmt: skip
# Methods and functions that only compute a value.
_LOOKS: Final = ONLY_COMPUTE | {
    "abspath", "block_until_ready", "bool", "cat", "dict", "dim", "dumps", "endswith", "enumerate",
    "format", "get", "histc", "hypot", "isfinite", "isinf", "isinstance", "isnan", "isoformat",
    "items", "join", "keys", "leaves", "list", "log10", "map", "matrix_norm", "memory_allocated",
    "monotonic", "named_parameters", "now", "numel", "parameters", "perf_counter", "range", "repr",
    "set", "size", "sorted", "startswith", "str", "strftime", "svd", "svdvals", "synchronize",
    "time", "tree_leaves", "tree_leaves_with_path", "tuple", "values", "vector_norm", "zip",
}  # fmt: skip
_MORE: Final = (ast.Global, ast.Nonlocal, ast.Await, ast.Yield, ast.YieldFrom, ast.Delete,
                ast.Raise, ast.Assert)  # fmt: skip


def change(source: Source, wanted: Wanted) -> Change:
    """Thin out the first such statement that was found."""
    return first_of(_candidates(source, wanted), lambda each: _thinned(source, *each))


def _candidates(source: Source, wanted: Wanted) -> list[tuple[ast.stmt, Loop]]:
    """Return the statements of training loops at the lines found, or that call what is there."""
    found: list[tuple[ast.stmt, Loop]] = []
    for statement in statements_at(source, wanted):
        some: list[ast.AST] = [statement]
        function = source.function(statement)
        if source.training_loop(statement) is None:
            is_top = isinstance(function, Function) and source.is_of_top(function)
            some = [*source.uses(function)] if is_top and function is not None else []
        around = [(piece, loop) for piece in some if (loop := source.training_loop(piece))]
        found += [(of_loop(source, loop, piece), loop) for piece, loop in around]
    return list(dict.fromkeys(found))


def _thinned(source: Source, statement: ast.stmt, loop: Loop) -> Change:
    group = _group(source, statement, loop)
    check_flow(source, group)
    for each in group:
        _check(source, [each], 0)
        if any(isinstance(x, ast.If | ast.IfExp | ast.While) for x in inside(each)):
            # Inside another condition it might never come again.
            raise Refused("it comes by a condition of its own", each)
    common = _common(source, group)
    if common is not None:
        raise Refused(f"{name_of(common)} is used by other code", common)
    if not any(_tells_or_reads(source, x) for x in inside(*group)):
        raise Refused("what it is for is not certain", statement)
    found = Change(source)
    found.wrap(group, f"if {counter(source, loop, found)} % {EVERY} == 0")
    found.notes.append(f"It looks, prints or logs every {EVERY} steps, not in each.")
    return found


def _group(source: Source, statement: ast.stmt, loop: Loop) -> list[ast.stmt]:
    """Return a statement with those beside it that read what it sets, or flush what it writes."""
    body = loop.body
    first = end = body.index(statement)
    while True:
        mine = body[first : end + 1]
        if end + 1 < len(body) and _belongs(body[end + 1], mine):
            end += 1
        elif first > 0 and _feeds(source, body[first - 1], mine):
            first -= 1
        else:
            return mine


def _belongs(statement: ast.stmt, mine: list[ast.stmt]) -> bool:
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(of, "flush"))) if dotted(of) in {
            dotted(x.func.value)
            for x in inside(*mine)
            if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and last(x) == "write"
        }:
            return True
        case ast.Expr(ast.Call()):
            return bool(names_set(*mine) & variables(statement))
        case _:
            return False


def _feeds(source: Source, statement: ast.stmt, mine: list[ast.stmt]) -> bool:
    """Tell whether what stands before sets a value for these alone."""
    if not isinstance(statement, ast.Assign):
        return False
    try:
        _check(source, [statement], 0)
    except Refused:
        return False
    inner, uses = set(inside(*mine)), read_outside(source, [statement])
    return bool(uses) and all(use in inner for use in uses)


def _common(source: Source, group: list[ast.stmt]) -> ast.AST | None:
    """Return a use elsewhere of what the group sets, or of what an earlier pass has set."""
    outside = read_outside(source, group)
    if outside:
        return outside[0]
    mine = set(inside(*group))
    for node in inside(*group):
        for name in sets(*targets(node)):
            before = any(x not in mine for x in source.assigned(name))
            value = getattr(node, "value", None)
            if before or (value is not None and name_of(name) in variables(value)):
                return name
    return None


def _tells_or_reads(source: Source, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    is_told = source.means(node.func, "print") or last(node) in _TELLS | _READS
    return is_told or source.definition(node.func) is not None


def _check(source: Source, code: list[ast.stmt], depth: int) -> None:
    """Refuse code that does more than look and tell."""
    own = names_set(*code)
    for node in inside(*code):
        if isinstance(node, _MORE):
            raise Refused("it does more than look", node)
        for target in targets(node):
            base = target.value if isinstance(target, ast.Subscript) else target
            is_own = base is target or dotted(base) in own
            if not isinstance(base, ast.Name | ast.Tuple) or not is_own:
                raise Refused(f"it changes {source.code(target)}", node)
            if isinstance(node, ast.AugAssign) and depth == 0:
                raise Refused(f"it adds to {source.code(target)} in each step", node)
        if isinstance(node, ast.Call):
            _check_call(source, node, own, depth)


def _check_call(source: Source, call: ast.Call, own: set[str], depth: int) -> None:
    word, known = last(call), source.defined(call.func)
    why = Refused(f"what {word or 'it'} does besides is not certain", call)
    if known is not None and depth < DEEPEST:
        if known.decorator_list:
            raise why
        _check(source, known.body, depth + 1)
        return
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    fills = word in {"append", "update", "add", "extend"} and of is not None and dotted(of) in own
    if not (source.means(call.func, "print") or word in _LOOKS | _TELLS or fills):
        raise why


codemod = Codemod(
    title=f"It looks and tells every {EVERY} steps",
    rules=("per_step_sync", "large_readback", "logging_each_step", "metrics_on_host"),
)
