"""A trace that a person asked for: how far it has come, as the recorder tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from whyidle.monitor.core.contracts.trace import JsonObject


class State(StrEnum):
    """How far a trace has come that was asked for."""

    NONE = "none"
    WAITING = "waiting"
    TAKING = "taking"
    READING = "reading"
    KEPT = "kept"
    REFUSED = "refused"


# Letters of a sentence: two of them, four bytes each, stay within a line.
LONGEST: Final = 400
_OVER: Final = {State.NONE, State.KEPT, State.REFUSED}
_NOTHING: Final = "No trace was asked for."


@dataclass(frozen=True, slots=True)
class Asked:
    """The last one that was asked for, in sentences for a screen; part of them says the job."""

    state: State = State.NONE
    what: str = _NOTHING
    next_step: str = ""
    # Its number in the store, once it is kept.
    trace: int | None = None
    asked_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will come of it."""
        return self.state in _OVER

    def as_json(self) -> JsonObject:
        """Return it for the line."""
        return {
            "state": self.state.value,
            "what": short(self.what),
            "next_step": short(self.next_step),
            "trace": self.trace,
            "asked_ms": self.asked_ms,
        }

    @classmethod
    def from_json(cls, told: object) -> Asked | None:
        """Return what came over the line; ``None`` where it is none that we know."""
        if not isinstance(told, Mapping) or told.get("state") not in set(State):
            return None
        what, step = told.get("what"), told.get("next_step")
        return cls(
            State(told["state"]),
            what if isinstance(what, str) else "",
            step if isinstance(step, str) else "",
            _number(told.get("trace")),
            _number(told.get("asked_ms")),
        )


def short(text: str) -> str:
    """Return a sentence that has room in a line with another one."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _number(value: object) -> int | None:
    return value if type(value) is int else None
