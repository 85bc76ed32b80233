"""What the last trace of a job told, small enough for every tick to carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whyidle.monitor.processes.process import ProcessKey


@dataclass(frozen=True, slots=True)
class News:
    """Something about traces that is worth keeping."""

    kind: str
    key: ProcessKey
    text: str
    severity: str = "info"
    # On our monotonic clock, in seconds; ``None``: now.
    at: float | None = None
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A trace that was taken and understood."""

    # Its number in the store; ``None`` where it could not be kept, and ``trouble`` says why.
    trace: int | None
    key: ProcessKey
    rank: int | None
    framework: str
    # In words: by which way.
    how: str
    # When its window began, on the recording's clock.
    ts_ms: int
    # The same on our monotonic clock, in seconds, and how long it was.
    at: float
    seconds: float
    # How long the job stood still for it; ``None`` where nobody can tell.
    held_ns: int | None
    # As in the answer of ``monitor trace --json``.
    format: str
    budget: Mapping[str, Any]
    step_budget: Mapping[str, Any] | None
    steps: Mapping[str, Any]
    # "gpu", "tpu" or "cpu" of each device in it, once each.
    kinds: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    trouble: str | None = None

    def age(self, now: float) -> float:
        """Return the seconds since it began."""
        return max(0.0, now - self.at)

    def as_json(self) -> dict[str, Any]:
        """Return what programs are told of it."""
        return {
            "id": self.trace,
            "pid": self.key.pid,
            "rank": self.rank,
            "framework": self.framework,
            "how": self.how,
            "ts_ms": self.ts_ms,
            "seconds": round(self.seconds, 6),
            "held_ns": self.held_ns,
            "format": self.format,
            "kinds": list(self.kinds),
            "steps": dict(self.steps),
            "budget": dict(self.budget),
            "step_budget": None if self.step_budget is None else dict(self.step_budget),
            "warnings": list(self.warnings),
            "trouble": self.trouble,
        }
