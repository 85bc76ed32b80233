"""The cases: public programs by repository and commit, what runs them offline, and their truth.

A file of ``cases/`` holds those of one kind. No line of a program stands there: an edit names lines
of the pinned commit by their numbers and says what we put in their place.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from benchmarks.faultbench.truth import TURN_S

CASES: Final = Path(__file__).parent / "cases"
Side = Literal["tune", "heldout"]
# A place in a program: its file, and the line.
At = tuple[str, int]


class MalformedError(ValueError):
    """A case that does not say what it must."""


def _at(text: str) -> At:
    file, _, line = text.rpartition(":")
    if not file or not line.isdecimal():
        raise MalformedError(f"{text!r} is no file:line")
    return file, int(line)


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of a file, from the first to the last, and what stands there instead."""

    file: str
    first: int
    last: int
    put: str

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Read it; raises MalformedError."""
        lines = table["lines"]
        first, last = (lines, lines) if isinstance(lines, int) else lines
        if not 0 < first <= last:
            raise MalformedError(f"lines {lines} of {table['file']}")
        return cls(table["file"], first, last, table["put"])


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the program whose gain is measured: worth making, or a rule's literal advice."""

    name: str
    # The rules whose advice it follows.
    follows: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    # Options that replace those of the command, or are added to it.
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Read it; raises MalformedError."""
        return cls(
            table["name"],
            tuple(table.get("follows", ())),
            tuple(map(Edit.of, table.get("edits", ()))),
            tuple(table.get("arguments", ())),
            table.get("environment", {}),
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One public program, and how it is run and judged."""

    name: str
    kind: str
    repository: str
    commit: str
    licence: str
    # What is checked out of it, and where the program runs in it.
    paths: tuple[str, ...]
    folder: str
    command: tuple[str, ...]
    # What shows its progress: ``file.py:LINE`` of a simple statement, or ``call:MODULE:NAME``.
    tick: str
    healthy: bool
    # What profilers say of it, in a sentence with lines; these lines; and the rules whose
    # statement is right as the first one. Empty: it runs, and nobody has profiled it yet.
    truth: str
    main: tuple[At, ...]
    acceptable: tuple[str, ...]
    # Where a step of its optimizer ends, where that is another line; ``""``: it makes none.
    step: str | None = None
    edits: tuple[Edit, ...] = ()
    # Folders from which it imports beside its own, and what its authors have run once before.
    path: tuple[str, ...] = ()
    prepare: tuple[tuple[str, ...], ...] = ()
    # ``maker:place``: what of ``inputs.py`` writes data, and where to.
    inputs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    # Commands that run beside it, as the clients of a server do.
    beside: tuple[tuple[str, ...], ...] = ()
    watched_s: int = 25
    # What it does seldom, such as a validation, falls into each turn in which gains are measured.
    turn_s: float = TURN_S
    changes: tuple[Change, ...] = ()

    @property
    def side(self) -> Side:
        """Whether rules may be fitted to it: all programs of a repository are on one side."""
        drawn = hashlib.sha256(f"strangers {self.repository}".encode()).digest()[0]
        return ("tune", "heldout")[drawn % 2]  # type: ignore[return-value]

    @classmethod
    def of(cls, name: str, kind: str, table: Mapping[str, Any]) -> Self:
        """Read it; raises MalformedError."""
        try:
            return cls(
                name=name,
                kind=kind,
                repository=table["repository"],
                commit=table["commit"],
                licence=table["licence"],
                paths=tuple(table.get("paths", ["."])),
                folder=table.get("folder", "."),
                command=tuple(table["command"]),
                tick=table["tick"],
                healthy=table["healthy"],
                truth=table["truth"],
                main=tuple(map(_at, table.get("main", ()))),
                acceptable=tuple(table.get("acceptable", ())),
                step=table.get("step"),
                edits=tuple(map(Edit.of, table.get("edits", ()))),
                path=tuple(table.get("path", ())),
                prepare=tuple(map(tuple, table.get("prepare", ()))),
                inputs=tuple(table.get("inputs", ())),
                environment=table.get("environment", {}),
                beside=tuple(map(tuple, table.get("beside", ()))),
                watched_s=table.get("watched_s", 25),
                turn_s=table.get("turn_s", TURN_S),
                changes=tuple(map(Change.of, table.get("change", ()))),
            )
        except KeyError as error:
            raise MalformedError(f"{name}: {error} is missing") from error


def cases(only: Sequence[str] = (), kinds: Sequence[str] = ()) -> Iterator[Case]:
    """Yield every case, or those of these names and kinds."""
    for path in sorted(CASES.glob("*.toml")):
        for name, table in tomllib.loads(path.read_text()).items():
            case = Case.of(name, path.stem, table)
            if (not only or name in only) and (not kinds or case.kind in kinds):
                yield case
