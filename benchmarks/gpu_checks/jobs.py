"""The self-checking job from outside: started, waited for, ended, and asked how it fared."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_checks.room import Failed, LeftOut, tail
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

JOB = Path(__file__).with_name("job.py")
FRAMEWORKS = ("torch", "jax")
PATIENCE = 60.0


@dataclass
class Running:
    """A job of ours that works."""

    process: subprocess.Popen[str]
    errors: Path

    @property
    def key(self) -> ProcessKey:
        """Who it is."""
        stat = ProcFs().stat(self.process.pid)
        if stat is None:
            raise Failed(f"the job has ended: {self.said}")
        return ProcessKey(self.process.pid, stat.start_ticks)

    @property
    def said(self) -> str:
        """The end of what it said on stderr."""
        return tail(self.errors.read_text(errors="replace"))

    def end(self) -> dict[str, Any]:
        """Let it finish, and return what it tells of itself."""
        try:
            out, _ = self.process.communicate("\n", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed("the job hangs: it did not end when it was told to") from None
        if self.process.returncode:
            raise Failed(f"the job died with code {self.process.returncode}: {self.said}")
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        return told


def check_installed(framework: str) -> None:
    """Leave it out where there is no such framework."""
    if importlib.util.find_spec(framework) is None:
        raise LeftOut(f"{framework} is not installed here")


def line(framework: str, *more: str) -> list[str]:
    """Return how the job is started."""
    return [sys.executable, str(JOB), framework, *more]


@contextmanager
def running(framework: str, folder: Path, *more: str) -> Iterator[Running]:
    """Start a job and wait until it works; it is gone afterwards."""
    check_installed(framework)
    errors = folder / f"{framework}.stderr"
    with (
        errors.open("w") as err,
        subprocess.Popen(
            line(framework, *more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as process,
    ):
        job = Running(process, errors)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise Failed(f"the job did not start: {job.said}")
            yield job
        finally:
            process.kill()


def check_device(told: dict[str, Any], *, gpu: bool) -> None:
    """Fail where a job ran on the CPU though there is a GPU."""
    if gpu and told["device"] == "cpu":
        raise Failed("the job ran on the CPU: the framework does not see the GPU")


def moments(path: Path) -> list[int]:
    """Return when its rounds were over, on the monotonic clock, in ns."""
    text = path.read_bytes()
    return [each for (each,) in struct.iter_unpack("<q", text[: len(text) // 8 * 8])]
