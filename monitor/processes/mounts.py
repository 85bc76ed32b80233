"""On which file system a file of the job lies, in words: its kind, its mount, its disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from whyidle.monitor.processes.procfs import ProcFs

MOST_KNOWN: Final = 200
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
# A device of its own, a part of one, or a mapping over one.
_VIRTUAL: Final = re.compile(r"/(?:virtio|vbd-|xen|nbd|zd)\d*")
_ROTATES: Final = ("queue/rotational", "../queue/rotational")


class Mounts:
    """The mounts of one process, as they were when it was opened."""

    def __init__(self, fs: ProcFs, pid: int, sys: str = "/sys") -> None:
        self._fs, self._pid, self._sys = fs, pid, sys
        self._known: dict[str, str] = {}
        self._mounts: list[tuple[str, str, str]] | None = None

    def of(self, path: str) -> str:
        """Return the words for a path, as /proc/PID/fd shows it."""
        if not path.startswith("/"):
            # ``socket:[123]``, ``pipe:[123]``, ``anon_inode:[eventfd]``.
            return path.partition(":")[0]
        folder = path.rpartition("/")[0] or "/"
        found = self._known.get(folder)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[folder] = self._look(path)
        return found

    def _look(self, path: str) -> str:
        if self._mounts is None:
            self._mounts = _parsed(self._fs.text(f"{self._pid}/mountinfo") or "")
        around = [x for x in self._mounts if x[0] == "/" or f"{path}/".startswith(f"{x[0]}/")]
        if not around:
            return "a file system that is not known"
        # Of several at one place the last one is seen.
        point, device, kind = max(reversed(around), key=lambda x: len(x[0]))
        return f"{kind} at {point}{', on a rotating disk' * self._rotates(device)}"

    def _rotates(self, device: str) -> bool:
        place = os.path.realpath(f"{self._sys}/dev/block/{device}")
        if _VIRTUAL.search(place):
            # Says so of whatever lies behind it.
            return False
        for name in _ROTATES:
            try:
                return Path(f"{self._sys}/dev/block/{device}/{name}").read_text().strip() == "1"
            except OSError:
                continue
        return False


def _parsed(text: str) -> list[tuple[str, str, str]]:
    """Return where each is mounted, the number of its device, and its kind."""
    found = []
    for line in text.split("\n"):
        words, _, rest = line.partition(" - ")
        fields, kind = words.split(" "), rest.partition(" ")[0]
        if len(fields) > 4 and kind:
            point = _ESCAPED.sub(lambda m: chr(int(m[1], 8)), fields[4])
            found.append((point, fields[2], kind))
    return found
