"""What the first walk keeps of a file: its planes, their lines, and the names of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.protobuf import BYTES, VARINT, signed, text

METADATA: Final = "/host:metadata"
# What is kept of a name.
NAME: Final = 4 << 10


@dataclass(slots=True)
class Line:
    """Where the events of one line are, and what it says of itself."""

    begin: int
    end: int
    id: int = 0
    name: str = ""
    display_name: str = ""
    timestamp_ns: int = 0

    def learn(self, number: int, wire: int, value: int, data: bytes) -> None:
        """Take in one field that is no event."""
        if wire == VARINT and number == 1:
            self.id = signed(value)
        elif wire == VARINT and number == 3:
            self.timestamp_ns = signed(value)
        elif wire == BYTES and number == 2:
            self.name = text(data)
        elif wire == BYTES and number == 11:
            self.display_name = text(data)

    @property
    def label(self) -> str:
        """What to call it."""
        return self.display_name or self.name or f"line {self.id}"


@dataclass(frozen=True, slots=True)
class Proto:
    """Where an XLA module lies in the file."""

    name: str
    begin: int
    end: int


@dataclass(slots=True)
class Plane:
    """One plane: its lines and its names."""

    name: str = ""
    lines: list[Line] = field(default_factory=list)
    events: dict[int, bytes] = field(default_factory=dict)
    shown: dict[int, bytes] = field(default_factory=dict)  # display names, where they are better
    stats: dict[int, bytes] = field(default_factory=dict)
    facts: list[tuple[int, int | str, bool]] = field(default_factory=list)
    protos: list[Proto] = field(default_factory=list)

    @property
    def shows(self) -> bool:
        """Whether the names of its events are whole lines of HLO, and the display names are not."""
        return self.name.startswith("/device:TPU:")

    def fact(self, name: str) -> int | str | None:
        """Return what the plane says of itself."""
        for key, value, refers in self.facts:
            if self.stats.get(key) == name.encode():
                return text(self.stats.get(int(value), b"")) if refers else value
        return None


@dataclass(slots=True)
class Outline:
    """A file without its events."""

    planes: list[Plane] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dropped: int = 0
