"""What a loop may do besides its steps, and which libraries and calls it does that with.

A package that a stack is in says what is done there, whatever the user called the function
around it. Of what is written in C no line is seen: there the names on the user's line say it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from whyidle.monitor.libraries.frames import first, is_call, plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import CodeLine


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
    Phase.TOKENISATION: "tokenising on the host",
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


def of_library(leaf: CodeLine | None, called: CodeLine | None) -> Phase | None:
    """Return what is done where a thread was found, or in what the user's line called."""
    found = first(_ROLES, called) or first(_ROLES, leaf)
    if found is not None:
        return _ROLES[found]
    # Only where it is the innermost: what goes through a bar of progress is in it, too.
    return Phase.LOGGING if plays(Role.BAR, leaf) else None


def of_calls(names: Iterable[str]) -> Phase | None:
    """Return what is done by calling such names; the first in the order of phases counts."""
    names = tuple(names)
    done = (role for role in (Role.CHECKPOINT, Role.LOG) if is_call(role, names))
    found = next(done, None)
    return None if found is None else _ROLES[found]
