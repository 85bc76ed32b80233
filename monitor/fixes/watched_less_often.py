"""What only looks at the training, and prints or logs what it sees, does so every hundred steps.

Proved first: that no value of it is used by anything but itself, and that it changes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._codemod import Change, Codemod, NotHere, Refused, Wanted
from whyidle.monitor.fixes._loops import (
    ONLY_COMPUTE,
    check_flow,
    counter,
    of_loop,
    read_outside,
    sets,
    statements_at,
    targets,
    training_loop,
    wrapped,
)
from whyidle.monitor.fixes._pieces import dotted, inside, names_in
from whyidle.monitor.fixes._source import Loop, Source, Statement

EVERY: Final = 100
# Methods that tell somebody, and change nothing of the training.
_TELLS: Final = {
    "write",
    "flush",
    "info",
    "debug",
    "warning",
    "log",
    "add_scalar",
    "add_scalars",
    "add_histogram",
    "set_postfix",
    "set_description",
    "writerow",
    "log_metric",
}
# Methods and functions that only compute a value.
_LOOKS: Final = ONLY_COMPUTE | frozenset(
    [
        "abspath",
        "block_until_ready",
        "bool",
        "cat",
        "dict",
        "dim",
        "dumps",
        "endswith",
        "enumerate",
        "format",
        "get",
        "histc",
        "hypot",
        "isfinite",
        "isinf",
        "isinstance",
        "isnan",
        "isoformat",
        "items",
        "join",
        "keys",
        "leaves",
        "list",
        "log10",
        "map",
        "matrix_norm",
        "memory_allocated",
        "monotonic",
        "named_parameters",
        "now",
        "numel",
        "parameters",
        "perf_counter",
        "range",
        "repr",
        "set",
        "size",
        "sorted",
        "startswith",
        "str",
        "strftime",
        "svd",
        "svdvals",
        "synchronize",
        "time",
        "tree_leaves",
        "tree_leaves_with_path",
        "tuple",
        "values",
        "vector_norm",
        "zip",
    ]
)
_DEEPEST: Final = 3


def change(source: Source, wanted: Wanted) -> Change:
    """Thin out the first such statement that was found."""
    why: Refused | None = None
    for statement, loop in _candidates(source, wanted):
        try:
            return _thinned(source, statement, loop)
        except Refused as refused:
            why = why or refused
    raise why or NotHere


def _candidates(source: Source, wanted: Wanted) -> list[tuple[Statement, Loop]]:
    """Return the statements of training loops at the lines found, or that call what is there."""
    found: list[tuple[Statement, Loop]] = []
    for statement in statements_at(source, wanted):
        loop = training_loop(source, statement)
        if loop is not None:
            found.append((of_loop(source, loop, statement), loop))
            continue
        function = source.function(statement)
        if isinstance(function, cst.FunctionDef) and source.parent(function) is source.module:
            for use in source.uses(function.name):
                around = training_loop(source, use)
                if around is not None:
                    found.append((of_loop(source, around, use), around))
    return list(dict.fromkeys(found))


def _thinned(source: Source, statement: Statement, loop: Loop) -> Change:
    group = _group(source, statement, loop)
    check_flow(source, group)
    for each in group:
        _check(source, each, 0)
        if any(isinstance(x, cst.If | cst.IfExp | cst.While) for x in inside(each)):
            # Inside another condition it might never come again.
            raise Refused("it comes by a condition of its own", source.line(each))
    inner = _common(source, group)
    if inner is not None:
        raise Refused(f"{inner.value} is used by other code", source.line(inner))
    if not any(_tells_or_reads(source, x) for x in group):
        raise Refused("what it is for is not certain", source.line(statement))
    found = Change()
    wrapped(source, found, group, f"{counter(source, loop, found)} % {EVERY} == 0")
    found.notes.append(f"It looks, prints or logs every {EVERY} steps, not in each.")
    return found


def _group(source: Source, statement: Statement, loop: Loop) -> list[Statement]:
    """Return a statement with those beside it that read what it sets, or flush what it writes."""
    body = [
        x
        for x in loop.body.body
        if isinstance(x, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    ]
    first = last = body.index(statement)
    while True:
        mine = body[first : last + 1]
        names = {x.value for each in mine for x in sets(each)}
        files = {x for each in mine for x in _written(each)}
        if last + 1 < len(body) and _belongs(body[last + 1], names, files):
            last += 1
        elif first > 0 and _feeds(source, body[first - 1], mine):
            first -= 1
        else:
            return mine


def _written(statement: cst.CSTNode) -> set[str]:
    return {
        dotted(x.func.value)
        for x in inside(statement)
        if isinstance(x, cst.Call)
        and isinstance(x.func, cst.Attribute)
        and x.func.attr.value == "write"
    }


def _belongs(statement: Statement, names: set[str], files: set[str]) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        for small in statement.body:
            call = small.value if isinstance(small, cst.Expr) else None
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
                if call.func.attr.value == "flush" and dotted(call.func.value) in files:
                    return True
            if isinstance(call, cst.Call) and names & {x.value for x in names_in(call)}:
                return True
    return False


def _feeds(source: Source, statement: Statement, mine: Sequence[Statement]) -> bool:
    """Tell whether what stands before sets a value for these alone."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    if not all(isinstance(small, cst.Assign) for small in statement.body):
        return False
    try:
        _check(source, statement, 0)
    except Refused:
        return False
    inner = {node for each in mine for node in inside(each)}
    uses = read_outside(source, [statement])
    return bool(uses) and all(use in inner for use in uses)


