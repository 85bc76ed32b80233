"""Small programs, and what a codemod makes of them."""

from __future__ import annotations

import difflib
from textwrap import dedent
from typing import Any

from whyidle.monitor import fixes
from whyidle.monitor.fixes import Patch, Refusal, Wanted


def tried(codemod: str, program: str, *marks: str, cores: int = 4) -> Patch | Refusal | None:
    """Apply a codemod to a program; what was found is where ``marks`` stand."""
    text = dedent(program).lstrip("\n")
    lines = [n for mark in marks for n, line in enumerate(text.splitlines(), 1) if mark in line]
    wanted = Wanted("test", tuple(lines), cores)
    return fixes.patched(fixes.load()[codemod], "/job/train.py", text, wanted)


def change(codemod: str, program: str, *marks: str, cores: int = 4) -> tuple[list[str], list[str]]:
    """Return the lines that go, and those that come; the program must get a patch."""
    found = tried(codemod, program, *marks, cores=cores)
    assert isinstance(found, Patch), found
    diff = [
        x
        for x in difflib.ndiff(found.before.splitlines(), found.after.splitlines())
        if x[0] in "+-"
    ]
    return [x[2:].strip() for x in diff if x[0] == "-"], [
        x[2:].strip() for x in diff if x[0] == "+"
    ]


def refused(codemod: str, program: str, *marks: str) -> str:
    """Return why there is no patch."""
    found = tried(codemod, program, *marks)
    assert isinstance(found, Refusal), found.after if found else "nothing of the kind was seen"
    assert "defect" not in found.why, found.why
    return found.why


def results_of(found: Patch | Refusal | None) -> tuple[list[Any], list[Any]]:
    """Run what a patch changes before and after it; return the arrays that ``run()`` returned."""
    import jax  # noqa: PLC0415  takes a second
    import numpy as np  # noqa: PLC0415

    assert isinstance(found, Patch), found
    ends = []
    for text in (found.before, found.after):
        names: dict[str, Any] = {}
        exec(compile(text, found.file, "exec"), names)
        ends.append([np.asarray(x) for x in jax.tree.leaves(names["run"]())])
    return ends[0], ends[1]
