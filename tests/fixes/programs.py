"""Small programs, and what a codemod makes of them."""

from __future__ import annotations

import difflib
import pickle
import subprocess
import sys
from textwrap import dedent
from typing import Any

from whyidle.monitor import fixes
from whyidle.monitor.fixes import Patch, Refusal, Wanted


def tried(
    codemod: str, program: str, *marks: str, cores: int = 4, **measured: float
) -> Patch | Refusal | None:
    """Apply a codemod to a program; what was found is where ``marks`` stand."""
    text = dedent(program).lstrip("\n")
    lines = [n for mark in marks for n, line in enumerate(text.splitlines(), 1) if mark in line]
    wanted = Wanted("test", tuple(lines), cores, tuple(measured.items()))
    return fixes.patched(fixes.load()[codemod], "/job/train.py", text, wanted)


def change(
    codemod: str, program: str, *marks: str, cores: int = 4, **measured: float
) -> tuple[list[str], list[str]]:
    """Return the lines that go, and those that come; the program must get a patch."""
    found = tried(codemod, program, *marks, cores=cores, **measured)
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


# JAX has threads of its own, and a process that has them cannot be forked by other tests.
_RUNS = """
import pickle, sys
import jax, numpy as np
def ran(text):
    names = {}
    exec(compile(text, "train.py", "exec"), names)
    return [np.asarray(x) for x in jax.tree.leaves(names["run"]())]
found = [ran(text) for text in pickle.load(sys.stdin.buffer)]
pickle.dump(found, sys.stdout.buffer)
"""


def results_of(found: Patch | Refusal | None) -> tuple[list[Any], list[Any]]:
    """Run what a patch changes before and after it; return the arrays that ``run()`` returned."""
    assert isinstance(found, Patch), found
    texts = pickle.dumps([found.before, found.after])
    command = [sys.executable, "-c", _RUNS]
    done = subprocess.run(command, input=texts, stdout=subprocess.PIPE, check=True)
    before, after = pickle.loads(done.stdout)
    return before, after
