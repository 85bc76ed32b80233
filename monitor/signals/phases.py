"""Which part of a loop a stack is in: its steps, or what it does besides them.

What the job's own code marks comes first. Else the act says it: the package that a stack is in,
whatever the user called the function around it; of what is written in C no line is seen, there the
names on the user's line or block say it. The names of the user's functions count where nothing else
says so, and all the rest are steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from itertools import zip_longest
from typing import Final, NamedTuple

from whyidle.monitor.code.blocks import NO_GRADIENTS, Block, blocks, called_around
from whyidle.monitor.code.environments import step_line
from whyidle.monitor.code.growing import grown_at
from whyidle.monitor.code.source import callee, calls, imports
from whyidle.monitor.code.trains import is_learned_from, trains_around
from whyidle.monitor.libraries.frames import first, is_call, is_module, kind_of, plays
from whyidle.monitor.libraries.table import Kind, Role
from whyidle.monitor.libraries.users import is_users
from whyidle.monitor.runs.stacks import Chain, CodeLine


class Phase(StrEnum):
    """A part of the loop, by its name in the JSON contract."""

    STEP = "step"
    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    LOGGING = "logging"
    METRICS = "metrics"
    ENVIRONMENT = "environment"
    GENERATION = "generation"
    TOKENISATION = "tokenisation"
    PERIODIC = "periodic"
    EPOCH = "epoch"


WORDS: Final = {
    Phase.STEP: "the steps",
    Phase.VALIDATION: "validation",
    Phase.CHECKPOINT: "saving checkpoints",
    Phase.LOGGING: "logging",
    Phase.METRICS: "scoring on the host",
    Phase.ENVIRONMENT: "stepping environments",
    Phase.GENERATION: "generating tokens",
    Phase.TOKENISATION: "tokenizing on the host",
    Phase.PERIODIC: "what is due every few steps",
    Phase.EPOCH: "what lies between epochs",
}
# While these go on no step does: the device has nothing to do, or does what is theirs.
STOPPING: Final = frozenset({Phase.VALIDATION, Phase.CHECKPOINT})
# What is no part of a step, and could be left out of it.
BESIDE: Final = STOPPING | {Phase.LOGGING, Phase.METRICS, Phase.PERIODIC}
_ROLES: Final = {
    Role.CHECKPOINT: Phase.CHECKPOINT,
    Role.LOG: Phase.LOGGING,
    Role.METRIC: Phase.METRICS,
    Role.ENVIRONMENT: Phase.ENVIRONMENT,
    Role.TOKENIZATION: Phase.TOKENISATION,
    Role.GENERATE: Phase.GENERATION,
    Role.VALIDATE: Phase.VALIDATION,
}
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
# What trainers and users mark (core/marks.py).
_MARKED: Final = {
    str(phase): phase for phase in (Phase.VALIDATION, Phase.CHECKPOINT, Phase.LOGGING, Phase.EPOCH)
}


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
    return Aside(marked, chain.user, surely=True, marked=True)


def _guessed(chain: Chain) -> Aside:
    """Return the phase by the lines alone."""
    named = _of_frames(chain.frames)
    phase = _act(chain)
    stepping = step_line(chain.frames)
    # What is played every few steps, and not learned from, evaluates.
    is_due = named is not None and named.phase is Phase.VALIDATION and named.due
    if stepping is not None and phase in {None, Phase.ENVIRONMENT} and not is_due:
        return Aside(Phase.ENVIRONMENT, stepping, surely=True)
    # What is saved or written while validating is so all the same.
    parts = _PARTS | {Phase.ENVIRONMENT} if is_due else _PARTS
    if phase is None or (phase in parts and named is not None):
        return named or _of_tokenizer(chain) or Aside(Phase.STEP)
    if named is not None and named.phase in {phase, Phase.PERIODIC}:
        return Aside(phase, named.begins, surely=True, due=named.due)
    return Aside(phase, chain.user, surely=True)


def _act(chain: Chain) -> Phase | None:
    """Return what is done by the library that a chain is in, or by the user's line."""
    inner = chain.user
    outside = [x for x in (chain.called, chain.leaf) if x is not None and not is_users(x.file)]
    if outside:
        role = first(_ROLES, outside[0]) or first(_ROLES, outside[-1])
        if role is not None:
            return _ROLES[role]
        # Only where it is the innermost: what goes through a bar of progress is in it, too.
        if plays(Role.BAR, outside[-1]):
            return Phase.LOGGING
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
        # What is written to the disk by a line that only waits for that, its block says.
        around = map(_of_calls, called_around(inner.file, inner.line))
        return next(filter(None, around), Phase.LOGGING)
    return _of_calls(names)


def _of_calls(names: Iterable[str]) -> Phase | None:
    """Return what is done by calling such names; the first in the order of phases counts."""
    names = tuple(names)
    roles = (role for role in (Role.CHECKPOINT, Role.LOG) if is_call(role, names))
    return next((_ROLES[role] for role in roles), None)


def _of_frames(frames: tuple[CodeLine, ...]) -> Aside | None:
    """Return what the user's lines are a part of, the outermost first."""
    due: Aside | None = None
    outer: CodeLine | None = None
    for line in reversed(frames):
        block = _blocks(line.file).get(line.line)
        named: Phase | None = None
        if _VALIDATES.fullmatch(line.function):
            # An agent evaluates its actions, and learns from what comes of it.
            is_learning = outer is not None and is_learned_from(outer)
            named = None if is_learning else Phase.VALIDATION
        elif _SAVING.fullmatch(line.function):
            named = Phase.CHECKPOINT
        outer = line
        # Gradients may be switched off inside a loop that generates, or around all of it.
        off = block is not None and not block.due
        if named is None and due is None and (block is None or off):
            # Of a program that trains it is a validation that generates.
            inner = frames if off and not any(map(trains_around, frames)) else (line,)
            grown = next((x for x in reversed(inner) if grown_at((x,)) is not None), None)
            if grown is not None:
                return Aside(Phase.GENERATION, grown, surely=True)
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


@lru_cache(maxsize=64)
def _blocks(file: str) -> dict[int, Aside]:
    """Return by line what a block of code is for: ``if step % 100 == 0``, or no gradients."""
    found: dict[int, Aside] = {}
    for block in blocks(file):
        aside = _content(block) if block.due else Aside(Phase.VALIDATION, surely=True)
        if aside is not None:
            # Of blocks within blocks the outer one counts.
            found = dict.fromkeys(block.lines, aside) | found
    return found


def _content(block: Block) -> Aside | None:
    """Return what is due every few steps; ``None``: training itself, and the play for it."""
    names = block.names
    # Who only leaves the loop does nothing there.
    if not names or block.trains:
        return None
    last = {name.rpartition(".")[2] for name in names}
    is_sure = bool(last & NO_GRADIENTS) or block.evaluates
    if is_sure or any(map(_VALIDATES.fullmatch, last)):
        return Aside(Phase.VALIDATION, surely=is_sure, due=True)
    saves = _of_calls(names) is Phase.CHECKPOINT
    if saves or any(map(_SAVING.fullmatch, last)):
        return Aside(Phase.CHECKPOINT, surely=saves, due=True)
    return None if block.plays else Aside(Phase.PERIODIC, due=True)
