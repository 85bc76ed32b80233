"""One check after the other, each in a process of its own: a crash or a hang costs that one alone.

What is told is packed again and again, so that whoever ends us finds what was done until then. A
machine may give back a few files only: there are two, the report and an archive of the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpu_checks.room import CUT, NO_TIME, told

SCHEMA: Final = 1
REPORT, ARCHIVE = "report.json", "recording.tar"
# A check is asked to end, then made to.
TO_END: Final = 20.0
BETWEEN: Final = 0.2


@dataclass
class Job:
    """What one run of the checks is asked for, and what has come of it."""

    out: Path
    work: Path
    facts: dict[str, Any]
    command: str
    # Of the monotonic clock.
    until: float
    checks: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run(self, name: str, seconds: float, command: Sequence[str]) -> dict[str, Any]:
        """Run one check, for as long as it may take at most; return what it told."""
        began = time.monotonic()
        limit = min(began + seconds, self.until)
        check: dict[str, Any] = {"name": name, "verdict": "failed", "why": CUT, "seconds": 0.0}
        check["parts"] = []
        self.checks.append(check)
        folder = self.work / name
        folder.mkdir()
        if limit - began < 1:
            check["verdict"], check["why"] = "left out", NO_TIME
        else:
            print(f"{name}: {limit - began:.0f} s at most", flush=True)
            with (folder / "log.txt").open("wb") as log:
                code = self._wait(check, folder, [*command, f"{limit!r}"], log, limit)
            _judge(check, code, folder)
        check["seconds"] = round(time.monotonic() - began, 1)
        self.pack()
        why = f" ({check['why']})" if check["why"] else ""
        print(f"{name}: {check['verdict']}{why}, {check['seconds']:g} s\n", flush=True)
        return check

    def _wait(
        self, check: dict[str, Any], folder: Path, command: list[str], log: Any, limit: float
    ) -> int | None:
        """Wait for a check; ``None``: it was cut off."""
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        ) as child:
            try:
                return self._watch(child, check, folder, limit)
            finally:
                _end(child)

    def _watch(
        self, child: subprocess.Popen[bytes], check: dict[str, Any], folder: Path, limit: float
    ) -> int | None:
        while time.monotonic() < limit:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(BETWEEN)
            parts = told(folder)
            if len(parts) != len(check["parts"]):
                for part in parts[len(check["parts"]) :]:
                    print(f"  {line(part)}", flush=True)
                check["parts"] = parts
                self.pack()
        return None

    def lines(self) -> list[str]:
        """Return what each check came to."""
        return [line(check) for check in self.checks]

    def without_time(self, name: str) -> list[str]:
        """Return the parts of a check for which there was no time, or too little."""
        parts = [part for check in self.checks if check["name"] == name for part in check["parts"]]
        return [part["name"] for part in parts if part["why"] in {NO_TIME, CUT}]

    def pack(self) -> None:
        """Write what there is."""
        report = {
            "schema": SCHEMA,
            **self.facts,
            "command": self.command,
            "seconds": round(time.monotonic() - self.began, 1),
            "checks": self.checks,
        }
        self._write(REPORT, json.dumps(report, indent=1).encode() + b"\n")
        half = self.out / f".{ARCHIVE}"
        with tarfile.open(half, "w") as archive:
            for check in self.checks:
                for name in (*(f for p in check["parts"] for f in p["files"]), "log.txt"):
                    path = self.work / check["name"] / name
                    if path.exists():
                        archive.add(path, f"{check['name']}/{name}", filter=_nobodys)
        half.rename(self.out / ARCHIVE)

    def _write(self, name: str, text: bytes) -> None:
        half = self.out / f".{name}"
        half.write_bytes(text)
        half.rename(self.out / name)


def line(part: dict[str, Any]) -> str:
    """Return one part as a line of the report."""
    why = f" ({part['why']})" if part["why"] else ""
    return f"{part['verdict']:<9}{part['name']}{why}, {part['seconds']:g} s"


def _judge(check: dict[str, Any], code: int | None, folder: Path) -> None:
    """Say what a check came to: the worst of its parts."""
    for part in told(folder)[len(check["parts"]) :]:
        print(f"  {line(part)}", flush=True)
    check["parts"] = parts = told(folder)
    verdicts = [part["verdict"] for part in parts]
    done = f"{sum(v == 'ok' for v in verdicts)} of {len(parts)} parts ok"
    if code is None or any(part["why"] == CUT for part in parts):
        check["verdict"], check["why"] = "failed", f"{CUT}; {done}"
    elif code or not parts:
        check["verdict"], check["why"] = "failed", f"it ended with code {code}; {done}"
    elif "failed" in verdicts:
        check["verdict"], check["why"] = "failed", done
    elif "ok" in verdicts:
        check["verdict"], check["why"] = "ok", None if set(verdicts) == {"ok"} else done
    else:
        check["verdict"] = "left out"
        check["why"] = "; ".join(dict.fromkeys(part["why"] for part in parts))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a check and what it started: first asked, so that it can take its own down."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TO_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made a file."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def command_of(script: Path, name: str, work: Path, *more: str) -> list[str]:
    """Return how a check is started; its limit comes last."""
    return [sys.executable, str(script), "--one", name, "--work", str(work), *more, "--until"]
