"""What a codemod is. One codemod is one file beside this one, named after the change it makes.

A wrong patch is worse than none: a codemod proves from the source what its change relies on, and
refuses with a sentence wherever that cannot be proved.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from whyidle.monitor.code.names import Source
from whyidle.monitor.core.finding import Framework
from whyidle.monitor.fixes._change import Change, NotHere, Refused

T = TypeVar("T")

# What a user should know of a change to bfloat16.
OF_BFLOAT16: Final = (
    "Products have 8 bits of a fraction: losses agree to about a hundredth.",
    "Compare them by: --verify CMD --tolerance 0.02",
)
OTHER_MASKS: Final = "Dropout may draw other numbers: losses then differ by chance as well."


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a finding says of one file."""

    rule: str
    # Where it was found, the most important line first; none where no line is known.
    lines: tuple[int, ...] = ()
    # Cores that the job may use.
    cores: int = 1
    # The evidence of the finding, by its names.
    measured: tuple[tuple[str, float | str], ...] = ()

    def number(self, name: str) -> float | None:
        """Return a number that was measured."""
        found = dict(self.measured).get(name)
        return found if isinstance(found, int | float) else None

    def at(self, source: Source, *some: ast.AST) -> bool:
        """Tell whether it was found in one of some pieces."""
        return any(source.covers(x, line) for x in some for line in self.lines)

    def fits(self, source: Source, *some: ast.AST) -> bool:
        """Tell whether it was found in one of some pieces, or no line is known."""
        return not self.lines or self.at(source, *some)


@dataclass(frozen=True, slots=True)
class Codemod:
    """One change of source code, and the rules whose findings it mends."""

    title: str
    rules: tuple[str, ...]
    # It changes what is computed by more than rounding: only where the user allows it.
    changes_numbers: bool = False
    # Whose advice it is, where a program may use several: a loader of PyTorch's feeds JAX as well.
    framework: Framework | None = None
    # Of a rule with several cures it is those that say this.
    says: str = ""
    # Filled in by ``fixes.load``: what its file is called, and does.
    id: str = ""
    change: Callable[[Source, Wanted], Change] = lambda source, _: Change(source)


def first_of(some: Iterable[T], changed: Callable[[T], Change]) -> Change:
    """Return the first change that can be proved right; else why the first one cannot."""
    why: Refused | None = None
    for each in some:
        try:
            return changed(each)
        except Refused as refused:
            why = why or refused
    raise why or NotHere


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
    # What to do instead, where an option of the user's sets it: "start with --workers 8".
    instead: str | None = None
    # There is what a person has to change; else what cannot be proved.
    edits: bool = False
