"""The progress of a trace that a person requested, as the recorder reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from whyidle.monitor.core.contracts.trace import JsonObject


class State(StrEnum):
    """The progress of a requested trace."""

    NONE = "none"
    WAITING = "waiting"
    TAKING = "taking"
    READING = "reading"
    KEPT = "kept"
    REFUSED = "refused"


# The longest sentence in letters: two of them, at four bytes a letter, fit into a line.
LONGEST: Final = 400
_OVER: Final = {State.NONE, State.KEPT, State.REFUSED}
_NOTHING: Final = "No trace was asked for."


@dataclass(frozen=True, slots=True)
class Asked:
    """The last request, in sentences for a screen; parts of them come from the job."""

    state: State = State.NONE
    what: str = _NOTHING
    next_step: str = ""
    # Its number in the store, once stored.
    trace: int | None = None
    asked_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether it is done, or will never be."""
        return self.state in _OVER

    def as_json(self) -> JsonObject:
        """Return the form that goes over the line."""
        return {
            "state": self.state.value,
            "what": short(self.what),
            "next_step": short(self.next_step),
            "trace": self.trace,
            "asked_ms": self.asked_ms,
        }

    @classmethod
    def from_json(cls, received: object) -> Asked | None:
        """Return what came over the line; ``None`` if its form is unknown."""
        if not isinstance(received, Mapping) or received.get("state") not in set(State):
            return None
        what, step = received.get("what"), received.get("next_step")
        return cls(
            State(received["state"]),
            what if isinstance(what, str) else "",
            step if isinstance(step, str) else "",
            _number(received.get("trace")),
            _number(received.get("asked_ms")),
        )


def short(text: str) -> str:
    """Shorten a sentence so that two of them fit into a line."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _number(value: object) -> int | None:
    return value if type(value) is int else None
