"""Programs of the bench as processes: in a folder of their own, paused and ended as a group."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from benchmarks.faultbench.cases import Case
from benchmarks.faultbench.program import NotApplicable, Program

# The programs of a case lie at the same place in each run: a recording names their lines.
JOBS: Final = Path(tempfile.gettempdir()) / "whyidle-faultbench"
# Python of the jobs: the families need more packages than the product (requirements.txt).
PYTHON: Final = os.environ.get("FAULTBENCH_PYTHON", sys.executable)
# What stands still while others take their turns is no reason for XLA to end the program.
_PATIENT: Final = "--xla_cpu_collective_call_terminate_timeout_seconds=100000"
_PACKAGES: Final = f"{Path(PYTHON).absolute().parents[1]}/"
STARTING_S: Final = 90.0
_NEIGHBOUR: Final = "while True: sum(range(10_000))"
_COUNTER: Final = """
import mmap as _mmap, os as _os, struct as _struct
_counted = _mmap.mmap(_os.open(_os.environ["STEPS_FILE"], _os.O_RDWR), 16)
# Ranks make their steps together, and count the same.
def _count(array=None, _at=[0, 0]):
    _at[0] += 1
    _at[1] += array.shape[0] if getattr(array, "shape", ()) else 1
    _struct.pack_into("qq", _counted, 0, *_at)
"""


def without_places(text: str) -> str:
    """Return what a program printed without the folder of its packages, which is this machine's."""
    return text.replace(_PACKAGES, "")


class Failed(Exception):  # noqa: N818  what happened to the program
    """The program ended, or never made a step."""


def written(case: Case, *, counting: bool = False) -> tuple[Path, Program, list[tuple[str, int]]]:
    """Write the program of a case; return its folder, and the lines of the fault."""
    program = case.program()
    if counting:
        _counts_steps(program)
    folder = JOBS / (case.id + (".counting" if counting else ""))
    return folder, program, program.write(folder)


def _counts_steps(program: Program) -> None:
    step = program.anchor("step")
    batch = step.list("batch")
    program.insert(step, f"_count({batch[0] if batch else ''})", is_fault=False)
    text = program.files[step.file]
    # Behind what must stand first in a file: its docstring and imports of ``__future__``.
    first = next(
        (i for i, line in enumerate(text) if line.startswith(("import ", "from "))
         and "__future__" not in line), 0,
    )  # fmt: skip
    text[first:first] = _COUNTER.strip().splitlines()


class Runs(Protocol):
    """A program that runs, is looked at from outside, and takes turns with others."""

    folder: Path
    starts_ranks: bool

    @property
    def pid(self) -> int:
        """Its main process."""

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""

    def counted(self) -> tuple[int, int]:
        """Return its steps and samples so far."""

    def check(self) -> None:
        """Raise, with its last words, when it has ended."""

    def wait_for_steps(self, steps: int) -> None:
        """Wait until it has made so many."""

    def send(self, sign: int) -> None:
        """Send a signal to all of it."""

    def end(self) -> None:
        """End it, and all that it started."""


class Job:
    """One running program, with its workers and neighbours."""

    def __init__(self, case: Case, *, counting: bool = False) -> None:
        self.folder, program, self.lines = written(case, counting=counting)
        self.starts_ranks = "mp.spawn(" in program.text
        self._steps = self.folder / "steps"
        self._steps.write_bytes(bytes(16))
        environment = {**os.environ, **program.environment, "STEPS_FILE": str(self._steps)}
        if counting and program.framework == "jax":
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {_PATIENT}"
        # As a user's shell has it: nothing of ours.
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        self._log = (self.folder / "output").open("wb")
        self._process = subprocess.Popen(
            [PYTHON, "main.py", "--scale", f"{case.scale:g}"],
            cwd=self.folder, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._neighbours = [
            subprocess.Popen([PYTHON, "-c", _NEIGHBOUR], start_new_session=True)
            for _ in range(program.neighbours)
        ]

    @property
    def pid(self) -> int:
        """Its main process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def counted(self) -> tuple[int, int]:
        """Return its steps and samples so far."""
        steps, samples = struct.unpack("qq", self._steps.read_bytes())
        return steps, samples

    def check(self) -> None:
        """Raise, with its last words, when it has ended."""
        if not self.is_running:
            words = (self.folder / "output").read_text(errors="replace")[-1500:]
            raise Failed(f"ended with {self._process.returncode}:\n{without_places(words)}")

    def wait_for_steps(self, steps: int) -> None:
        """Wait until it has made so many."""
        began = time.monotonic()
        while self.counted()[0] < steps:
            self.check()
            if time.monotonic() - began > STARTING_S:
                raise Failed(f"made {self.counted()[0]} steps in {STARTING_S:g} s")
            time.sleep(0.05)

    def send(self, sign: int) -> None:
        """Send a signal to all of it."""
        for each in (self._process, *self._neighbours):
            try:
                os.killpg(each.pid, sign)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        """End it, and all that it started."""
        self.send(signal.SIGKILL)
        for each in (self._process, *self._neighbours):
            each.wait()
        self._log.close()


@contextmanager
def running(case: Case, *, counting: bool = False) -> Iterator[Job]:
    """Run a case while the block runs."""
    job = Job(case, counting=counting)
    try:
        yield job
    finally:
        job.end()


__all__ = ["JOBS", "PYTHON", "Failed", "Job", "NotApplicable", "Runs", "running", "written"]
