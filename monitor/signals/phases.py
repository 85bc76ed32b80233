"""Which part of a loop a stack is in: its steps, or what it does besides them.

What the job's own code marks comes first. Else a chain of lines belongs to a phase by the act
(``acts.py``): the library that it is in, or what the user's line or block calls. The names of the
user's functions count where nothing else says so, and all the rest are steps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Final, NamedTuple

from whyidle.monitor.code.environments import plays, step_line
from whyidle.monitor.code.source import callee, calls, dotted, imports, tree_of
from whyidle.monitor.code.trains import is_learned_from, trains
from whyidle.monitor.libraries.frames import is_call, is_module, kind_of
from whyidle.monitor.libraries.table import Kind, Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.acts import Phase, of_calls, of_library

# Functions of the user's, in words: ``run_validation``, ``evalEpoch``, ``val_loop``.
_VALIDATES: Final = re.compile(
    r"(.*_)?([Ee]valuat\w*|[Vv]alidat\w*|[Ee]val|[Vv]al|[Tt]est|[Aa]ccuracy|[Pp]erplexity)"
    r"(_.*|[A-Z].*)?"
)
_SAVING: Final = re.compile(r"(.*_)?([Ss]ave|[Cc]heckpoint|[Cc]kpt)(_.*|[A-Z].*)?")
# Tokenizers of one's own, and who calls them: ``bpe``, ``tokenize``; ``tok.encode(text)``.
_TOKENISES: Final = re.compile(r"_*(.*_)?([Tt]okeni[sz]\w*|bpe|byte_?pair\w*|word_?piece\w*)(_.*)?")
_CODES: Final = re.compile(r"encode\w*|__call__")
_TOKENIZER: Final = re.compile(r"(\w+\.)*\w*([Tt]ok|[Tt]okeni[sz]er|bpe|BPE)(\.\w+)?")
# What a validation may hold is a part of it.
_PARTS: Final = frozenset({Phase.METRICS, Phase.GENERATION})
_NO_GRADIENTS: Final = frozenset({"no_grad", "inference_mode"})
# Who does this trains, or plays in an environment.
_TRAINS: Final = frozenset({"backward", "zero_grad", "step"})
# What is due after so long, too, is due every few steps.
_CLOCKS: Final = frozenset({"time", "monotonic", "perf_counter", "time_ns", "monotonic_ns"})
# What trainers and users mark (core/marks.py).
_MARKED: Final = {
    str(phase): phase for phase in (Phase.VALIDATION, Phase.CHECKPOINT, Phase.LOGGING, Phase.EPOCH)
}
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While, ast.GeneratorExp, ast.ListComp)


class Aside(NamedTuple):
    """The phase of a chain, and the line of the user's that begins it."""

    phase: Phase
    begins: CodeLine | None = None
    # By what is called there, and not by the user's names alone.
    surely: bool = False
    # The source says that it is done every few steps: whatever it takes, the steps are others.
    due: bool = False
    # The job's own code says so.
    marked: bool = False


def phase_of(chain: Chain) -> Aside:
    """Return the phase of a chain."""
    guessed = _guessed(chain)
    marked = _MARKED.get(chain.marked or "")
    if marked is None:
        return guessed
    if guessed.phase is marked:
        return guessed._replace(surely=True, marked=True)
    # What is saved or written while validating is so all the same; and between epochs anything.
    is_finer = guessed.surely and guessed.phase in {Phase.CHECKPOINT, Phase.LOGGING}
    if is_finer or (marked is Phase.EPOCH and guessed.phase is not Phase.STEP):
        return guessed
    return Aside(marked, chain.frames[0] if chain.frames else None, surely=True, marked=True)


def _guessed(chain: Chain) -> Aside:
    """Return the phase by the lines alone."""
    named = _of_frames(chain.frames)
    phase = _act(chain)
    stepping = step_line(chain.frames)
    if stepping is not None and phase in {None, Phase.ENVIRONMENT}:
        return Aside(Phase.ENVIRONMENT, stepping, surely=True)
    # What is saved or written while validating is so all the same.
    if phase is None or (phase in _PARTS and named is not None):
        return named or _of_tokenizer(chain) or Aside(Phase.STEP)
    if named is not None and named.phase in {phase, Phase.PERIODIC}:
        return Aside(phase, named.begins, surely=True, due=named.due)
    return Aside(phase, chain.frames[0] if chain.frames else None, surely=True)


def _act(chain: Chain) -> Phase | None:
    """Return what is done by the library that a chain is in, or by the user's line."""
    inner = chain.frames[0] if chain.frames else None
    outside = [x for x in (chain.called, chain.leaf) if x is not None and not is_users(x.file)]
    if outside and (found := of_library(outside[-1], outside[0])) is not None:
        return found
    # What a framework does for a line that prints is no printing.
    if inner is None or any(kind_of(x.file) is Kind.DEVICE for x in outside):
        return None
    names = [callee(call) for call in calls(inner.file, inner.line)]
    modules = imports(inner.file)
    # Decorators stand before some that score: then only the import says whose they are.
    if outside and any(
        is_module(Role.METRIC, modules.get(name.partition(".")[0], "")) for name in names
    ):
        return Phase.METRICS
    if is_call(Role.SYNC, names):
        return _around(inner.file, inner.line)
    return of_calls(names)


