"""``recorder.log``: each defect of ours with its traceback, at a limited rate."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

LOG: Final = "recorder.log"
LONGEST_LOG: Final = 1 << 20
# For this long, further failures in the same place are only counted.
AGAIN_SECONDS: Final = 60.0
_HEAD: Final = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d run (\d+): (.+?): \w.*?(?: \((\d+) times by now\))?$"
)


class Defects:
    """Counts and logs what failed in one recording; never fails itself."""

    def __init__(self, folder: Path, run: int) -> None:
        self._run = run
        self._counts: Counter[str] = Counter()
        self._told_at: dict[str, float] = {}
        # The counts as of the last line in the log.
        self._written: dict[str, int] = {}
        self._log = logging.Logger("whyidle.recorder")  # noqa: LOG001  one a recording
        self._handler = _Silent(
            folder / LOG, maxBytes=LONGEST_LOG, backupCount=1, encoding="utf-8", delay=True
        )
        self._handler.setFormatter(
            logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")
        )
        self._log.addHandler(self._handler)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often something failed, by place."""
        return dict(self._counts)

    def caught(self, where: str, error: BaseException) -> bool:
        """Count a defect; return whether it is the first in this place for a while."""
        self._counts[where] += 1
        now = time.monotonic()
        if now - self._told_at.get(where, float("-inf")) < AGAIN_SECONDS:
            return False
        self._told_at[where] = now
        # Even the error's own __str__ may fail.
        with contextlib.suppress(Exception):
            self._write(where, f"{type(error).__name__}: {error!s:.300}", error)
        return True

    def close(self) -> None:
        """Log the final counts that have not been logged yet."""
        for where, times in self._counts.items():
            if times > self._written.get(where, 0):
                self._write(where, "and again", None)

    def _write(self, where: str, what: str, error: BaseException | None) -> None:
        times = self._written[where] = self._counts[where]
        line = f"run {self._run}: {where}: {what}"
        if times > 1:
            line += f" ({times} times by now)"
        # The disk may be full.
        with contextlib.suppress(Exception):
            self._log.error(line.replace("\n", " "), exc_info=error)
        with contextlib.suppress(Exception):
            # Reopened for the next line.
            self._handler.close()


class _Silent(RotatingFileHandler):
    """A log that neither ends a recording nor prints to the terminal when it cannot be written."""

    def _open(self) -> TextIOWrapper:
        # A link would let somebody else choose which file we write to.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        raw = os.fdopen(os.open(self.baseFilename, flags, 0o600), "ab")
        return TextIOWrapper(raw, encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the library's name
        """Do nothing."""


def logged(folder: Path) -> Mapping[str, int]:
    """Return how many defects the log reports, by place; empty without a log."""
    times: dict[tuple[str, str], int] = {}
    for name in (f"{LOG}.1", LOG):
        try:
            text = (folder / name).read_text(errors="replace")
        except OSError:
            continue
        for head in filter(None, map(_HEAD.match, text.splitlines())):
            run, where, by_now = head.groups()
            times[run, where] = max(times.get((run, where), 0), int(by_now or 1))
    found: Counter[str] = Counter()
    for (_, where), number in times.items():
        found[where] += number
    return found
