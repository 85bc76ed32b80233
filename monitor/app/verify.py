"""A patch proved by running: the program as it is and as it would be, in turns."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from whyidle.monitor import fixes
from whyidle.monitor.core.contracts.fix import VerifiedJson
from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.demo import results
from whyidle.monitor.demo.in_turns import NO_STEPS, Program, in_turns
from whyidle.monitor.demo.outcome import promised
from whyidle.monitor.render.console import say

if TYPE_CHECKING:
    from whyidle.monitor.fixes import Fixed

NOT_RUN: Final = (
    "CMD did not run the changed file: it lies elsewhere, or is imported from an installed package."
)
CHECK_SECONDS: Final = 600.0
# A longer word names no file.
LONGEST: Final = 255


@dataclass(frozen=True, slots=True)
class Asked:
    """How to verify."""

    command: str
    check: str | None
    turns: int
    seconds: float
    tolerance: float


def verified(found: Fixed, asked: Asked) -> VerifiedJson:
    """Run both programs in turns, and say what came of it."""
    words = _words(asked.command)
    here = Path.cwd()
    root = fixes.root_of(list(found.texts), here)
    with tempfile.TemporaryDirectory(prefix="whyidle-fix-") as folder:
        copy = Path(folder) / "changed"
        fixes.copy(root, copy, found.texts)
        mine = Program(words, here)
        theirs = Program(*fixes.moved(words, root, copy, here))
        turns = in_turns(mine, theirs, asked.turns, asked.seconds, say)
        _check_run(found, theirs, root, copy)
        same = results.compared(
            [run.output for run in turns.a], [run.output for run in turns.b], asked.tolerance
        )
        if asked.check is not None:
            same = _checked(asked, root, copy, here)
    measured = turns.measured
    why = [x for x in (NO_STEPS if measured is None else None, same.why) if x]
    told = promised([finding for finding, _ in found.patches])
    return VerifiedJson(
        command=words,
        turns=asked.turns,
        step_ms=[turns.step_ms("a"), turns.step_ms("b")],
        predicted=None if told is None else [round(x, 3) for x in told],
        measured=[None] * 3 if measured is None else [
            None if x is None else round(x, 3) for x in measured.ends
        ],
        verdict=turns.verdict,
        results=same.equal,
        compared=same.compared,
        largest_difference=same.difference,
        tolerance=asked.tolerance,
        why=why,
    )  # fmt: skip


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageProblem(f"--verify: {error}.", "Quote it as in a shell.") from None
    if not words:
        raise UsageProblem("--verify names no command.", "Type: --verify 'python train.py'")
    return words


def _check_run(found: Fixed, theirs: Program, root: Path, copy: Path) -> None:
    """Refuse a measurement in which the changed code did not run."""
    for file in found.texts:
        path = copy / Path(file).resolve().relative_to(root)
        words = {(theirs.folder / word).resolve() for word in theirs.words if len(word) < LONGEST}
        is_script = path.resolve() in words
        if not is_script and not any((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")):
            raise Problem(NOT_RUN, f"Run the program by its path, from {root}.")


def _checked(asked: Asked, root: Path, copy: Path, here: Path) -> results.Results:
    """Run the user's own check with both, and compare what it prints."""
    words = _words(asked.check or "")
    printed = []
    for program in (Program(words, here), Program(*fixes.moved(words, root, copy, here))):
        say(f"checking: {' '.join(program.words)}")
        try:
            done = subprocess.run(  # noqa: S603  what the user asked to run
                program.words, cwd=program.folder, capture_output=True, text=True, errors="replace",
                timeout=CHECK_SECONDS, check=False,
            )  # fmt: skip
        except OSError as error:
            raise UsageProblem(
                f"--check cannot be started: {error.strerror}.",
                "Name a program: --check 'python evaluate.py'",
            ) from None
        except subprocess.TimeoutExpired:
            why = f"--check took longer than {CHECK_SECONDS:g} s"
            return results.Results("unknown", 0, None, why)
        if done.returncode:
            why = f"--check ended with code {done.returncode}: {done.stderr.strip()[-200:]}"
            return results.Results("different", 0, None, why)
        printed.append(done.stdout)
    if printed[0] == printed[1]:
        return results.Results("equal", len(printed[0].split()), 0.0)
    return results.compared(printed[:1], printed[1:], asked.tolerance)
