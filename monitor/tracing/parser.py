"""The process that analyses a trace, as run by the recorder, which never waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from whyidle.monitor.core.contracts.trace import BudgetJson, StepsJson, WindowJson
from whyidle.monitor.core.pace import give_way, insist
from whyidle.monitor.tracing.worker import Order

SECONDS: Final = 120.0
LONGEST_ANSWER: Final = 1 << 20
MODULE: Final = "whyidle.monitor.tracing.worker"
# Not in the user's working directory: a file there may be named like a module of ours.
COMMAND: Final = (sys.executable, "-P", "-m", MODULE)
# More threads in numeric libraries would only take memory.
_ONE_THREAD: Final = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


class Understood(msgspec.Struct):
    """The results of a trace."""

    format: str
    budget: BudgetJson
    step_budget: BudgetJson | None
    steps: StepsJson
    kinds: list[str]
    warnings: list[str]
    window: WindowJson | None = None
    trace: int | None = None
    trouble: str | None = None


class Parser:
    """One trace that is being analysed."""

    def __init__(
        self,
        order: Order,
        command: Sequence[str] = COMMAND,
        seconds: float = SECONDS,
    ) -> None:
        self._said = b""
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._child = subprocess.Popen(  # noqa: S603  ourselves
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            # Keep Ctrl-C away from the child: we end it ourselves.
            start_new_session=True,
        )
        assert self._child.stdin is not None  # noqa: S101  a pipe was asked for
        assert self._child.stdout is not None  # noqa: S101
        give_way(self._child.pid)
        os.set_blocking(self._child.stdout.fileno(), False)
        line = json.dumps({**order, "parent": os.getpid()}).encode() + b"\n"
        # The order is smaller than a pipe's buffer, so this does not block.
        with contextlib.suppress(OSError), self._child.stdin as pipe:
            pipe.write(line)

    def poll(self) -> Understood | str | None:
        """Return the results, or why there are none; ``None`` while it is being read."""
        ended = self._child.poll() is not None
        self._hear()
        if ended:
            self.close()
            return self._result()
        if len(self._said) > LONGEST_ANSWER:
            self.close()
            return "the process that read it said too much"
        if time.monotonic() > self._deadline:
            self.close()
            return f"it was not understood within {self._seconds:.0f} s"
        return None

    def hurry(self) -> None:
        """Have it no longer give way: somebody waits."""
        insist(self._child.pid)

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def _hear(self) -> None:
        assert self._child.stdout is not None  # noqa: S101
        while len(self._said) <= LONGEST_ANSWER:
            part = self._child.stdout.read(1 << 16)
            if not part:
                return
            self._said += part

    def _result(self) -> Understood | str:
        code = self._child.returncode
        if code:
            return f"the process that read it ended {_by(code)}"
        try:
            found = msgspec.json.decode(self._said)
            if isinstance(found, dict) and "failed" in found:
                return str(found["failed"]).rstrip(".")
            return msgspec.convert(found, Understood)
        except (ValueError, RecursionError):
            return "the process that read it gave no answer"


def _by(code: int) -> str:
    if code > 0:
        return f"with code {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"
