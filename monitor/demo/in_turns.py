"""Two programs run in turns under ``monitor run``: how fast each is, and what each prints."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from whyidle.monitor import compare
from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.pace import paces, settled, verdict
from whyidle.monitor.compare.sides import Pace, Side
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.demo.printed import printed

# What a program, its recorder and the store get to come to an end.
TO_END: Final = 30.0
NO_STEPS: Final = 'no step could be told apart, and the program prints no "ms a step"'
TOLD: Final = 8


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and the folder that it runs in."""

    words: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run came to."""

    side: Side
    step_ms: float | None
    output: str
    was_cut: bool


@dataclass(frozen=True)
class Turns:
    """Both programs, run after run."""

    a: list[Ran]
    b: list[Ran]

    @property
    def ratios(self) -> list[float]:
        """How many times faster b was in each turn."""
        both = zip(self.a, self.b, strict=True)
        return [x.step_ms / y.step_ms for x, y in both if x.step_ms and y.step_ms]

    @property
    def measured(self) -> Interval | None:
        """How many times faster b is: the interval of its steps, and what the turns show."""
        ratios = self.ratios
        if not ratios:
            return None
        middle = statistics.median(ratios)
        found = paces(_together(self.a), _together(self.b))
        low, high = min(ratios), max(ratios)
        if found.steps is not None:
            of_steps = found.steps.speedup
            if of_steps.low is not None and of_steps.high is not None:
                low, high = min(low, of_steps.low), max(high, of_steps.high)
        return Interval(min(low, middle), middle, max(high, middle))

    @property
    def verdict(self) -> str:
        """Whether b is faster, slower, or the same."""
        found = self.measured
        if found is None:
            return str(compare.Verdict.UNKNOWN)
        from_turns = paces(_together(self.a), _together(self.b)).steps
        if from_turns is None or found.excludes(1.0) is False:
            return str(compare.Verdict.UNCERTAIN)
        return str(verdict(from_turns))

    def step_ms(self, side: str) -> float | None:
        """Return the middle step of one of them."""
        known = [x.step_ms for x in (self.a if side == "a" else self.b) if x.step_ms]
        return statistics.median(known) if known else None


def _together(runs: Sequence[Ran]) -> Side:
    """Return all runs of a program as one side."""
    found = [run.side.pace for run in runs if run.side.pace is not None]
    first = runs[0].side
    stretches = tuple(each for pace in found for each in settled(pace))
    if not found:
        return first
    middle = statistics.median(pace.middle_ns for pace in found)
    return Side(first.label, first.window, Pace(stretches, middle, found[0].by, found[0].source))


def in_turns(
    a: Program,
    b: Program,
    turns: int,
    seconds: float,
    progress: Callable[[str], None],
) -> Turns:
    """Run both, one after the other and again; who is first changes from turn to turn."""
    done: dict[str, list[Ran]] = {"a": [], "b": []}
    for turn in range(turns):
        order = ("a", "b") if turn % 2 == 0 else ("b", "a")
        for which in order:
            name = "the original" if which == "a" else "the changed program"
            progress(f"turn {turn + 1} of {turns}: {name}")
            done[which].append(ran(a if which == "a" else b, seconds))
    return Turns(done["a"], done["b"])


def ran(program: Program, seconds: float) -> Ran:
    """Run a program recorded, end it after a while, and return what it came to."""
    with tempfile.TemporaryDirectory(prefix="whyidle-turn-") as folder:
        state = Path(folder)
        code, was_cut = _recorded(program, seconds, state)
        output = (state / "err").read_text(errors="replace")
        store = state / "whyidle.db"
        if code not in {0, None} and not was_cut:
            said = [line for line in output.splitlines() if line.strip()][-TOLD:]
            raise Problem(
                f"{' '.join(program.words)} ended with code {code}:\n"
                + "\n".join(f"    {line}" for line in said),
                "Run it alone first; --verify needs a command that ends well.",
            )
        if not store.exists():
            raise Problem("The run was not recorded.", "See: monitor doctor")
        side = compare.of_run(store, "last")
    found = settled(side.pace) if side.pace is not None else ()
    steps = sum(each.steps for each in found)
    said_ms = printed(output)["step_ms"]
    step_ms = sum(each.ns for each in found) / steps / 1e6 if steps else None
    # What the program prints of itself counts all of its steps, and only them.
    return Ran(side, said_ms or step_ms, output, was_cut)


def _recorded(program: Program, seconds: float, state: Path) -> tuple[int | None, bool]:
    monitor = [sys.executable, "-P", "-m", "whyidle.monitor", "run", "--json", "--no-trace", "--"]
    environment = {
        **os.environ,
        # What is printed before it is ended would be lost in a buffer.
        "PYTHONUNBUFFERED": "1",
        **program.environment,
        "WHYIDLE_STATE_DIR": str(state),
    }
    with (state / "out").open("wb") as out, (state / "err").open("wb") as err:
        child = subprocess.Popen(  # noqa: S603  what the user asked to run
            [*monitor, *program.words],
            cwd=program.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            return _await(child, seconds)
        finally:
            if child.poll() is None:
                _kill(child)


def _await(child: subprocess.Popen[bytes], seconds: float) -> tuple[int | None, bool]:
    try:
        return child.wait(timeout=seconds), False
    except subprocess.TimeoutExpired:
        # The recorder passes it on to the job, whose end is the recording's.
        child.terminate()
    try:
        return child.wait(timeout=TO_END), True
    except subprocess.TimeoutExpired:
        _kill(child)
        return None, True


def _kill(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    child.wait()
    time.sleep(0)
