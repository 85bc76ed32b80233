"""What a process of a job of several parts does in it, by the title that it gives itself.

Where it gives none, the loop that it runs says so (``recording/stacks/parts.py``).

Who serves prompts, or learns from what it generates, seldom does so in one process: a front takes
requests, an engine schedules them, workers compute. Only what computes is judged; the others wait
for it, or make it wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Final


class Role(StrEnum):
    """The part of a process, by its name in JSON."""

    WORKER = "worker"
    TRAINER = "trainer"
    ROLLOUT = "rollout"
    ENGINE = "engine"
    FRONT = "front"
    DETOKENIZER = "detokenizer"
    COORDINATOR = "coordinator"
    REWARD = "reward"
    LAUNCHER = "launcher"


# The first that fits. vLLM lets its users choose what stands before the colons.
_TITLES: Final[tuple[tuple[re.Pattern[str], Role], ...]] = tuple(
    (re.compile(look), role)
    for look, role in (
        (r"sglang::scheduler\w*", Role.WORKER),
        (r"sglang::detokenizer\w*", Role.DETOKENIZER),
        (r"sglang::data_parallel_controller\w*", Role.COORDINATOR),
        (r"sglang::tokenizer_worker\b.*", Role.FRONT),
        (r"ray::(RayWorkerWrapper|RayTrainWorker)\b.*", Role.WORKER),
        (r"ray::(\w*WorkerDict|\w*(Policy|Critic|Reference)ModelActor)\b.*", Role.TRAINER),
        (r"ray::\w*Reward\w*\b.*", Role.REWARD),
        (r"ray::(DPEngineCoreActor\w*)\b.*", Role.ENGINE),
        (r"ray::(\w*Rollout\w*|\w*HttpServer|AgentLoopWorker)\b.*", Role.ROLLOUT),
        (r"ray::\w*(TaskRunner|Driver)\b.*", Role.LAUNCHER),
        (r"\w+::EngineCore\w*", Role.ENGINE),
        (r"\w+::Worker\w*", Role.WORKER),
        (r"\w+::APIServer\w*", Role.FRONT),
        (r"\w+::DPCoordinator\w*", Role.COORDINATOR),
        (r"triton_python_backend_stub", Role.WORKER),
    )
)
# Who steps the device comes first; an engine does where it has no workers of its own. Who has no
# title may be anything.
_PLACES: Final[dict[Role | None, int]] = {
    Role.WORKER: 0,
    Role.TRAINER: 0,
    Role.ENGINE: 1,
    Role.ROLLOUT: 2,
    None: 3,
    Role.FRONT: 4,
    Role.DETOKENIZER: 4,
    Role.COORDINATOR: 4,
    Role.REWARD: 4,
    Role.LAUNCHER: 4,
}


def title_of(arguments: Sequence[str]) -> str | None:
    """Return the title that a process gave itself in place of its arguments."""
    first = PurePath(arguments[0]).name if arguments else ""
    return first if any(look.fullmatch(first) for look, _ in _TITLES) else None


def role_of(title: str | None) -> Role | None:
    """Return the part of a process with this title; ``None``: the title does not say."""
    return next((role for look, role in _TITLES if title and look.fullmatch(title)), None)


def known(role: str | None) -> Role | None:
    """Return the part of this name; ``None``: another version's."""
    return Role(role) if role in set(Role) else None


class Order:
    """The order in which the processes of one job stand for it."""

    def __init__(self, roles: Iterable[Role | None]) -> None:
        # Ranks, loaders and whatever else a program starts keep their order.
        self._has_parts = any(role is not None for role in roles)

    def place(self, role: Role | None, *, trains: bool) -> int:
        """Return the place of a process; ``trains``: something in it marks steps."""
        if not self._has_parts:
            return 0
        return _PLACES[Role.TRAINER if role is None and trains else role]