def _of_frames(frames: tuple[CodeLine, ...]) -> Aside | None:
    """Return what the user's lines are a part of, the outermost first."""
    due: Aside | None = None
    outer: CodeLine | None = None
    for line in reversed(frames):
        block = _blocks(line.file).get(line.line)
        named = _of_function(line.function)
        if named is Phase.VALIDATION and outer is not None and is_learned_from(outer):
            # An agent evaluates its actions, and learns from what comes of it.
            named = None
        outer = line
        # What is only due every few steps is what it calls says, if that says anything.
        if block is not None and block.phase is Phase.PERIODIC:
            due = due or block._replace(begins=line)
            block = None
        if block is None and named is not None:
            block = Aside(named)
        if block is not None:
            begins = line if due is None else due.begins
            return block._replace(begins=begins, due=block.due or due is not None)
    return due


def _of_tokenizer(chain: Chain) -> Aside | None:
    """Return where the user's own code cuts text into tokens, by the names alone."""
    if any(kind_of(x.file) is Kind.DEVICE for x in (chain.leaf, chain.called) if x):
        return None
    begins = None
    for inner, outer in zip_longest(chain.frames, chain.frames[1:]):
        is_one = _TOKENISES.fullmatch(inner.function) is not None
        if not is_one and outer is not None and _CODES.fullmatch(inner.function):
            is_one = any(_TOKENIZER.fullmatch(callee(x)) for x in calls(outer.file, outer.line))
        if is_one:
            begins = outer or inner
    return None if begins is None else Aside(Phase.TOKENISATION, begins)


def _of_function(name: str) -> Phase | None:
    if _VALIDATES.fullmatch(name):
        return Phase.VALIDATION
    return Phase.CHECKPOINT if _SAVING.fullmatch(name) else None


@lru_cache(maxsize=64)
def _blocks(file: str) -> dict[int, Aside]:
    """Return by line what a block of code is for: ``if step % 100 == 0``, or no gradients."""
    tree = tree_of(file)
    found: dict[int, Aside] = {}
    for node in () if tree is None else ast.walk(tree):
        some = [(body, _content(file, body)) for body in _due(node)]
        if isinstance(node, ast.FunctionDef) and _only_evaluates(node):
            some.append((node.body, Aside(Phase.VALIDATION, surely=True)))
        for body, block in some:
            lines = (n for x in body for n in range(x.lineno, (x.end_lineno or x.lineno) + 1))
            if block is None:
                continue
            # Of blocks within blocks the outer one counts: ``ast.walk`` comes to it first.
            for number in lines:
                found.setdefault(number, block)
    return found


def _due(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield what is done every few steps by the source, whichever way round it says so."""
    if isinstance(node, ast.If) and _counts(node.test):
        yield node.body
    # ``if step % 100: return``, and the rest of the function is seldom. Who makes data skips some.
    if not isinstance(node, ast.FunctionDef) or _yields(node):
        return
    for number, each in enumerate(node.body):
        if isinstance(each, ast.If) and _counts(each.test) and _only_returns(each):
            yield node.body[number + 1 :]


def _yields(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _only_returns(test: ast.If) -> bool:
    only = test.body[0]
    return isinstance(only, ast.Return) and only.value is None and not test.orelse


def _counts(test: ast.expr) -> bool:
    """Tell whether it goes by the number of a step, or by how long something is ago."""
    nodes = list(ast.walk(test))
    clocks = (callee(x).rpartition(".")[2] for x in nodes if isinstance(x, ast.Call))
    return any(isinstance(x, ast.Mod) for x in nodes) or any(x in _CLOCKS for x in clocks)


def _content(file: str, body: list[ast.stmt]) -> Aside | None:
    """Return what is due every few steps; ``None``: training itself, and the play for it."""
    names = list(_called(body))
    # Who only leaves the loop does nothing there.
    if not names or trains(file, body):
        return None
    last = {name.rpartition(".")[2] for name in names}
    if last & _NO_GRADIENTS or any(map(_VALIDATES.fullmatch, last)):
        return Aside(Phase.VALIDATION, surely=bool(last & _NO_GRADIENTS), due=True)
    saves = of_calls(names) is Phase.CHECKPOINT
    if saves or any(map(_SAVING.fullmatch, last)):
        return Aside(Phase.CHECKPOINT, surely=saves, due=True)
    return None if plays(file, body) else Aside(Phase.PERIODIC, due=True)


def _only_evaluates(function: ast.FunctionDef) -> bool:
    """Tell whether a function sets a model to evaluate it on more than one batch."""
    whole = [*function.decorator_list, *function.body]
    last = {name.rpartition(".")[2] for name in _called(whole)} | {
        dotted(each).rpartition(".")[2] for each in function.decorator_list
    }
    loops = any(isinstance(node, _LOOPS) for each in function.body for node in ast.walk(each))
    return loops and "eval" in last and bool(last & _NO_GRADIENTS) and not last & _TRAINS


@lru_cache(maxsize=256)
def _around(file: str, line: int) -> Phase:
    """Return what is written to the disk by a line that only waits for that."""
    tree = tree_of(file)
    bodies = [
        node
        for node in (() if tree is None else ast.walk(tree))
        if isinstance(node, ast.If | ast.With | ast.FunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    for node in sorted(bodies, key=lambda node: -node.lineno):
        found = of_calls(_called(node.body))
        if found is not None:
            return found
    return Phase.LOGGING


def _called(some: Sequence[ast.AST]) -> Iterator[str]:
    for each in some:
        for node in ast.walk(each):
            if isinstance(node, ast.Call):
                yield callee(node)
