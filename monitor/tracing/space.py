"""The files of traces: in a private folder of ours, within limits.

The results of a trace are in the store; its file is kept for other programs that show it. The
newest few of each recording stay, and the newest few taken outside of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from whyidle.agents import wire
from whyidle.monitor.core.errors import StorageProblem

FOLDER = "traces"
# Limits per recording, and for all traces without one.
MOST_FILES = 3
MOST_BYTES = 512 << 20
# The part of the disk that is left to others.
SPARE_BYTES = 1 << 30
_SUFFIXES = {"jax": "xplane.pb", "torch": "json", "tensorflow": "xplane.pb"}
_OURS = re.compile(r"(?:run-(\d+)|pid-\d+)-(\d+)\.(?:xplane\.pb|json|trace)")


class TraceFile(NamedTuple):
    """One stored file; the oldest sort first."""

    began_ms: int
    path: Path
    # ``None``: taken without a recording.
    run: int | None
    size: int


class Space:
    """The folder of the traces beside a store."""

    def __init__(self, store: Path) -> None:
        self.folder = store.parent / FOLDER

    def create(self, owner: str, framework: str) -> tuple[int, Path]:
        """Open a new file; ``owner`` is from ``of_run`` or ``of_pid``."""
        stamp = time.time_ns() // 1_000_000
        suffix = _SUFFIXES.get(framework, "trace")
        try:
            for folder in (self.folder.parent, self.folder):
                folder.mkdir(0o700, parents=True, exist_ok=True)
            while True:
                path = self.folder / f"{owner}-{stamp}.{suffix}"
                with contextlib.suppress(FileExistsError):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    return os.open(path, flags, 0o600), path
                stamp += 1
        except OSError as error:
            raise StorageProblem(
                f"A trace cannot be kept in {self.folder}: {error.strerror}.",
                "See what is there: monitor doctor",
            ) from None

    def has_room(self, size: int = wire.TRACE_FILE_CAP) -> bool:
        """Tell whether the disk can take a file and leave enough for others."""
        # The folder is made with the first file: it may not exist yet.
        folder = next(f for f in (self.folder, *self.folder.parents) if f.exists())
        try:
            found = os.statvfs(folder)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize >= size + SPARE_BYTES

    def files(self) -> list[TraceFile]:
        """Return our stored files, oldest first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                name = _OURS.fullmatch(entry.name)
                if name is None or not entry.is_file(follow_symlinks=False):
                    continue
                run = int(name[1]) if name[1] else None
                with contextlib.suppress(OSError):
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append(TraceFile(int(name[2]), Path(entry.path), run, size))
        return sorted(found)

    def holds(self, path: Path) -> bool:
        """Tell whether a file is one of ours."""
        in_folder = path.absolute().parent == self.folder.absolute()
        return in_folder and _OURS.fullmatch(path.name) is not None

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each recording's files."""
        found: dict[int, int] = {}
        for file in self.files():
            if file.run is not None:
                found[file.run] = found.get(file.run, 0) + file.size
        return found

    def tidy(self) -> list[Path]:
        """Remove the oldest files beyond the limits; return those removed."""
        left = self.files()
        gone: list[TraceFile] = []
        for run in {file.run for file in left}:
            gone += [file for file in left if file.run == run][:-MOST_FILES]
        left = [file for file in left if file not in gone]
        total = sum(file.size for file in left)
        # The newest one always stays.
        for file in left[:-1]:
            if total > MOST_BYTES:
                gone.append(file)
                total -= file.size
        return [file.path for file in gone if remove(file.path)]

    def forget(self, runs: Collection[int]) -> int:
        """Remove the files of recordings; return the bytes freed."""
        gone = [file for file in self.files() if file.run in runs and remove(file.path)]
        return sum(file.size for file in gone)


def of_run(run: int) -> str:
    """Name the owner of a file: a recording."""
    return f"run-{run}"


def of_pid(pid: int) -> str:
    """Name the owner of a file: a process that is not recorded."""
    return f"pid-{pid}"


def remove(path: Path) -> bool:
    """Remove a file if possible."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
