"""Jobs of JAX with the agent inside."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.agents.pythons import AGENTS, PRELUDE, Client, ends_well
from tests.forked import Forked, Imported

# JAX is read as it was compiled, and nothing is left in our folders. Facts come each second.
RUNNING = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
def attach():
    core = load()
    sys.modules["_whyidle_agent.framework"].STATE_SECONDS = 1
    core.start({{"method": "ptrace", "grace": 60}})
    until(reachable)
def obey(step):
    ready()
    number = 0
    for line in sys.stdin:
        if not line.strip().isdigit(): break
        for _ in range(int(line)):
            step(number); number += 1
        print("done", flush=True)
"""
FAULT = """
import programs
step = getattr(programs, {name!r})({fault})
attach(); step(99); obey(step)
"""


def command(source: str, folder: Path) -> list[str]:
    """Return the command line of a job; every warning is an error."""
    text = PRELUDE + RUNNING + source
    return [sys.executable, "-B", "-X", "dev", "-W", "error", "-c", text, str(AGENTS), str(folder)]


def environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu", "HOME": "/nonexistent"}


# The prelude of most jobs; jobs about the import itself start before it.
JAX = Imported("import jax, jax.numpy", "-X", "dev", env=environment())


class Job:
    """A job that does steps when it is told to."""

    def __init__(self, process: Forked | subprocess.Popen[str], client: Client) -> None:
        self.process = process
        self.client = client
        self.seen: list[Any] = []

    def step(self, number: int) -> None:
        """Have it do some steps."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        while not select.select([self.process.stdout], [], [], 5)[0]:
            self.client.ask("lease", read=self.client.offset)
        assert self.process.stdout.readline() == "done\n"

    def until(self, done: Callable[[list[Any]], Any], seconds: float = 60) -> Any:
        """Wait until ``find`` finds something in all records so far; returns it."""
        end = time.monotonic() + seconds
        while True:
            self.seen += self.client.records()
            found = done(self.seen)
            if found:
                return found
            gone = [r for r in self.seen if r[0] == "bye"]
            assert not gone, gone
            assert time.monotonic() < end, self.seen[-5:]
            self.client.ask("lease", read=self.client.offset)
            time.sleep(0.02)

    def gauges(self) -> dict[str, Any]:
        """Return the figures of a moment after this one."""
        now = time.monotonic_ns()
        found: dict[str, Any] = self.until(
            lambda seen: [r[2] for r in seen if r[0] == "gauges" and r[1] > now]
        )[-1]
        return found

    def facts(self, done: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the first facts that meet the condition."""
        found: dict[str, Any] = self.until(
            lambda seen: [r[3] for r in seen if r[0] == "state" and r[2] == "jax" and done(r[3])]
        )[-1]
        return found

    def messages(self) -> list[str]:
        """Return the probe's messages about itself."""
        return [r[4] for r in self.seen if r[0] == "probe" and r[2] == "jax" and r[4]]

    def records(self, kind: str) -> list[Any]:
        return [r for r in self.seen if r[0] == kind]


@contextlib.contextmanager
def job(source: str, folder: Path, imported: Imported | None = None) -> Iterator[Job]:
    """Start a job that does steps; it must end well without a word of complaint."""
    with _started(source, folder, imported) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            with Client(folder, process.pid) as client:
                yield Job(process, client)
            ends_well(process)
        finally:
            process.kill()


def run(source: str, folder: Path, imported: Imported | None = None) -> str:
    """Run a job to its end, which must be a good one without a word of complaint."""
    with _started(source, folder, imported) as process:
        said, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, ""), errors
    return said


def _started(
    source: str, folder: Path, imported: Imported | None
) -> Forked | subprocess.Popen[str]:
    if imported is not None:
        return Forked(imported, PRELUDE + RUNNING + source, str(AGENTS), str(folder))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    line = command(source, folder)
    return subprocess.Popen(line, text=True, env=environment(), **pipes)  # type: ignore[call-overload,no-any-return]
