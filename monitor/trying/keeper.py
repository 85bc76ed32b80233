"""A small process that sets from outside, and gives back when the monitor is gone.

It outlives a monitor that is killed: the pipe between the two ends at that moment. It hears one
JSON object a line, each with an ``id`` of its own, and answers each by one:

    {"do": "on", "setting": .., "value": .., "pid": .., "start": .., "helpers": bool}
    {"do": "off"}    {"do": "beat"}    {"do": "keep"}
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.trying.thread_settings import SETTINGS, Family, Held

# A monitor that is stopped or hangs says nothing for so long; it speaks every second.
SILENT_SECONDS: Final = 4.0
_PIECE: Final = 1 << 16


class Keeper:
    """What it holds, and how it answers."""

    def __init__(self, fs: ProcFs | None = None) -> None:
        self._fs = fs or ProcFs()
        self._held: Held | None = None
        # Where a change that the monitor could not end itself is written down.
        self._audit: dict[str, Any] | None = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; a refusal leaves everything as it was."""
        match asked.get("do"):
            case "on":
                return self._on(asked)
            case "off":
                return {"ok": True, "left": self.off()}
            case "keep":
                self._held = None
                return {"ok": True}
            case _:
                return {"ok": True}

    def off(self) -> int:
        """Give everything back."""
        held, self._held = self._held, None
        return 0 if held is None else held.take_back()

    def end(self) -> None:
        """The monitor is gone."""
        if self._held is None:
            return
        name = self._held.name
        self.off()
        if self._audit is not None:
            with contextlib.suppress(Exception):
                _write_down(self._audit, name)

    def _on(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.off()
        key = ProcessKey(asked["pid"], asked["start"])
        family = Family(key, self._fs, helpers_only=asked["helpers"])
        held = Held(asked["setting"], SETTINGS[asked["setting"]], family)
        self._held, self._audit = held, asked.get("audit")
        try:
            changed = held.apply(asked["value"])
        except (OSError, Problem) as error:
            self.off()
            what = error.what if isinstance(error, Problem) else str(error)
            step = error.next_step if isinstance(error, Problem) else ""
            return {"ok": False, "what": what, "next_step": step}
        old = sorted({json.dumps(value) for value in held.old.values()})
        return {
            "ok": True,
            "changed": changed,
            "threads": len(held.ours),
            "old": [json.loads(text) for text in old],
        }


def _write_down(audit: dict[str, Any], name: str) -> None:
    from whyidle.monitor.trying import audit as journal  # noqa: PLC0415  seldom, and heavy

    text = f"{audit['knob']}: the monitor was gone; {name} is back as it was"
    journal.write(Path(audit["store"]), audit["run"], text, {**audit, "state": "back"})


def main() -> None:
    """Serve until the monitor is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    keeper = Keeper()
    try:
        _serve(keeper)
    finally:
        keeper.end()


def _serve(keeper: Keeper) -> None:
    heard = b""
    while True:
        ready, _, _ = select.select([0], [], [], SILENT_SECONDS)
        part = os.read(0, _PIECE) if ready else b""
        if not part:
            return
        *lines, heard = (heard + part).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            answer = {**keeper.answer(asked), "id": asked.get("id")}
            os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
