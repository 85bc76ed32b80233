"""What a codemod is. One codemod is one file beside this one, named after the change it makes.

A wrong patch is worse than none: a codemod proves from the source what its change relies on, and
refuses with a sentence wherever that cannot be proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from whyidle.monitor.fixes._pieces import dotted
from whyidle.monitor.fixes._source import Edit, Source

# What a user should know of a change to bfloat16.
OF_BFLOAT16: Final = (
    "Products have 8 bits of a fraction: losses agree to about a hundredth.",
    "Compare them by: --verify CMD --tolerance 0.02",
)
OTHER_MASKS: Final = "Dropout may draw other numbers: losses then differ by chance as well."


class Refused(Exception):  # noqa: N818  an answer, not a defect
    """The change cannot be proved right here: why, and at which line."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.why, self.line = why, line


class NotHere(Exception):  # noqa: N818  an answer, not a defect
    """There is nothing in this file that this codemod changes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a finding says of one file."""

    rule: str
    # Where it was found, the most important line first; none where no line is known.
    lines: tuple[int, ...] = ()
    # Cores that the job may use.
    cores: int = 1


@dataclass(slots=True)
class Change:
    """What becomes of which piece of the source, and what a user should know of it."""

    edits: dict[cst.CSTNode, Edit] = field(default_factory=dict)
    # What is different for the user afterwards, in sentences.
    notes: list[str] = field(default_factory=list)
    # Modules that must be imported.
    imports: list[str] = field(default_factory=list)

    def replace(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        """Put a new piece in the place of an old one."""
        self.edits[old] = lambda _: new

    def after_imports(self, source: Source, line: str) -> None:
        """Say something once, before anything else is done."""
        imports = [x for x in source.module.body if _is_import(x)]
        new = cst.parse_statement(line).with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        self.edits[imports[-1]] = lambda old: cst.FlattenSentinel([old, new])

    def spelling(self, source: Source, name: str, at: cst.CSTNode) -> str:
        """Return how ``module.name`` is written at a place, importing its module where it must."""
        known = source.spelt(name, at)
        if known is not None:
            return known
        module = name.partition(".")[0]
        if module in source.words:
            raise Refused(f"{module} means something else here", source.line(at))
        self.imports.append(module)
        return name


def _is_import(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom) and first.module is not None:
        return dotted(first.module) != "__future__"
    return isinstance(first, cst.Import | cst.ImportFrom)


@dataclass(frozen=True, slots=True)
class Codemod:
    """One change of source code, and the rules whose findings it mends."""

    title: str
    rules: tuple[str, ...]
    change: Callable[[Source, Wanted], Change]
    # It changes what is computed by more than rounding: only where the user allows it.
    changes_numbers: bool = False
    # Filled in by ``fixes.load``.
    id: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """One file before and after."""

    file: str
    before: str
    after: str
    codemod: str
    title: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no patch."""

    codemod: str | None
    why: str
    file: str | None = None
    line: int | None = None


Codemods = Mapping[str, Sequence[Codemod]]
