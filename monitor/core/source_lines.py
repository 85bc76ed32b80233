"""A line of the user's code, and how much of the time was spent there."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.monitor.core.contracts.diagnosis import PlaceJson


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of code and the share of samples that found the main thread there."""

    file: str
    line: int
    function: str
    share: float

    def as_json(self) -> PlaceJson:
        """Return it as the answers have it."""
        return {
            "file": self.file,
            "line": self.line,
            "function": self.function,
            "share": round(self.share, 4),
        }
