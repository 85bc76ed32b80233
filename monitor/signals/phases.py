"""What a loop does besides its steps: validation, checkpoints, and what is due every few steps.

A chain of lines belongs to a phase by what is called there, by where its lines stand, or by the
names of the user's functions; all the rest are steps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final

from whyidle.monitor.runs.stacks import Chain, CodeLine
from whyidle.monitor.signals.source import dotted, tree_of
from whyidle.monitor.traces.where.files import is_users


class Phase(StrEnum):
    """A part of the loop, by its name in the JSON contract."""

    STEP = "step"
    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    PERIODIC = "periodic"


WORDS: Final = {
    Phase.STEP: "the steps",
    Phase.VALIDATION: "validation",
    Phase.CHECKPOINT: "saving checkpoints",
    Phase.PERIODIC: "what is due every few steps",
}
_SAVES: Final = re.compile(
    r".*/(torch/(serialization|distributed/checkpoint/.*)|safetensors/.*|orbax/.*|flax/serialization"
    r"|flax/training/checkpoints|keras/src/saving/.*)\.py .*|.*/numpy/lib/_?npyio\w*\.py save\w*"
)
_EVALUATES: Final = re.compile(
    r".*/(lightning|pytorch_lightning)/.*/evaluation_loop\.py .*"
    r"|.*/(transformers/trainer|keras/src/\w+/trainer)\.py (evaluate|evaluation_loop)"
)
# Functions of the user's, in words: ``run_validation``, ``evalEpoch``, ``val_loop``.
_VALIDATES: Final = re.compile(r"(.*_)?([Ee]valuat\w*|[Vv]alidat\w*|[Ee]val|[Vv]al)(_.*|[A-Z].*)?")
_SAVING: Final = re.compile(r"(.*_)?([Ss]ave|[Cc]heckpoint|[Cc]kpt)(_.*|[A-Z].*)?")
_NO_GRADIENTS: Final = frozenset({"no_grad", "inference_mode"})


def phase_of(chain: Chain) -> tuple[Phase, CodeLine | None]:
    """Return the phase of a chain, and the line of the user's that begins it."""
    for line in reversed(chain.frames):
        phase = _of_function(line.function) or _of_block(line)
        if phase is not None:
            return phase, line
    inner = chain.frames[0] if chain.frames else None
    for outside in (chain.called, chain.leaf):
        if outside is None or is_users(outside.file):
            continue
        name = f"{outside.file} {outside.function}"
        if _SAVES.fullmatch(name):
            return Phase.CHECKPOINT, inner
        if _EVALUATES.fullmatch(name):
            return Phase.VALIDATION, inner
    return Phase.STEP, None


def _of_function(name: str) -> Phase | None:
    if _VALIDATES.fullmatch(name):
        return Phase.VALIDATION
    return Phase.CHECKPOINT if _SAVING.fullmatch(name) else None


def _of_block(line: CodeLine) -> Phase | None:
    """Return what a line is due for that runs every few steps: ``if step % 100 == 0``."""
    return _blocks(line.file).get(line.line)


@lru_cache(maxsize=64)
def _blocks(file: str) -> dict[int, Phase]:
    tree = tree_of(file)
    found: dict[int, Phase] = {}
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.If) and any(isinstance(x, ast.Mod) for x in ast.walk(node.test)):
            phase = _content(node)
            lines = (n for each in node.body for n in range(each.lineno, _end(each) + 1))
            # Of blocks within blocks the outer one counts: ``ast.walk`` comes to it first.
            for number in lines:
                found.setdefault(number, phase)
    return found


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _content(block: ast.If) -> Phase:
    names = set(_called(block))
    if names & _NO_GRADIENTS or any(map(_VALIDATES.fullmatch, names)):
        return Phase.VALIDATION
    return Phase.CHECKPOINT if any(map(_SAVING.fullmatch, names)) else Phase.PERIODIC


def _called(block: ast.If) -> Iterator[str]:
    for statement in block.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                yield dotted(node.func).rpartition(".")[2]