def _common(source: Source, group: Sequence[Statement]) -> cst.Name | None:
    """Return a use elsewhere of what the group sets, or of what an earlier pass has set."""
    outside = read_outside(source, group)
    if outside:
        return outside[0]
    mine = {node for each in group for node in inside(each)}
    for node in mine:
        if isinstance(node, cst.Assign | cst.AnnAssign | cst.AugAssign):
            ends = node.targets if isinstance(node, cst.Assign) else [node]
            for name in (x for end in ends for x in targets(end.target)):
                before = [x for x in source.assigned(name) if x not in mine]
                in_itself = node.value is not None and any(
                    x.value == name.value for x in names_in(node.value)
                )
                if before or in_itself:
                    return name
    return None


def _tells_or_reads(source: Source, statement: Statement) -> bool:
    for node in inside(statement):
        if isinstance(node, cst.Call):
            word = _word(node)
            if source.means(node.func, "print") or word in _TELLS | {
                "item", "tolist", "numpy", "cpu", "float", "asarray", "device_get",
                "block_until_ready",
            }:  # fmt: skip
                return True
            if (known := source.definition(node.func)) is not None and known.body is not None:
                return True
    return False


def _word(call: cst.Call) -> str:
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return name.value if isinstance(name, cst.Name) else ""


def _check(source: Source, code: cst.CSTNode, depth: int) -> None:
    """Refuse code that does more than look and tell."""
    own = {name.value for name in sets(code)}
    for node in inside(code):
        where = source.line(node) if isinstance(node, cst.Call | cst.BaseSmallStatement) else None
        if isinstance(
            node,
            cst.Global | cst.Nonlocal | cst.Await | cst.Yield | cst.Del | cst.Raise | cst.Assert,
        ):
            raise Refused("it does more than look", where)
        if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
            target = node.target
            base = target.value if isinstance(target, cst.Subscript) else target
            if not isinstance(base, cst.Name | cst.Tuple) or (
                base is not target and dotted(base) not in own
            ):
                raise Refused(f"it changes {source.code(target)}", where)
            if isinstance(node, cst.AugAssign) and depth == 0:
                raise Refused(f"it adds to {source.code(target)} in each step", where)
        if isinstance(node, cst.Call):
            _check_call(source, node, own, depth)


def _check_call(source: Source, call: cst.Call, own: set[str], depth: int) -> None:
    word = _word(call)
    known = source.definition(call.func)
    if isinstance(known, cst.FunctionDef) and depth < _DEEPEST:
        if known.decorators:
            raise Refused(f"what {word} does besides is not certain", source.line(call))
        _check(source, known.body, depth + 1)
        return
    if source.means(call.func, "print") or word in _LOOKS or word in _TELLS:
        return
    of = call.func.value if isinstance(call.func, cst.Attribute) else None
    if word in {"append", "update", "add", "extend"} and of is not None and dotted(of) in own:
        return
    raise Refused(f"what {word or 'it'} does besides is not certain", source.line(call))


codemod = Codemod(
    title=f"It looks and tells every {EVERY} steps",
    rules=("per_step_sync", "large_readback", "logging_each_step", "metrics_on_host"),
    change=change,
)
