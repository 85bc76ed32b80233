"""Blocks of the user's source that are no part of each step: due every few, or made to evaluate."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from whyidle.monitor.code import environments
from whyidle.monitor.code.source import (
    called_in,
    dotted,
    is_generator,
    lines_of,
    nodes_at,
    nodes_of,
    tree_of,
    written,
)
from whyidle.monitor.code.trains import is_learned_from, trains
from whyidle.monitor.runs.stacks import CodeLine

NO_GRADIENTS: Final = frozenset({"no_grad", "inference_mode"})
# Who does this trains, or plays in an environment.
_TRAINS: Final = frozenset({"backward", "zero_grad", "step"})
# What is due after so long, too, is due every few steps.
_CLOCKS: Final = frozenset({"time", "monotonic", "perf_counter", "time_ns", "monotonic_ns"})
# What only a model has, and what a call says that runs one as it is evaluated.
_OF_MODELS: Final = frozenset({"train", "eval", "parameters", "state_dict", "zero_grad", "compile"})
_EVALUATES: Final = {"train": False, "training": False, "is_training": False, "deterministic": True}
_SCOPES: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While, ast.GeneratorExp, ast.ListComp)


@dataclass(frozen=True)
class Block:
    """Some statements of a file; ``due``: every few steps, else they only evaluate a model."""

    file: str
    body: Sequence[ast.stmt]
    due: bool

    @property
    def lines(self) -> Iterator[int]:
        """The lines that it stands on."""
        for each in self.body:
            yield from lines_of(each)

    @property
    def names(self) -> tuple[str, ...]:
        """What it calls."""
        return tuple(called_in(self.body))

    @property
    def trains(self) -> bool:
        """Whether it is training itself."""
        return trains(self.file, self.body)

    @property
    def plays(self) -> bool:
        """Whether it is the play that is learned from."""
        return environments.plays(self.file, self.body) and not self.evaluates

    @property
    def evaluates(self) -> bool:
        """Whether it plays now and then, beside the play of the loop around it."""
        if not environments.plays(self.file, self.body):
            return False
        first = self.body[0].lineno
        around = [x for x in nodes_at(self.file, first) if isinstance(x, ast.For | ast.While)]
        loop = next((x for x in reversed(around) if x.lineno < first), None)
        beside = (
            [x for x in loop.body if x.end_lineno and not x.lineno <= first <= x.end_lineno]
            if (self.due and loop)
            else []
        )
        return environments.plays(self.file, beside)


def blocks(file: str) -> Iterator[Block]:
    """Yield those of a file, the outer before the inner."""
    tree = tree_of(file)
    for node in nodes_of(file):
        if isinstance(node, ast.If) and _counts(node.test):
            yield Block(file, node.body, due=True)
        if not isinstance(node, ast.FunctionDef):
            continue
        for number, each in enumerate(node.body):
            # ``if step % 100: return``, and the rest is seldom. Who makes data skips some.
            match each:
                case ast.If(test=test, body=[ast.Return(value=None), *_], orelse=[]) if _counts(
                    test
                ) and not is_generator(node):
                    yield Block(file, node.body[number + 1 :], due=True)
        if _only_evaluates(node):
            yield Block(file, node.body, due=False)
    yield from () if tree is None else _evaluations(file, tree)


def _counts(test: ast.expr) -> bool:
    """Tell whether it goes by the number of a step, or by how long something is ago."""
    clocks = any(name.rpartition(".")[2] in _CLOCKS for name in called_in([test]))
    return clocks or any(isinstance(node, ast.Mod) for node in ast.walk(test))


def _only_evaluates(function: ast.FunctionDef) -> bool:
    """Tell whether a function sets a model to evaluate it on more than one batch."""
    names = [*called_in([*function.decorator_list, *function.body])]
    names += map(dotted, function.decorator_list)
    last = {name.rpartition(".")[2] for name in names}
    loops = any(isinstance(node, _LOOPS) for each in function.body for node in ast.walk(each))
    return loops and "eval" in last and bool(last & NO_GRADIENTS) and not last & _TRAINS


def _evaluations(file: str, tree: ast.Module) -> Iterator[Block]:
    """Yield what lies between the lines of a training, runs a model there, and teaches it nothing.

    What a teacher or a target network says is learned from, and who plays learns of that later.
    """
    names = (name.rpartition(".") for name in called_in([tree]))
    models = {owner for owner, _, method in names if owner and method in _OF_MODELS}
    for scope in ast.walk(tree):
        if not isinstance(scope, _SCOPES):
            continue
        passes = Counter(
            written(node)
            for node in ast.walk(scope)
            if isinstance(node, ast.Call) and dotted(node.func) in models
        )
        some = list(_stretches(scope.body, passes))
        if not some or not trains(file, scope.body) or environments.plays(file, scope.body):
            continue
        for body in some:
            block = Block(file, body, due=False)
            lines = (CodeLine(file, line, "") for line in block.lines)
            if not block.trains and not any(map(is_learned_from, lines)):
                yield block


def _stretches(body: Sequence[ast.stmt], passes: Counter[str]) -> Iterator[Sequence[ast.stmt]]:
    """Yield statements in a row that run a model without gradients, or as it is evaluated.

    ``passes``: calls of models, and how often. The batch that is trained on needs the mode of one.
    """
    for number, each in enumerate(body):
        if isinstance(each, (*_SCOPES, ast.ClassDef)):
            continue
        heads = [x.context_expr for x in each.items] if isinstance(each, ast.With) else []
        names = {name.rpartition(".")[2] for name in called_in(heads)}
        if "GradientTape" in names:
            continue
        match each:
            case ast.Expr(ast.Call(func=ast.Attribute(value=model, attr="eval"), args=[])):
                back = f"{written(model)}.train"
                rest = body[number + 1 :]
                ends = (n for n, x in enumerate(rest) if back in called_in([x]))
                stretch = rest[: next(ends, len(rest))]
                if written(model) in called_in(stretch):
                    yield stretch
            case ast.With() if names & NO_GRADIENTS and any(
                passes[written(node)] == 1 for node in ast.walk(each) if isinstance(node, ast.Call)
            ):
                yield [each]
            case ast.Assign() | ast.Expr() if any(map(_says_so, ast.walk(each))):
                yield [each]
        for inner in ("body", "orelse", "finalbody"):
            yield from _stretches(getattr(each, inner, ()), passes)


def _says_so(node: ast.AST) -> bool:
    """Tell whether a call runs a model as it is evaluated."""
    return isinstance(node, ast.Call) and any(
        isinstance(each.value, ast.Constant)
        and each.arg in _EVALUATES
        and each.value.value is _EVALUATES[each.arg]
        for each in node.keywords
    )


@lru_cache(maxsize=256)
def called_around(file: str, line: int) -> tuple[tuple[str, ...], ...]:
    """Return what the blocks around a line call, the innermost first."""
    kinds = ast.If, ast.With, ast.FunctionDef
    some = [node for node in nodes_at(file, line) if isinstance(node, kinds)]
    some.sort(key=lambda node: -node.lineno)
    return tuple(tuple(called_in(node.body)) for node in some)
