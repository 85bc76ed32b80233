"""Where a check works: its folder, its time, and what it has to tell so far.

A check is made of parts. Each is ok, failed with what, or left out with why, and stands in the
folder as soon as it is done: who cuts a check short keeps the parts before.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Verdict = Literal["ok", "failed", "left out"]
ANSWER: Final = "answer.json"
NO_TIME: Final = "no time was left for it"
CUT: Final = "cut off while it ran"


class Failed(Exception):  # noqa: N818  an answer
    """What was looked at is not as it must be; the text says what was seen."""


class LeftOut(Exception):  # noqa: N818  an answer
    """It cannot be looked at here; the text says why."""


@dataclass
class Part:
    """One thing that was looked at."""

    name: str
    verdict: Verdict = "ok"
    why: str | None = None
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    # Below the folder of the check; what is to be kept of it.
    files: list[str] = field(default_factory=list)


@dataclass
class Room:
    """The place and the time of one check."""

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
            self._check_time(needs)
            work(part)
        except LeftOut as left_out:
            part.verdict, part.why = "left out", str(left_out)
        except Failed as failed:
            part.verdict, part.why = "failed", str(failed)
        except Exception as error:  # noqa: BLE001  it is told, and the next one goes on
            traceback.print_exc()
            part.verdict, part.why = "failed", f"{type(error).__name__}: {tail(str(error))}"
        except BaseException:
            part.verdict, part.why = "failed", CUT
            raise
        finally:
            part.seconds = round(time.monotonic() - began, 1)
            self._write()
            print(f"  {name}: {part.verdict}{f' ({part.why})' if part.why else ''}", flush=True)
        return part

    def _check_time(self, needs: float) -> None:
        if self.left <= max(needs, 0.0):
            raise LeftOut(NO_TIME)

    def _write(self) -> None:
        text = json.dumps([asdict(part) for part in self.parts], indent=1) + "\n"
        half = self.folder / f".{ANSWER}"
        half.write_text(text)
        half.rename(self.folder / ANSWER)


def told(folder: Path) -> list[dict[str, Any]]:
    """Return the parts that a check has told so far."""
    try:
        parts: list[dict[str, Any]] = json.loads((folder / ANSWER).read_text())
    except FileNotFoundError:
        return []
    return parts


def tail(text: str, lines: int = 6) -> str:
    """Return the end of what a program said, on one line."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(said[-lines:]) or "it said nothing"


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a program of ours: the import path goes with it."""
    return {**os.environ, **more}
