"""Loops that train: which one it is, what counts its steps, and how a statement runs less often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import libcst as cst

from whyidle.monitor.code.trains import loop_trains
from whyidle.monitor.fixes._codemod import Change, NotHere, Refused, Wanted
from whyidle.monitor.fixes._pieces import dotted, inside
from whyidle.monitor.fixes._source import Loop, Source, Statement

# Methods and functions that only compute a value of others.
ONLY_COMPUTE: Final = frozenset(
    [
        "abs",
        "all",
        "any",
        "argmax",
        "array",
        "asarray",
        "astype",
        "clone",
        "concatenate",
        "copy",
        "cpu",
        "detach",
        "device_get",
        "exp",
        "flatten",
        "float",
        "int",
        "item",
        "len",
        "linalg",
        "max",
        "mean",
        "median",
        "min",
        "norm",
        "numpy",
        "percentile",
        "quantile",
        "reshape",
        "round",
        "sqrt",
        "square",
        "stack",
        "std",
        "sum",
        "tolist",
        "var",
    ]
)

NO_LOOP: Final = "the line is in no loop that trains"
NO_COUNTER: Final = "nothing counts the steps of this loop"
COUNTERS: Final = ("step", "number", "iteration")


def training_loop(source: Source, node: cst.CSTNode) -> Loop | None:
    """Return the innermost loop around a piece, a pass of which is a step of training."""
    if _is_compiled(source, node):
        return None
    return next((loop for loop in source.loops(node) if trains(source, loop)), None)


def _is_compiled(source: Source, node: cst.CSTNode) -> bool:
    """Tell whether a piece is in a compiled function, which hands on what its loops carry."""
    function = source.function(node)
    marks = function.decorators if isinstance(function, cst.FunctionDef) else ()
    return any("jit" in source.code(mark) for mark in marks)


def trains(source: Source, loop: Loop) -> bool:
    """Tell whether a loop trains, by what it does and what it calls in its file."""
    return loop_trains(source.text, source.line(loop))


def targets(node: cst.BaseExpression) -> Iterator[cst.Name]:
    """Yield the names that an assignment to this sets."""
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, cst.Tuple | cst.List):
        for element in node.elements:
            yield from targets(element.value)
    elif isinstance(node, cst.StarredElement):
        yield from targets(node.value)


def sets(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield every name that some code sets."""
    for each in inside(node):
        if isinstance(
            each,
            (
                cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.NamedExpr,
                cst.For | cst.CompFor,
            ),
        ):
            yield from targets(each.target)
        elif isinstance(each, cst.AsName) and isinstance(each.name, cst.BaseExpression):
            yield from targets(each.name)
        elif isinstance(each, cst.FunctionDef | cst.ClassDef):
            yield each.name


def of_loop(source: Source, loop: Loop, node: cst.CSTNode) -> Statement:
    """Return the statement of a loop's own body that a piece stands in."""
    below = node
    for above in source.around(node):
        if above is loop.body and isinstance(
            below, cst.SimpleStatementLine | cst.BaseCompoundStatement
        ):
            return below
        below = above
    raise Refused(NO_LOOP, source.line(node))


def at_lines(
    source: Source, wanted: Wanted, fits: Callable[[cst.CSTNode], bool]
) -> list[cst.CSTNode]:
    """Return the pieces that fit and begin at a line that was found, the most important first."""
    by_line: dict[int, list[cst.CSTNode]] = {}
    for node in source.everything:
        if isinstance(
            node, cst.BaseStatement | cst.BaseSmallStatement | cst.BaseExpression
        ) and fits(node):
            by_line.setdefault(source.line(node), []).append(node)
    return [node for line in wanted.lines for node in by_line.get(line, ())]


def statements_at(source: Source, wanted: Wanted) -> list[Statement]:
    """Return the smallest statement at each line that was found."""
    found: list[Statement] = []
    for line in wanted.lines:
        mine = [
            node for node in source.everything
            if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
            and source.covers(node, line)
        ]  # fmt: skip
        if mine and mine[-1] not in found:
            found.append(mine[-1])
    if not found:
        raise NotHere
    return found


# Counting ----------------------------------------------------------------------------------------
def counter(source: Source, loop: Loop, change: Change) -> str:
    """Return the name that counts the passes of a loop; a ``for`` that has none gets one."""
    known = _counted(source, loop) or _added_up(source, loop)
    if known is not None:
        return known
    if isinstance(loop, cst.While):
        raise Refused(NO_COUNTER, source.line(loop))
    if any(name.value == "enumerate" for name in sets(source.module)) or loop.asynchronous:
        raise Refused(NO_COUNTER, source.line(loop))
    name = source.fresh(*COUNTERS)
    change.edits[loop] = _chained(change.edits.get(loop), lambda old: _enumerated(old, name))
    return name


