"""Jobs that begin where an import has ended: to import torch again takes each three seconds.

One process has imported it, in its only thread, and done nothing else. A job is a fork of it.
What a job of its own has and this one has not: a command line, and a time before the import.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from typing import IO, Any

import pytest

LONGEST = 100_000
# Who keeps a job lives as long as it does, and says how it ended; who asked may go before.
IMPORTED = """
import os, socket, sys, threading
MODULES
assert threading.active_count() == 1
asked = socket.socket(fileno=int(sys.argv[1]))
def source():
    "Wait to be asked for a job, and return what it is to do in that job."
    while True:
        while True:
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]: break
            except ChildProcessError: break
        message, files, _, _ = socket.recv_fds(asked, LONGEST, 4)
        if not message: sys.exit()
        line, *pipes = files
        if os.fork():
            for each in (line, *pipes): os.close(each)
            continue
        asked.close()
        pid = os.fork()
        if pid:
            with socket.socket(fileno=line) as answer:
                for each in pipes: os.close(each)
                socket.send_fds(answer, [b"%d" % pid], [os.pidfd_open(pid)])
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                try: answer.send(b"%d" % code)
                except OSError: pass
            os._exit(0)
        os.close(line)
        for number, each in enumerate(pipes): os.dup2(each, number); os.close(each)
        text, *arguments = message.decode().split(chr(0))
        sys.argv[1:] = arguments
        return text
exec(compile(source(), "<string>", "exec"))
""".replace("LONGEST", str(LONGEST))


class Imported:
    """What the jobs begin with: modules, and how Python was started."""

    def __init__(
        self, modules: str, *flags: str, env: dict[str, str] | None = None, warnings: str = "error"
    ) -> None:
        self._line = [sys.executable, "-B", *flags, "-W", warnings, "-c"]
        self._source = IMPORTED.replace("MODULES", modules)
        self._env = env

    @functools.cached_property
    def asked(self) -> socket.socket:
        """Start the process; it ends with this one. Without its framework the test is left out."""
        for name in ("torch", "jax"):
            if f"import {name}" in self._source and find_spec(name) is None:
                pytest.skip(f"{name} is not here")
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            number = its.fileno()
            line = [*self._line, self._source, str(number)]
            process = subprocess.Popen(line, pass_fds=[number], env=self._env)

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


class Forked:
    """A job, with the names of ``subprocess.Popen``."""

    def __init__(
        self, imported: Imported, source: str, *arguments: str, stderr: IO[str] | None = None
    ) -> None:
        self.returncode: int | None = None
        # First: where it skips the test, nothing is left open.
        asked = imported.asked
        (ins, to_job), (from_job, out), (errors_of_job, errors) = (os.pipe() for _ in range(3))
        if stderr is not None:
            os.dup2(stderr.fileno(), errors)
        self.stdin: Any = open(to_job, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        self.stdout: Any = open(from_job, encoding="utf-8")  # noqa: PTH123, SIM115
        self.stderr: Any = open(errors_of_job, encoding="utf-8")  # noqa: PTH123, SIM115
        self._line, its = socket.socketpair()
        message = "\0".join((source, *arguments)).encode()
        assert len(message) < LONGEST
        socket.send_fds(asked, [message], [its.fileno(), ins, out, errors])
        its.close()
        for each in (ins, out, errors):
            os.close(each)
        pid, (self._process,), _, _ = socket.recv_fds(self._line, 20, 1)
        self.pid = int(pid)

    def kill(self) -> None:
        """Kill it where it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            self.returncode = int(self._line.recv(20))
        return self.returncode

    def communicate(self, text: str = "", timeout: float = 100) -> tuple[str, str]:
        """End its input with a text, and return all that it says until it ends."""
        said = ["", ""]

        def read(number: int) -> None:
            said[number] = (self.stdout, self.stderr)[number].read()

        readers = [threading.Thread(target=read, args=(number,)) for number in range(2)]
        for reader in readers:
            reader.start()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(text)
            self.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        try:
            self.wait(timeout)
        finally:
            self.kill()
            for reader in readers:
                reader.join()
        return said[0], said[1]

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait(20)
        for each in (self.stdout, self.stderr, self._line):
            each.close()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        os.close(self._process)
