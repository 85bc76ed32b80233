"""Jobs on every Python of this machine, with the agent inside, and a client to talk to it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked
from whyidle.agents import wire

AGENTS = Path(__file__).parent.parent.parent / "agents"
OTHERS = [f"python3.{minor}" for minor in range(9, 15)]

# Loads the agent from its files under its private name, into the test's own folder.
PRELUDE = """
import gc, importlib, importlib.util, os, sys, time
AGENTS, PARENT = sys.argv[1:3]
def load():
    spec = importlib.util.spec_from_file_location(
        "_whyidle_agent", AGENTS + "/__init__.py", submodule_search_locations=[AGENTS])
    module = importlib.util.module_from_spec(spec)
    sys.modules["_whyidle_agent"] = module
    spec.loader.exec_module(module)
    importlib.import_module("_whyidle_agent.wire").FOLDERS = (PARENT,)
    return importlib.import_module("_whyidle_agent.core")
def start(**options):
    core = load()
    core.start({"method": "ptrace", "grace": 60, **options})
    return core
def ready():
    print("ready", flush=True)
def until(done, seconds=20):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.001)
def mine(ending="sock", pid=None):
    return "%s/whyidle-%d/%d.%s" % (PARENT, os.geteuid(), pid or os.getpid(), ending)
def reachable(pid=None):
    # It greets when it listens.
    try: return os.stat(mine("spool", pid)).st_size > 0
    except OSError: return False
def leave():
    import socket
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20); line.connect(mine()); line.sendall(b'{"do": "leave"}\\n')
        while line.recv(4096): pass
def tasks():
    return len(os.listdir("/proc/self/task"))
"""


def interpreters() -> list[str]:
    """Return the other Pythons of this machine that a job may run on."""
    home = Path.home() / ".pyenv" / "versions"
    found = [shutil.which(name) for name in OTHERS]
    found += [
        str(p) for minor in range(9, 15) for p in sorted(home.glob(f"3.{minor}.*/bin/python3"))
    ]
    # A shim only says that its version is not the chosen one.
    return [f for f in found if f is not None and "/shims/" not in f] or [sys.executable]


def name_of(python: str) -> str:
    """Return a short name for a test's parameter."""
    return next((part for part in python.split("/") if part.startswith("3.")), Path(python).name)


# The tests' own Python, and in the long run all others.
every_python = pytest.mark.parametrize(
    "python",
    [
        sys.executable,
        *(pytest.param(path, marks=pytest.mark.long) for path in sorted(set(interpreters()))),
    ],
    ids=name_of,
)


def command(python: str, source: str, folder: Path, *flags: str) -> list[str]:
    """Return the command line of a job that begins with the prelude; every warning is an error."""
    # Compiled once a test, and never into the folder of the sources.
    strict = ["-X", f"pycache_prefix={folder}/pyc", "-X", "dev", "-W", "error", *flags]
    return [python, *strict, "-c", PRELUDE + source, str(AGENTS), str(folder)]


def run(python: str, source: str, folder: Path, *flags: str) -> str:
    """Run a job to its end, which must be a good one without a word of complaint."""
    done = subprocess.run(
        command(python, source, folder, *flags),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@contextlib.contextmanager
def job(
    source: str, folder: Path, python: str = sys.executable, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a job, wait for its ``ready``, and end it afterwards."""
    with subprocess.Popen(
        command(python, source, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            yield process
        finally:
            process.kill()


def ends_well(process: subprocess.Popen[str] | Forked) -> None:
    """End a job's input, and see that it ends without a word of complaint."""
    _, errors = process.communicate("end\n", timeout=20)
    assert (process.returncode, errors) == (0, ""), errors


class Client:
    """A monitor's side of the control socket, as plain as can be."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.home = folder / wire.folder_name(os.geteuid())
        self.spool = self.home / wire.spool_name(pid)
        self.offset = 0
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(self.home / wire.socket_name(pid)))
        self._handle = self.spool.open("rb")
        self._heard = b""

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def hear(self) -> dict[str, Any]:
        while b"\n" not in self._heard:
            part = self.socket.recv(65536)
            if not part:
                raise EOFError
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **more: object) -> dict[str, Any]:
        self.send(json.dumps({"do": do, **more}).encode() + b"\n")
        return self.hear()

    def is_hung_up(self) -> bool:
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def records(self) -> list[Any]:
        """Return the records that are new; whole lines only."""
        self._handle.seek(self.offset)
        text = self._handle.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line]

    def wait_for(self, kind: str) -> Any:
        """Keep the lease and read until such a record comes."""
        while True:
            for record in self.records():
                if record[0] == kind:
                    return record
            self.ask("lease", read=self.offset)

    def close(self) -> None:
        self.socket.close()
        self._handle.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