def _chained(
    first: Callable[[Any], Any] | None, then: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    return then if first is None else lambda old: then(first(old))


def _enumerated(loop: cst.For, name: str) -> cst.For:
    """Return ``for a, b in xs`` as ``for name, (a, b) in enumerate(xs)``."""
    target: cst.BaseAssignTargetExpression = loop.target
    if isinstance(target, cst.Tuple) and not target.lpar:
        target = target.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    pair = cst.Tuple([cst.Element(cst.Name(name), _comma()), cst.Element(target)], lpar=(), rpar=())
    over = cst.Call(cst.Name("enumerate"), [cst.Arg(loop.iter)])
    return loop.with_changes(target=pair, iter=over)


def _comma() -> cst.Comma:
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _counted(source: Source, loop: Loop) -> str | None:
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return None
    name: cst.BaseExpression = loop.target
    # A bar of progress goes through what it is given.
    over = loop.iter
    if dotted(over.func).rpartition(".")[2] in {"tqdm", "trange", "track"} and over.args:
        inner = over.args[0].value
        if dotted(over.func).endswith("trange"):
            inner = over
        if not isinstance(inner, cst.Call):
            return None
        over = inner
    if source.means(over.func, "enumerate"):
        name = name.elements[0].value if isinstance(name, cst.Tuple) else name
        if isinstance(loop.target, cst.Name):
            return None
    elif not (source.means(over.func, "range", "itertools.count") or "trange" in dotted(over.func)):
        return None
    if not isinstance(name, cst.Name):
        return None
    again = [each for each in sets(loop.body) if each.value == name.value]
    return None if again or name.value == "_" else name.value


def _added_up(source: Source, loop: Loop) -> str | None:
    """Return a name to which each pass adds one, whatever else it does."""
    for statement in loop.body.body:
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for small in statement.body:
            if (
                isinstance(small, cst.AugAssign)
                and isinstance(small.operator, cst.AddAssign)
                and isinstance(small.target, cst.Name)
                and isinstance(small.value, cst.Integer)
                and small.value.value == "1"
            ):
                name = small.target.value
                again = [each for each in sets(loop.body) if each.value == name]
                skipped = any(isinstance(x, cst.Continue) for x in _own(source, loop))
                if len(again) == 1 and not skipped and not source.is_shared(small.target):
                    return name
    return None


def _own(source: Source, loop: Loop) -> Iterator[cst.CSTNode]:
    """Yield the pieces of a loop that belong to no loop within it."""
    for node in inside(loop.body):
        if isinstance(node, cst.Break | cst.Continue) and source.loops(node)[:1] == [loop]:
            yield node


# Less often --------------------------------------------------------------------------------------
def wrapped(source: Source, change: Change, statements: Sequence[Statement], test: str) -> None:
    """Let statements that follow each other run only where a test holds."""
    first, *rest = statements
    if any(each in change.edits for each in statements):
        raise Refused("several changes meet in one line", source.line(first))
    condition = cst.parse_expression(test)

    def edit(updated: Any) -> cst.If:
        body = [updated.with_changes(leading_lines=()), *rest]
        return cst.If(condition, cst.IndentedBlock(body), leading_lines=updated.leading_lines)

    change.edits[first] = edit
    for each in rest:
        change.edits[each] = lambda _: cst.RemoveFromParent()


def check_flow(source: Source, statements: Iterable[Statement]) -> None:
    """Refuse statements that steer the loop, or leave it."""
    for statement in statements:
        for node in inside(statement):
            steers = isinstance(node, cst.Break | cst.Continue) and not any(
                loop in statements_inside(statement) for loop in source.loops(node)[:1]
            )
            leaves = isinstance(node, cst.Return | cst.Yield | cst.Raise | cst.Await)
            if steers or (leaves and source.function(node) is source.function(statement)):
                raise Refused("it steers the loop", source.line(node))


def statements_inside(statement: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the loops in a statement, itself included."""
    return [node for node in inside(statement) if isinstance(node, cst.For | cst.While)]


def read_outside(source: Source, statements: Sequence[Statement]) -> list[cst.Name]:
    """Return the uses elsewhere of names that statements set."""
    mine = {node for statement in statements for node in inside(statement)}
    found = []
    for statement in statements:
        for name in sets(statement):
            if isinstance(source.parent(name), cst.FunctionDef | cst.ClassDef):
                continue
            try:
                found += [use for use in source.uses(name) if use not in mine]
            except KeyError:
                continue
    return [use for use in found if isinstance(use, cst.Name)]


def guards(source: Source, node: cst.CSTNode, loop: cst.CSTNode | None) -> Iterator[cst.If]:
    """Yield the conditions that a piece stands under, inside a loop, from the inside out."""
    below = node
    for above in source.around(node):
        if above is loop or isinstance(above, cst.FunctionDef):
            return
        if isinstance(above, cst.If) and below is above.body:
            yield above
        below = above


def period(
    source: Source, test: cst.BaseExpression
) -> tuple[cst.BinaryOperation, cst.BaseExpression] | None:
    """Return ``a % n`` and ``n`` of ``a % n == 0`` or ``not a % n``."""
    found: cst.BaseExpression | None = None
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        found = test.expression
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        against = test.comparisons[0]
        if isinstance(against.operator, cst.Equal) and isinstance(against.comparator, cst.Integer):
            found = test.left
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return period(source, test.left) or period(source, test.right)
    if isinstance(found, cst.BinaryOperation) and isinstance(found.operator, cst.Modulo):
        return found, found.right
    return None
