"""One check after the other, each in a process of its own: a crash or a hang costs that one alone.

A check is made of parts. Each is ok, failed with what was seen, or left out with the reason, and is
written as soon as it is done. All of it is packed again and again, so that a run that is cut keeps
what it has done. A machine may give back a few files only: there are two, a report and an archive.
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
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

SCHEMA = 1
FRAMEWORKS = ("torch", "jax")
REPORT, ARCHIVE, ANSWER, LOG = "report.json", "recording.tar", "answer.json", "log.txt"
NO_TIME, CUT = "no time was left for it", "cut off while it ran"
# A check is asked to end, then made to.
TO_END, BETWEEN = 20.0, 0.2


class Failed(Exception):  # noqa: N818  an answer
    """What was looked at is not as it must be; the text says what was seen."""


class LeftOut(Exception):  # noqa: N818  an answer
    """It cannot be looked at here; the text says why."""


class PartJson(TypedDict):
    """A part as the report has it."""

    name: str
    verdict: str
    why: str | None
    seconds: float
    figures: dict[str, Any]
    files: list[str]


class CheckJson(TypedDict):
    """A check as the report has it."""

    name: str
    verdict: str
    why: str | None
    seconds: float
    parts: list[PartJson]


@dataclass
class Part:
    """One thing that was looked at."""

    name: str
    verdict: str = "ok"
    why: str | None = None
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    # Below the folder of the check; what is to be kept of it.
    files: list[str] = field(default_factory=list)


@dataclass
class Check:
    """One check in its own process: its folder, its time, and its parts so far."""

    folder: Path
    # Of the monotonic clock.
    until: float
    # Whether a GPU is there, and whether a first look is enough.
    gpu: bool
    quick: bool = False
    # What is asked for of a check that has a choice; empty: all that it has.
    wanted: tuple[str, ...] = ()
    parts: list[Part] = field(default_factory=list)

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.until - time.monotonic()

    def do(self, name: str, work: Callable[[Part], None], needs: float = 0.0) -> Part:
        """Look at one thing; what goes wrong in it ends it and nothing else."""
        part, began = Part(name), time.monotonic()
        self.parts.append(part)
        try:
            if self.left <= needs:
                raise LeftOut(NO_TIME)  # noqa: TRY301  like any other reason
            work(part)
        except LeftOut as left_out:
            part.verdict, part.why = "left out", str(left_out)
        except Failed as failed:
            part.verdict, part.why = "failed", str(failed)
        except Exception as error:  # noqa: BLE001  it is reported, and the next one goes on
            traceback.print_exc()
            part.verdict, part.why = "failed", f"{type(error).__name__}: {tail(str(error))}"
        except BaseException:
            part.verdict, part.why = "failed", CUT
            raise
        finally:
            part.seconds = round(time.monotonic() - began, 1)
            _write(self.folder / ANSWER, [asdict(each) for each in self.parts])
            print(f"  {line(PartJson(**asdict(part)))}", flush=True)
        return part


@dataclass
class Checkup:
    """All checks of one run, and what came of them."""

    out: Path
    work: Path
    facts: dict[str, Any]
    command: str
    # Of the monotonic clock.
    until: float
    checks: list[CheckJson] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run(self, name: str, seconds: float, command: Sequence[str]) -> None:
        """Run one check, for as long as it may take at most."""
        began, folder = time.monotonic(), self.work / name
        limit = min(began + seconds, self.until)
        check = CheckJson(name=name, verdict="failed", why=CUT, seconds=0.0, parts=[])
        self.checks.append(check)
        folder.mkdir()
        if limit - began < 1:
            check["verdict"], check["why"] = "left out", NO_TIME
        else:
            print(f"{name}: {limit - began:.0f} s at most", flush=True)
            code = self._wait(check, folder, [*command, f"{limit!r}"], limit)
            self._update(check, folder)
            check["verdict"], check["why"] = _judged(code, parts_of(folder))
        check["seconds"] = round(time.monotonic() - began, 1)
        self.pack()
        print(f"{line(check)}\n", flush=True)

    def _wait(self, check: CheckJson, folder: Path, command: list[str], limit: float) -> int | None:
        """Wait for a check; ``None``: it was cut off. Nothing that it started is left."""
        none = subprocess.DEVNULL
        with (
            (folder / LOG).open("wb") as log,
            subprocess.Popen(
                command, stdin=none, stdout=log, stderr=log, start_new_session=True
            ) as child,
        ):
            try:
                while time.monotonic() < limit:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return child.wait(BETWEEN)
                    self._update(check, folder)
                return None
            finally:
                if child.poll() is None:
                    child.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(TO_END)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _update(self, check: CheckJson, folder: Path) -> None:
        done, check["parts"] = len(check["parts"]), parts_of(folder)
        for part in check["parts"][done:]:
            print(f"  {line(part)}", flush=True)
            self.pack()

    def without_time(self, name: str) -> list[str]:
        """Return the parts of a check for which there was no time, or too little."""
        parts = [part for check in self.checks if check["name"] == name for part in check["parts"]]
        return [part["name"] for part in parts if part["why"] in {NO_TIME, CUT}]

    def pack(self) -> None:
        """Write what there is."""
        seconds = round(time.monotonic() - self.began, 1)
        report = {"schema": SCHEMA, **self.facts, "command": self.command, "seconds": seconds}
        _write(self.out / REPORT, report | {"checks": self.checks})
        half = self.out / f".{ARCHIVE}"
        with tarfile.open(half, "w") as archive:
            for check in self.checks:
                for name in (*(f for p in check["parts"] for f in p["files"]), LOG):
                    path = self.work / check["name"] / name
                    if path.exists():
                        archive.add(path, f"{check['name']}/{name}", filter=_anonymous)
        half.rename(self.out / ARCHIVE)


def _judged(code: int | None, parts: list[PartJson]) -> tuple[str, str | None]:
    """Return what a check came to: the worst of its parts."""
    verdicts = [part["verdict"] for part in parts]
    done = f"{verdicts.count('ok')} of {len(parts)} parts ok"
    if code is None or any(part["why"] == CUT for part in parts):
        return "failed", f"{CUT}; {done}"
    if code or not parts:
        return "failed", f"it ended with code {code}; {done}"
    if "failed" in verdicts:
        return "failed", done
    if "ok" in verdicts:
        return "ok", None if set(verdicts) == {"ok"} else done
    return "left out", "; ".join(dict.fromkeys(part["why"] or "" for part in parts))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made a file."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _write(path: Path, document: object) -> None:
    half = path.with_name(f".{path.name}")
    half.write_text(json.dumps(document, indent=1) + "\n")
    half.rename(path)


def parts_of(folder: Path) -> list[PartJson]:
    """Return the parts of a check that are done."""
    try:
        parts: list[PartJson] = json.loads((folder / ANSWER).read_text())
    except FileNotFoundError:
        return []
    return parts


def line(part: PartJson | CheckJson) -> str:
    """Return one part as a line of the report."""
    why = f" ({part['why']})" if part["why"] else ""
    return f"{part['verdict']:<9}{part['name']}{why}, {part['seconds']:g} s"


def tail(text: str, lines: int = 6) -> str:
    """Return the end of what a program said, on one line."""
    said = [each.strip() for each in text.splitlines() if each.strip()]
    return " | ".join(said[-lines:]) or "it said nothing"


def output(what: str, command: Sequence[str | Path], **options: Any) -> tuple[str, str]:
    """Run a program and return what it said, which goes into the log too; fail where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    print(done.stdout, done.stderr)
    if done.returncode:
        raise Failed(f"{what} ended with code {done.returncode}: {tail(done.stderr)}")
    return done.stdout, done.stderr


def monitor(*words: str, **options: Any) -> tuple[dict[str, Any], str]:
    """Run a command of the monitor; return its JSON, and what it said besides."""
    command = [sys.executable, "-P", "-m", "whyidle.monitor", *words]
    out, err = output(f"monitor {words[0]}", command, **options)
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer, err
