"""Start the user's job as if we were not there: same terminal, signals passed on, code kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from whyidle.agents import wire
from whyidle.agents.wire import JULIA_MARKS
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

# What a shell answers for a command that it cannot start.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Launch:
    """One child."""

    def __init__(
        self, command: list[str], *, output_to_stderr: bool = False, boot: Path | None = None
    ) -> None:
        self._command = command if boot is None else with_marks(command)
        self._environment = None if boot is None else with_boot(boot, os.environ)
        self._output = sys.stderr if output_to_stderr else None
        self._child: subprocess.Popen[bytes] | None = None
        self.key = ProcessKey(0, 0)

    def check(self) -> None:
        """Say what cannot be started before anything is written."""
        program = self._command[0]
        if shutil.which(program) is not None:
            return
        if Path(program).is_file():
            hint = f"Give it to its interpreter: monitor run -- python {program}"
            raise Problem(f"'{program}' is not executable.", hint).with_code(NOT_EXECUTABLE)
        hint = "Write it as in the shell: monitor run -- python train.py"
        raise Problem(f"There is no command '{program}'.", hint).with_code(NOT_FOUND)

    def start(self) -> None:
        """Start the child; from here on our signals are its signals."""
        try:
            self._child = subprocess.Popen(  # noqa: S603  as asked
                self._command, stdout=self._output, env=self._environment, close_fds=False
            )
        except OSError as error:
            # It is there and executable, but its interpreter is not, or it has none.
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            what = f"'{self._command[0]}' cannot be started: {error.strerror}."
            raise Problem(what, "Look at its first line: head -1").with_code(code) from None
        stat = ProcFs().stat(self._child.pid)
        self.key = ProcessKey(self._child.pid, stat.start_ticks if stat else 0)
        for number in _PASSED_ON:
            # What is ignored (nohup) the child ignores as well.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass_on)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._interrupt)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C reaches the child by the terminal already; a `kill -INT` reaches only us."""
        if not _in_foreground():
            self._pass_on(number, frame)

    def over(self) -> bool:
        """Tell whether the child has ended."""
        return self._child is not None and self._child.poll() is not None

    def code(self) -> int | None:
        """Return the child's code, negative for a signal, ``None`` while it runs."""
        return None if self._child is None else self._child.poll()

    def wait(self) -> int:
        """Wait for the child, however long it takes."""
        assert self._child is not None  # noqa: S101  only called after start
        return self._child.wait()


def with_marks(command: list[str]) -> list[str]:
    """Return a command of Julia's that loads our mark of a step first; any other as it is."""
    marks = Path(wire.__file__).parent / JULIA_MARKS
    if Path(command[0]).name != "julia" or not marks.is_file():
        return command
    # A channel of its launcher's stands first ("+1.10").
    first = 2 if command[1:2] and command[1].startswith("+") else 1
    return [*command[:first], "-L", str(marks), *command[first:]]


def with_boot(boot: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with our folder first on PYTHONPATH, and what was there as it was."""
    old = environment.get("PYTHONPATH", "")
    parts = [str(boot), *([old] if old else [])]
    # Nested in another `monitor run` it is there already.
    first = old if old.split(os.pathsep)[0] == str(boot) else os.pathsep.join(parts)
    return {**environment, "PYTHONPATH": first}


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def shell_code(code: int) -> int:
    """Return an exit code as a shell reports it."""
    return 128 - code if code < 0 else code
