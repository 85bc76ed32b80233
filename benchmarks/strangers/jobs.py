"""A public program as a process: its own home, a counter of its steps, and who runs beside it."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.faultbench.jobs import Failed
from benchmarks.strangers.cases import Case, Change
from benchmarks.strangers.checkout import HOME, furnish, written

# Python of the programs: they need more packages than the product (requirements.txt).
PYTHON: Final = os.environ.get("STRANGERS_PYTHON", sys.executable)
STARTUP: Final = Path(__file__).parent / "startup"
TICKS: Final = ".ticks"
# A server listens at a port of its own: in the environment, and for ``{port}`` in commands.
PORT: Final = "STRANGERS_PORT"
STARTING_S: Final = 180.0
_OFFLINE: Final = {
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled", "TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "Agg",
    "STRANGERS_TORCHVISION": "1",
}  # fmt: skip
# What stands still while others take their turns is no reason for XLA to end the program.
_PATIENT: Final = "--xla_cpu_collective_call_terminate_timeout_seconds=100000"
_OF_SHELL: Final = ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH")


class Job:
    """One running program, with all that it started and what runs beside it."""

    # py-spy follows the processes that it starts.
    starts_ranks = True

    def __init__(
        self,
        case: Case,
        mirrors: Path | None,
        change: Change | None = None,
        *,
        paused: bool = False,
    ) -> None:
        self.folder = written(case, mirrors, change, counting=True)
        furnish(case, self.folder)
        self.lines: list[tuple[str, int]] = list(case.main)
        self._ticks = self.folder / TICKS
        self._ticks.mkdir()
        self._port = str(_free_port())
        self._environment = self._surroundings(case, change, paused=paused)
        self._log = (self.folder / "output").open("wb")
        for line in case.prepare:
            self._start(_line(line, None)).wait()
        self._processes = [self._start(_line(case.command, change))]
        self._beside = case.beside

    def _surroundings(self, case: Case, change: Change | None, *, paused: bool) -> dict[str, str]:
        found = {name: os.environ[name] for name in _OF_SHELL if name in os.environ}
        found |= _OFFLINE | {
            "HOME": str(self.folder / HOME),
            "PYTHONPATH": ":".join([str(STARTUP), *(str(self.folder / x) for x in case.path)]),
            "STRANGERS_TICKS": str(self._ticks),
            PORT: self._port,
            "PATH": f"{Path(PYTHON).absolute().parent}:{found.get('PATH', '')}",
        }
        if case.tick.startswith("call:"):
            found["STRANGERS_TICK_CALL"] = case.tick.removeprefix("call:")
        found |= case.environment
        if paused:
            found["XLA_FLAGS"] = f"{found.get('XLA_FLAGS', '')} {_PATIENT}".strip()
        return found if change is None else found | change.environment

    def _start(self, line: list[str]) -> subprocess.Popen[bytes]:
        line = [each.replace("{port}", self._port) for each in line]
        return subprocess.Popen(
            line, cwd=self.folder, env=self._environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its main process."""
        return self._processes[0].pid

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._processes[0].poll() is None

    def counted(self) -> tuple[int, int]:
        """Return its ticks so far, twice: they stand for its samples, too.

        Ranks make their steps together, and threads of a server count in one process.
        """
        ticks = self._most(0)
        return ticks, ticks

    def optimized(self) -> int:
        """Return the steps of its optimizer so far, where they are counted by themselves."""
        return self._most(1)

    def _most(self, place: int) -> int:
        files = [path.read_bytes() for path in self._ticks.iterdir()]
        return max((struct.unpack("QQ", raw)[place] for raw in files if len(raw) == 16), default=0)

    def check(self) -> None:
        """Raise, with its last words, when it has ended."""
        if not self.is_running:
            words = (self.folder / "output").read_text(errors="replace")[-1500:]
            raise Failed(f"ended with {self._processes[0].returncode}:\n{words}")

    def wait_for_steps(self, steps: int) -> None:
        """Wait until it has made so many; who runs beside it is started once it listens."""
        began = time.monotonic()
        while self.counted()[0] < steps:
            self.check()
            if time.monotonic() - began > STARTING_S:
                raise Failed(f"made {self.counted()[0]} steps in {STARTING_S:g} s")
            if len(self._processes) == 1 and self._beside and time.monotonic() - began > 8:
                self._processes += [self._start(_line(each, None)) for each in self._beside]
            time.sleep(0.05)

    def send(self, sign: int) -> None:
        """Send a signal to all of it: launchers start their ranks in sessions of their own."""
        mark = f"STRANGERS_TICKS={self._ticks}\0".encode()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes():
                    os.kill(int(path.name), sign)
            except OSError:
                continue

    def end(self) -> None:
        """End it, and all that it started."""
        self.send(signal.SIGKILL)
        for each in self._processes:
            each.wait()
        self._log.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _line(command: tuple[str, ...], change: Change | None) -> list[str]:
    """Return what is typed; an option of a change takes the place of the command's."""
    line = [re.sub(r"\.ipynb$", ".py", each) for each in command]
    for option in () if change is None else change.arguments:
        name = option.partition("=")[0]
        line = [each for each in line if each.partition("=")[0] != name] + [option]
    first = {"python": PYTHON}.get(line[0], line[0])
    return [first, *line[1:]]


__all__ = ["PYTHON", "Failed", "Job"]
