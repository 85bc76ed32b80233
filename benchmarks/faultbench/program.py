"""The source of one program of a family: its files, its anchors, and edits that count lines.

Anchors are comments of the form ``#@ kind key=NAME ..`` where a statement could stand. A mutation
puts code there; lines that it added or changed are what a finding should point at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

FAMILIES: Final = Path(__file__).parent / "families"
KINDS: Final = ("imports", "setup", "step", "sample", "batch", "epoch", "forward")
_ANCHOR: Final = re.compile(r"^(?P<indent>\s*)#@ (?P<kind>\w+)(?P<keys>.*)$")
_KEY: Final = re.compile(r"(\w+)=(\S+)")
# Ends a line that belongs to the fault, until the program is written.
MARK: Final = "  #!fault"


class NotApplicable(Exception):  # noqa: N818  no error: another case is tried
    """The program has no place for this fault."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place for a statement, and the names that are valid there."""

    file: str
    line: int
    indent: str
    kind: str
    names: dict[str, str]

    def list(self, key: str) -> list[str]:
        """Return the names under a key."""
        return [name for name in self.names.get(key, "").split(",") if name]


@dataclass(slots=True)
class Program:
    """One program as text; edits change it in place."""

    family: str
    files: dict[str, list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    # Programs that run beside it, as arguments for the shell.
    neighbours: int = 0

    @classmethod
    def of_family(cls, family: str) -> Self:
        """Read the healthy program."""
        folder = FAMILIES / family
        paths = sorted(folder.rglob("*.py"))
        return cls(family, {str(p.relative_to(folder)): p.read_text().splitlines() for p in paths})

    @property
    def text(self) -> str:
        """All of its source."""
        return "\n".join("\n".join(lines) for lines in self.files.values())

    @property
    def framework(self) -> str:
        """What computes: programs of Keras say it by the backend that they choose."""
        for name in ("jax", "tensorflow"):
            says = rf"KERAS_BACKEND.*{name}|^\s*(import|from) {name}\b"
            if re.search(says, self.text, re.MULTILINE):
                return name
        return "torch"

    def anchors(self, kind: str) -> Iterator[Anchor]:
        """Yield the anchors of a kind."""
        for file, lines in self.files.items():
            for number, text in enumerate(lines):
                found = _ANCHOR.match(text)
                if found and found["kind"] == kind:
                    names = dict(_KEY.findall(found["keys"]))
                    yield Anchor(file, number, found["indent"], kind, names)

    def anchor(self, kind: str, *needed: str) -> Anchor:
        """Return the first anchor that has these names."""
        for each in self.anchors(kind):
            if all(key in each.names for key in needed):
                return each
        raise NotApplicable(f"{self.family} has no `#@ {kind} {' '.join(needed)}`")

    def insert(self, at: Anchor, code: str, *, is_fault: bool = True) -> None:
        """Put statements before an anchor."""
        new = [at.indent + line for line in code.strip("\n").splitlines()]
        if is_fault:
            new = [line + MARK for line in new]
        # The anchor itself moves down: look for it anew.
        lines = self.files[at.file]
        here = next(
            i for i, text in enumerate(lines)
            if i >= at.line and (m := _ANCHOR.match(text)) and m["kind"] == at.kind
        )  # fmt: skip
        lines[here:here] = new

    def replace(self, pattern: str, by: str, *, files: Iterable[str] | None = None) -> int:
        """Replace in each line; return how many lines changed."""
        changed = 0
        for file in files or self.files:
            for number, text in enumerate(self.files[file]):
                new = re.sub(pattern, by, text)
                if new != text:
                    self.files[file][number] = new + MARK
                    changed += 1
        return changed

    def write(self, folder: Path) -> list[tuple[str, int]]:
        """Write it as an ordinary program; return the lines of the fault."""
        found = []
        for file, lines in self.files.items():
            out = []
            for text in lines:
                if _ANCHOR.match(text):
                    continue
                out.append(text.removesuffix(MARK))
                if text.endswith(MARK):
                    found.append((file, len(out)))
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(out) + "\n")
        return found


def families() -> list[str]:
    """Return the names of all families."""
    return sorted(path.parent.name for path in FAMILIES.glob("*/main.py"))
