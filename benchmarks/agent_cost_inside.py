"""The agent inside the jobs of ``agent_cost.py``: brought in, kept still, asked, and sent away.

Runs on any Python from 3.9 on.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Its callbacks of the garbage collector.
TAPS = 3
PATIENCE = 60
FOLDER = tempfile.mkdtemp()


def load(agents: str) -> Any:
    """Load the agent under its private name, as a job does."""
    name = "_whyidle_agent"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, f"{agents}/__init__.py", submodule_search_locations=[agents]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        importlib.import_module(f"{name}.wire").FOLDERS = (FOLDER,)
    return importlib.import_module(f"{name}.core")


class Agent:
    """The agent: brought in and out, or kept still for a while."""

    def __init__(self, agents: str) -> None:
        self._agents = agents
        self._taps: list[Any] = []

    def come(self) -> None:
        """Bring it in and wait until it works."""
        # JAX has one of its own.
        self._others = len(gc.callbacks)
        load(self._agents).start({"method": "benchmark", "grace": 3600})
        while len(gc.callbacks) < self._others + TAPS:
            time.sleep(0.001)
        self._worker = self._living()._worker  # noqa: SLF001
        self._clock = time.pthread_getcpuclockid(self._worker.ident)

    def cpu_time_ns(self) -> int:
        """Return the CPU time of its thread."""
        return time.clock_gettime_ns(self._clock)

    def keep_still(self) -> None:
        """Do as if it were not there: no work of its thread, no callback."""
        self.hold()
        self._still_since = time.monotonic_ns()
        self._taps = list(gc.callbacks)
        gc.callbacks.clear()

    def let_on(self) -> None:
        """Let it go on where it was: what is due each second is due after a second of work."""
        still = time.monotonic_ns() - self._still_since
        for timer in self._living()._session._timers._timers:  # noqa: SLF001
            timer.due += still
        gc.callbacks.extend(self._taps)
        self.let_go()

    def hold(self) -> None:
        """Keep its thread where it is; all that it put into the job stays."""
        assert self._worker.busy.acquire(timeout=PATIENCE)

    def let_go(self) -> None:
        """Let its thread work again."""
        self._worker.busy.release()

    def turn(self, *, on: bool) -> None:
        """Take out of the job all that its probes put there, or put it in; while it is held."""
        probes = self._living()._session._probes  # noqa: SLF001
        for name in sys.modules["_whyidle_agent.probes"].KNOWN:
            if on:
                probes.turn_on(name)
            else:
                probes.turn_off(name, "asked")

    def look(self) -> None:
        """Do what its thread does each second: the probes learn the job's pace."""
        self._living()._session._probes.gauges(time.monotonic_ns())  # noqa: SLF001

    def go(self) -> None:
        """End it, as the end of the job would."""
        agent = self._living()
        while len(gc.callbacks) > self._others:
            # With busy threads around it may take longer than an exit waits.
            agent.at_exit()

    @staticmethod
    def _living() -> Any:
        return vars(sys.modules["_whyidle_fork"])["agent"]


class Client:
    """Asks it for traces, as a monitor does."""

    def __init__(self) -> None:
        folder = Path(FOLDER) / f"whyidle-{os.getuid()}"
        self._spool = folder / f"{os.getpid()}.spool"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(str(folder / f"{os.getpid()}.sock"))
        self._read = self._spool.stat().st_size

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self._socket.recv(4096)
        found: dict[str, Any] = json.loads(answer)
        return found

    def traced(self) -> tuple[str, dict[str, Any]] | None:
        """Return how the trace that is on has ended, if the spool says so by now."""
        with self._spool.open("rb") as file:
            file.seek(self._read)
            fresh = file.read()
        whole = fresh.rfind(b"\n") + 1
        self._read += whole
        records = [json.loads(line) for line in fresh[:whole].splitlines()]
        ends = [r for r in records if r[0] == "trace" and r[3] in {"done", "failed"}]
        return (ends[-1][3], ends[-1][4]) if ends else None

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def timed(act: Any, number: int) -> float:
    """Return the seconds of one call, the best of a few rounds."""
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(number):
            act()
        best = min(best, (time.perf_counter() - began) / number)
    return best


def tidy() -> None:
    """Remove what it left: nothing but its folder."""
    for path in sorted(Path(FOLDER).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    Path(FOLDER).rmdir()
