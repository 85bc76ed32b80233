"""A fix as a unified diff: what it changes, and the program with it.

It is applied to the very lines that it names, or not at all: it lies beside the program that it
was made for, so that one which does not fit was forgotten when that program changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

_HUNK: Final = re.compile(r"^@@ -(\d+),?(\d*) \+(\d+),?(\d*) @@.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Changed:
    """A line that the fix takes away or adds."""

    line: int
    text: str
    is_new: bool


class _Hunk(NamedTuple):
    """Lines that stand together, and where they begin in both programs, counted from zero."""

    old_at: int
    new_at: int
    # Each behind its sign. An editor may have cut the blank one of an empty line.
    lines: list[tuple[str, str]]

    def side(self, sign: str) -> list[str]:
        return [text for its, text in self.lines if its in ("", " ", sign)]


def applied(before: str, patch: str) -> str:
    """Return a program with its fix; ``ValueError``: the patch is for another one."""
    old = before.splitlines()
    new: list[str] = []
    done = 0
    for hunk in _hunks(patch):
        removed = hunk.side("-")
        new += old[done : hunk.old_at]
        if old[hunk.old_at :][: len(removed)] != removed or len(new) != hunk.new_at:
            raise ValueError(f"the patch does not fit at line {hunk.old_at + 1}")
        new += hunk.side("+")
        done = hunk.old_at + len(removed)
    return "\n".join([*new, *old[done:], ""])


def changed(patch: str) -> list[Changed]:
    """Return the lines that the fix takes away and adds."""
    found = []
    for hunk in _hunks(patch):
        old, new = hunk.old_at, hunk.new_at
        for sign, text in hunk.lines:
            old += sign != "+"
            new += sign != "-"
            if sign in ("-", "+"):
                is_new = sign == "+"
                found.append(Changed(new if is_new else old, text, is_new))
    return found


def _hunks(patch: str) -> Iterator[_Hunk]:
    _, *parts = _HUNK.split(patch)
    if not parts:
        raise ValueError("the patch changes nothing")
    for old_at, removed, new_at, added, body in zip(*[iter(parts)] * 5, strict=True):
        hunk = _Hunk(int(old_at) - 1, int(new_at) - 1, [(x[:1], x[1:]) for x in body.splitlines()])
        if [len(hunk.side(x)) for x in "-+"] != [int(removed or 1), int(added or 1)]:
            raise ValueError(f"the patch has not the lines that it names at line {old_at}")
        yield hunk
