"""Traces through a JAX job's own server, started by ``jax.profiler.start_server(port)``.

The server takes the trace and returns it in its answer; nothing enters the job, and it writes no
file. Any program may listen on a port, and may break when it is sent a request: so we ask only a
port that the user names, and only if it is the job's. gRPC, which the server speaks, runs in a
process of its own (``profiler_client``).

The server ends the trace on a thread of its own, which on an NVIDIA GPU can end the job (why:
``agents/session_tracer.py``): there it is not asked.

A trace that the job itself begins during that window fails in the job: jax runs one at a time, and
has no lock that a server would take. And a request while the job traces itself prints a line to the
job's stderr. So this happens only when a person asks for it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from whyidle.agents import wire
from whyidle.monitor.core.errors import (
    NotPermitted,
    Problem,
    StorageProblem,
    TargetGone,
    UsageProblem,
)
from whyidle.monitor.core.installed import to_install
from whyidle.monitor.processes.namespace import uses_gpu
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.tracing.space import Space, remove
from whyidle.monitor.tracing.taken import Taken

# The time that the server takes to stop and pack the trace after its window.
PATIENCE_SECONDS: Final = 30.0
MODULE: Final = "whyidle.monitor.tracing.profiler_client"
# Not in the user's working directory: a file there may be named like a module of ours.
COMMAND: Final = (sys.executable, "-P", "-m", MODULE)
_LISTENS: Final = "0A"
_LOOPBACK: Final = (
    *("0100007F", "0" * 8),
    *("0" * 32, "0000000000000000FFFF00000100007F"),
)
_LONGEST_ANSWER: Final = 1 << 16


class ByServer:
    """The server of one process. Checks the port first, and says why it cannot be used."""

    name = "the job's own profiler server"

    def __init__(
        self,
        key: ProcessKey,
        port: int | None,
        space: Space,
        owner: str,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._port = checked_port(key.pid, port, ProcFs())
        if uses_gpu(ProcFs(), key.pid):
            raise Problem(
                "The job uses a GPU, and its profiler server ends a trace on a thread of its own: "
                "with CUDA graphs that ends the job (CUDA_ERROR_LAUNCH_FAILED).",
                f"Have its main thread end it: monitor trace {key.pid}",
            )
        if find_spec("grpc") is None:
            raise UsageProblem(
                "The job's profiler server speaks gRPC, which this Python does not have.",
                f"Type: {to_install('server')}",
            )
        self._space = space
        self._owner = owner
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._path: Path | None = None
        self._deadline = 0.0

    def ask(self, seconds: float) -> str | None:
        """Begin to ask the server, in a process of its own."""
        if self._child is not None:
            return "a trace is on its way already"
        if not self._space.has_room():
            return f"the disk under {self._space.folder} has no room for it"
        try:
            into, self._path = self._space.create(self._owner, "jax")
        except StorageProblem as problem:
            return problem.what.rstrip(".")
        with contextlib.closing(_Handle(into)):
            self._child = subprocess.Popen(  # noqa: S603  ourselves
                [*self._command, *_order(self._port, seconds)],
                stdin=subprocess.DEVNULL,
                stdout=into,
                stderr=subprocess.PIPE,
                # Keep Ctrl-C away from the child: we end it ourselves.
                start_new_session=True,
            )
        self._deadline = time.monotonic() + seconds + PATIENCE_SECONDS
        return None

    def poll(self) -> Taken | str | None:
        """Check whether the server has answered."""
        if self._child is None:
            return None
        code = self._child.poll()
        if code is None:
            if time.monotonic() < self._deadline:
                return None
            self.close()
            return "the job's profiler server did not answer in time"
        said = self._said()
        path, self._path = self._path, None
        self.close()
        found = _understood(code, said, path, self.name)
        if path is not None and isinstance(found, str):
            remove(path)
        return found

    def close(self) -> None:
        """Stop asking; the server ends a trace that nobody waits for."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            if child.stderr is not None:
                child.stderr.close()
        if self._path is not None:
            remove(self._path)
            self._path = None

    def _said(self) -> str:
        assert self._child is not None  # noqa: S101  asked for by poll
        assert self._child.stderr is not None  # noqa: S101  a pipe was asked for
        os.set_blocking(self._child.stderr.fileno(), False)
        return (self._child.stderr.read(_LONGEST_ANSWER) or b"").decode(errors="replace")


class _Handle:
    """A descriptor that is closed like a file."""

    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        os.close(self._number)


def checked_port(pid: int, port: int | None, fs: ProcFs) -> int:
    """Return the port after checking that it is the job's; only local ports are reachable."""
    ports = listening(pid, fs)
    if port is not None and port in ports:
        return port
    listed = ", ".join(map(str, ports))
    retry = f"monitor trace {pid} --server {ports[0] if len(ports) == 1 else 'PORT'}"
    if port is None:
        what = "Which port the job's profiler server listens on must be said"
    else:
        what = f"Process {pid} listens on no port {port} of this machine"
    if not ports:
        raise UsageProblem(
            f"{what}; it listens on none.", "In the job: jax.profiler.start_server(9999)"
        )
    raise UsageProblem(f"{what}; it listens on {listed}.", f"If that is the server: {retry}")


def listening(pid: int, fs: ProcFs) -> list[int]:
    """Return the ports of a process that are reachable by 127.0.0.1, lowest first."""
    theirs, ours = fs.link(f"{pid}/ns/net"), fs.link("self/ns/net")
    if fs.stat(pid) is None:
        raise TargetGone(f"There is no process {pid}.", "See what runs with: monitor ps")
    if theirs is None:
        raise NotPermitted(
            f"The sockets of process {pid} may not be looked at.",
            f'As its user, or as root: sudo "$(command -v monitor)" trace {pid} --server PORT',
        )
    if theirs != ours:
        raise Problem(
            f"Process {pid} is in a network of its own: its ports cannot be reached from here.",
            "Run the monitor in the same container.",
        )
    held = _sockets(pid, fs)
    found = set()
    for name in ("tcp", "tcp6"):
        for line in (fs.text(f"{pid}/net/{name}") or "").split("\n")[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS and words[9] in held:
                host, _, number = words[1].partition(":")
                if host in _LOOPBACK:
                    found.add(int(number, 16))
    return sorted(found)


def _sockets(pid: int, fs: ProcFs) -> set[str]:
    """Return the inodes of a process's sockets."""
    try:
        numbers = os.listdir(f"{fs.root}/{pid}/fd")  # noqa: PTH208  names are enough
    except OSError:
        return set()
    links = (fs.link(f"{pid}/fd/{number}") or "" for number in numbers)
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def _order(port: int, seconds: float) -> list[str]:
    longest = seconds + PATIENCE_SECONDS
    return [str(port), str(max(1, round(seconds * 1000))), f"{longest:g}", str(wire.TRACE_FILE_CAP)]


def _understood(code: int, said: str, path: Path | None, how: str) -> Taken | str:
    """Return the trace, or the child's reason why there is none."""
    words = said.split()
    if code or path is None:
        line = "".join(c if c.isprintable() else " " for c in said.strip())
        return line[: wire.LONGEST_REASON].rstrip(".") or f"the client ended with code {code}"
    try:
        began, ended, realtime = (int(word) for word in words[-3:])
    except ValueError:
        return "the client said nothing of the trace"
    return Taken("jax", path, began, ended, realtime, None, how)
