"""What a loop may do besides its steps, and which libraries and calls it does that with.

A package that a stack is in says what is done there, whatever the user called the function
around it. Of what is written in C no line is seen: there the names on the user's line say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from whyidle.monitor.libraries.frames import first, plays
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
# What a line calls, as in "np.savez"; whose methods these are is not known.
_CALLS: Final = {
    Phase.CHECKPOINT: re.compile(
        r"(torch|np|numpy|jnp|jax\.numpy)\.save(z(_compressed)?)?|(pickle|cloudpickle|dill)\.dump"
        r"|joblib\.dump|(.*\.)?(save_pretrained|save_checkpoint|save_weights|save_model|save_state"
        r"|save_file|async_save|tree_serialise_leaves|msgpack_serialize|to_bytes)"
        r"|(.*\.)?\w*(ckpt|checkpoint)\w*\.save"
    ),
    Phase.LOGGING: re.compile(
        r"print|(.*\.)?(write|writelines|flush|writerow|writerows|to_csv|savefig|log_metrics?"
        r"|add_(scalar|scalars|histogram|image|images|figure|text|graph))|json\.dump|wandb\.log"
        r"|(log|logger|logging)\.(debug|info|warning|error|log)"
    ),
}
# Decorators stand before some of these functions: then only the import says whose they are.
_SCORES: Final = re.compile(
    r"(sklearn|torcheval|ignite)\.metrics(\..*)?|(torchmetrics|evaluate|seqeval|sacrebleu)(\..*)?"
)
# To write to the disk what was written before.
_SYNCS: Final = re.compile(r"os\.(sync|fsync|fdatasync)")


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
    for phase, pattern in _CALLS.items():
        if any(map(pattern.fullmatch, names)):
            return phase
    return None


def scores(modules: Iterable[str]) -> bool:
    """Tell whether something was imported from a package that scores."""
    return any(map(_SCORES.fullmatch, modules))


def syncs(names: Iterable[str]) -> bool:
    """Tell whether one of them waits for the disk."""
    return any(map(_SYNCS.fullmatch, names))
