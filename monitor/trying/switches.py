"""How a knob is turned: by the agent inside of the job, or by the keeper from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from whyidle.monitor.core.errors import NotPermitted, Problem, UsageProblem
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.trying.knobs import Knob
from whyidle.monitor.trying.line import Line

COMMAND: Final = (sys.executable, "-P", "-m", "whyidle.monitor.trying.keeper")
ANSWER_SECONDS: Final = 20.0
BEAT_SECONDS: Final = 1.0
_PIECE: Final = 1 << 16
_BACK: Final = ("off", "left")


class Switch(Protocol):
    """Turns one knob. What was before, as it is read, stands in ``old``."""

    old: Any
    # The job has set it itself meanwhile: that was left.
    is_left: bool

    def on(self) -> int:
        """Turn it; return when it was, on our clock."""

    def off(self) -> int:
        """Turn it back; return when it was."""

    def keep(self) -> None:
        """Let it stay."""

    def close(self) -> None:
        """Turn it back, if it is on, and let go of everything."""


class Inside:
    """By the agent."""

    def __init__(self, line: Line, knob: Knob, value: Any) -> None:
        self.old: Any = None
        self.value: Any = None
        self.is_left = False
        self._line = line
        self._knob = knob
        self._asks = value

    def on(self) -> int:
        """Ask for it, and wait until it is."""
        self._line.forget()
        answer = self._line.ask("knob", name=self._knob.name, value=self._asks)
        if not answer.get("ok"):
            raise _refused(self._knob, answer.get("why"))
        record = self._line.turned("on", "off", "left")
        if record.state != "on":
            raise _refused(self._knob, record.facts.get("why"))
        if self.old is None:
            self.old, self.value = record.facts.get("old"), record.facts.get("value")
        return self._line.link.monotonic_ns(record.t)

    def off(self) -> int:
        """Ask for it back, and wait until it is."""
        is_on = self._line.ask("back").get("on")
        record = self._line.turned(*_BACK) if is_on else self._line.last(*_BACK)
        if record is None:
            # It was not on.
            return time.monotonic_ns()
        self.is_left |= record.state == "left"
        return self._line.link.monotonic_ns(record.t)

    def keep(self) -> None:
        """The agent forgets it."""
        answer = self._line.ask("keep")
        if not answer.get("ok"):
            raise _refused(self._knob, answer.get("why"))

    def close(self) -> None:
        """The agent takes back what is on when the line ends."""


class Outside:
    """By the keeper, which outlives us."""

    def __init__(
        self, key: ProcessKey, knob: Knob, value: Any, audit: Callable[[], dict[str, Any]]
    ) -> None:
        self.old: Any = None
        self.value: Any = value
        self.is_left = False
        self._knob = knob
        self._beat_at = 0.0
        self._asked = 0
        self._heard = b""
        self._keeper = subprocess.Popen(  # noqa: S603  ourselves
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._asks = {
            "do": "on",
            "setting": knob.setting,
            "value": value,
            "pid": key.pid,
            "start": key.start_ticks,
            "helpers": knob.helpers_only,
        }
        # Asked when it is first turned: before, nothing is written down.
        self._audit = audit

    def on(self) -> int:
        """Set it for all threads."""
        answer = self._ask({**self._asks, "audit": self._audit()})
        if not answer["ok"]:
            raise NotPermitted(
                f"{self._knob.name} is not tried: {answer['what']}", answer["next_step"]
            )
        if not answer["threads"]:
            raise _refused(self._knob, "the job has started no other process")
        if not answer["changed"]:
            raise _refused(self._knob, "every thread has it already, or may have no more")
        if self.old is None:
            old = answer["old"]
            self.old = old[0] if len(old) == 1 else old
        return time.monotonic_ns()

    def off(self) -> int:
        """Give every thread back what it had."""
        self.is_left |= bool(self._ask({"do": "off"})["left"])
        return time.monotonic_ns()

    def keep(self) -> None:
        """The keeper forgets it."""
        self._ask({"do": "keep"})

    def beat(self) -> None:
        """Say that we live, once a second."""
        if time.monotonic() - self._beat_at >= BEAT_SECONDS:
            self._ask({"do": "beat"})

    def close(self) -> None:
        """The end of the pipe tells it to give back what is left, and to go."""
        assert self._keeper.stdin is not None  # noqa: S101
        assert self._keeper.stdout is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(ANSWER_SECONDS)
        self._keeper.stdout.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._keeper.stdin is not None  # noqa: S101
        self._beat_at = time.monotonic()
        self._asked += 1
        with contextlib.suppress(OSError):
            question = {**question, "id": self._asked}
            self._keeper.stdin.write(json.dumps(question).encode() + b"\n")
            self._keeper.stdin.flush()
            while True:
                answer = self._hear()
                if answer is None:
                    break
                # One to a question before may still be on its way: something interrupted us.
                if answer.get("id") == self._asked:
                    return answer
        raise Problem(
            f"The process that keeps {self._knob.name} does not answer.",
            "See what the threads have: taskset -ap PID, ps -Lo tid,ni PID",
        )

    def _hear(self) -> dict[str, Any] | None:
        """Return the next answer; ``None`` where none comes."""
        assert self._keeper.stdout is not None  # noqa: S101
        handle = self._keeper.stdout.fileno()
        while b"\n" not in self._heard:
            ready, _, _ = select.select([handle], [], [], ANSWER_SECONDS)
            part = os.read(handle, _PIECE) if ready else b""
            if not part:
                return None
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def _refused(knob: Knob, why: object) -> UsageProblem:
    said = " ".join(str(why or "the agent did not say why").split()).rstrip(".")
    return UsageProblem(
        f"{knob.name} is not tried: {said}.", "See what each needs: monitor try --list"
    )
