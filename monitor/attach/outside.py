"""Rung 3, outside: nothing of ours in the job; py-spy, if installed, samples its main thread.

py-spy reads the job's memory while it runs (``--nonblocking``): a sample now and then is torn and
dropped, and the job never waits. It runs as a child that writes a file per round; nothing here
blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.tree import is_alive

RATE = 20
# A short first round, then long ones: py-spy reads the job's files anew in each.
FIRST_ROUND_SECONDS, ROUND_SECONDS = 2, 10
MAIN = "MainThread"
PREFIX, ERRORS, STACKS = "whyidle-outside-", "errors", "stacks"
# A round writes a line for each stack and thread, some KB.
MOST_BYTES = 16 << 20
# A pid of another namespace proves nothing, but a folder in use is written to each round.
LEFT_SECONDS = 3600.0

_FOLDER = re.compile(rf"{PREFIX}(\d+)-\w+")
_THREAD = re.compile(r"thread \((\w+)\)(?:: (.*))?")
_FRAME = re.compile(r"(.+?) \((.+?)(?::(\d+))?\)")
# As in the agent (agents/code_owner.py): not generated, not the standard library's, not installed.
_NOT_THE_USERS = re.compile(
    r"^<(?!ipython-input|python-input|stdin>)|/site-packages/|/dist-packages/"
    r"|(?:^|/)lib(?:64)?/python\d+\.\d+t?/"
)


class SampledLine(NamedTuple):
    """A line of the user's code, and in how many samples the main thread was there."""

    file: str
    line: int
    function: str
    samples: int


def refusal() -> Refusal | None:
    """Return why there are no samples from outside."""
    if _py_spy() is None:
        return Refusal(
            "py-spy is not installed: what the job's code does is not seen from outside.",
            f"{sys.executable} -m pip install py-spy",
        )
    return None


class PySpySampler:
    """Samples of one process's main thread, taken from outside by a child."""

    def __init__(self, key: ProcessKey, fs: ProcFs) -> None:
        self.refused = refusal()
        self._key = key
        self._fs = fs
        self._seconds = FIRST_ROUND_SECONDS
        self._folder: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._begin()

    def poll(self) -> list[SampledLine]:
        """Return the lines of the round that has just ended; nothing while one is under way."""
        if self._child is None or self._child.poll() is None:
            return []
        code, self._child = self._child.returncode, None
        found = self._take(code)
        self._begin()
        return found

    def close(self) -> None:
        """End the child and remove what it wrote."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
            self._child.wait()
            self._child = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _begin(self) -> None:
        program = _py_spy()
        now = self._fs.stat(self._key.pid)
        same = now is not None and is_alive(self._key, now)
        if program is None or self.refused is not None or not same:
            return
        try:
            self._child = self._start(program)
        except OSError as error:
            self._refuse(str(error))
        self._seconds = ROUND_SECONDS

    def _start(self, program: str) -> subprocess.Popen[bytes]:
        if self._folder is None:
            _tidy()
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        with (self._folder / ERRORS).open("wb") as errors:
            return subprocess.Popen(  # noqa: S603
                [program, *_arguments(self._key.pid, self._seconds, self._folder / STACKS)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _take(self, code: int) -> list[SampledLine]:
        folder = self._folder or Path()
        with contextlib.suppress(OSError):
            text = _text(folder / STACKS)
            (folder / STACKS).unlink()
            return sampled_lines(text, self._key.pid)
        said = ""
        with contextlib.suppress(OSError):
            said = _text(folder / ERRORS).strip()
        self._refuse(said.partition("\n")[0].removeprefix("Error: ") or f"it ended with {code}")
        return []

    def _refuse(self, why: str) -> None:
        self.refused = Refusal(
            f"py-spy cannot look into process {self._key.pid}: {why}",
            f'sudo "$(command -v monitor)" attach {self._key.pid} --observe',
        )


def _text(path: Path) -> str:
    """Return a file's text, or the beginning of one that is too long to be true."""
    with path.open("rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def _tidy() -> None:
    """Remove what killed monitors have left."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).iterdir():
            named = _FOLDER.fullmatch(path.name)
            if named and _is_left(path, int(named[1])):
                shutil.rmtree(path, ignore_errors=True)


def _is_left(path: Path, pid: int) -> bool:
    """Tell whether a folder is our user's, and its monitor and py-spy are gone."""
    try:
        found = path.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    old = time.time() - found.st_mtime > LEFT_SECONDS
    return ours and old and not Path(f"/proc/{pid}").exists()


def sampled_lines(collapsed: str, pid: int) -> list[SampledLine]:
    """Return where the main thread was, most samples first, from py-spy's collapsed stacks."""
    stacks = []
    # Only a newline ends a line: a file's name may hold other line ends.
    for line in collapsed.split("\n"):
        thread, *frames = line.rpartition(" ")[0].split(";")
        named = _THREAD.fullmatch(thread)
        count = line.rpartition(" ")[2]
        if named and count.isdecimal():
            is_main = named[2] == MAIN or named[1] == str(pid)
            stacks.append((is_main, frames, int(count)))
    found: Counter[tuple[str, int, str]] = Counter()
    for is_main, frames, samples in stacks:
        if is_main and (innermost := _innermost(frames)) is not None:
            found[innermost] += samples
    return [SampledLine(*line, samples) for line, samples in found.most_common()]


def _innermost(frames: list[str]) -> tuple[str, int, str] | None:
    for frame in reversed(frames):
        parts = _FRAME.fullmatch(frame)
        if parts and not _NOT_THE_USERS.search(parts[2]):
            return parts[2], int(parts[3] or 0), parts[1]
    return None


def _arguments(pid: int, seconds: int, output: Path) -> list[str]:
    sampling = f"--nonblocking --idle --threads --full-filenames --rate {RATE}".split()
    return [
        "record", *sampling, "--duration", str(seconds),
        "--format", "raw", "--output", str(output), "--pid", str(pid),
    ]  # fmt: skip


@cache
def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
