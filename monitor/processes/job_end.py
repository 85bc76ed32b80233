"""Why the watched process ended, as far as visible here; and whether it changed its program."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from whyidle.monitor.processes.target import Target

ENDED = "job ended"
OUT_OF_MEMORY = "killed by the kernel: out of memory"
# The parent collected the exit code before we could read it.
TAKEN = "its parent took the exit code"
BY_ITSELF = f"by itself ({TAKEN})"
UNSEEN = f"how is not visible from here ({TAKEN})"
# Places in /proc/PID/stat after the name, see proc(5).
_STATE, _START, _STACK, _EXIT_CODE = 0, 19, 25, 49


class JobEnd:
    """Follows one process to its end."""

    def __init__(self, target: Target, oom_kills: Callable[[], int | None]) -> None:
        # As in subprocess: negative for a signal.
        self.code: int | None = None
        self._key = target.key
        self._fs = target.fs
        self._oom_kills = oom_kills
        self._oom_before = oom_kills()
        self._stack: bytes | None = None

    def look(self) -> bool:
        """Check the process; return whether it runs another program since the last check."""
        raw = self._fs.read(f"{self._key.pid}/stat", short=True)
        words = raw[raw.rindex(b")") + 2 :].split() if raw else []
        if len(words) <= _EXIT_CODE or int(words[_START]) != self._key.start_ticks:
            return False
        if words[_STATE] in {b"Z", b"X"}:
            self._take_code(int(words[_EXIT_CODE]))
            return False
        self._oom_before = self._oom_kills()
        # Each program gets its stack at another address. 0: we may not see it.
        before, self._stack = self._stack, words[_STACK]
        return before not in {None, self._stack} and self._stack != b"0"

    def reason(self, last_word: str | None = None, code: int | None = None) -> str:
        """Return the cause; ``code`` is from a child of ours, ``last_word`` from the agent."""
        if self.code is None:
            self.look()
        self.code = self.code if code is None else code
        oom = self._oom_kills()
        killed = self._oom_before is not None and oom is not None and oom > self._oom_before
        if self.code is None:
            if killed:
                return f"{ENDED}: {OUT_OF_MEMORY}"
            return f"{ENDED}: {BY_ITSELF if last_word == 'exit' else UNSEEN}"
        if killed and self.code == -signal.SIGKILL:
            return f"{ENDED}: {OUT_OF_MEMORY}"
        return f"{ENDED}: {in_words(self.code)}"

    def _take_code(self, status: int) -> None:
        # The kernel shows 0 to processes without permission.
        if status or os.geteuid() in {0, self._fs.owner(self._key.pid)}:
            self.code = os.waitstatus_to_exitcode(status)


def in_words(code: int) -> str:
    """Return how a process ended; its code is negative for a signal."""
    return f"exit code {code}" if code >= 0 else f"killed by {_name(-code)}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
