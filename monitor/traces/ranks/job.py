"""The files of a job -> an answer and members for each; a process for each core reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from whyidle.monitor.core.contracts.trace import TraceJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.traces.analysis import analyse
from whyidle.monitor.traces.answer import contract
from whyidle.monitor.traces.opening import Progress, show
from whyidle.monitor.traces.ranks.files import Files
from whyidle.monitor.traces.ranks.member import PIECES_MOST, Member, members
from whyidle.monitor.traces.ranks.readers import in_processes

# Below this a process of its own takes longer to start than the files to be read.
_SMALL: Final = 2 << 20
# Pieces of the accounts of all ranks together: 50 MB.
_PIECES: Final = 1 << 21
_RANK: Final = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDED: Final = "the process that read it ended: did the machine run out of memory?"


@dataclass(frozen=True, slots=True)
class RankFile:
    """One file that was read."""

    path: Path
    answer: TraceJson
    members: list[Member]

    @property
    def name(self) -> str:
        """As it is shown."""
        return show(Path(self.path.name))

    @property
    def rank_by_name(self) -> int | None:
        """The rank that the name of the file says, if it does."""
        found = _RANK.findall(self.path.name)
        return int(found[-1]) if found else None


@dataclass(slots=True)
class Job:
    """The files that were read, and why others were not."""

    files: list[RankFile] = field(default_factory=list)
    failed: list[tuple[Path, Problem]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def read_job(files: Files, progress: Progress | None = None) -> Job:
    """Read all files; one that cannot be read costs only itself."""
    job = Job(said=list(files.said))
    size = {path: _size(path) for path in files.paths}
    done = 0
    for path, found in _each(files.paths, sum(size.values())):
        if isinstance(found, Problem):
            job.failed.append((path, found))
        else:
            job.files.append(found)
        done += size[path]
        if progress:
            progress(done, sum(size.values()))
    order = {path: i for i, path in enumerate(files.paths)}
    job.files.sort(key=lambda file: order[file.path])
    job.failed.sort(key=lambda one: order[one[0]])
    return job


def _each(paths: Sequence[Path], size: int) -> Iterator[tuple[Path, RankFile | Problem]]:
    read = partial(_read, pieces=min(PIECES_MOST, _PIECES // max(1, len(paths))))
    workers = min(len(paths), len(os.sched_getaffinity(0)))
    if workers < 2 or size < _SMALL:
        yield from ((path, read(path)) for path in paths)
        return
    left = list(paths)
    for path, found in in_processes(read, paths, workers):
        if found is not None:
            left.remove(path)
            yield path, found
    # Whichever of them it was that ended its process: each by itself.
    for path in left:
        one = next(in_processes(read, [path], 1))[1]
        yield path, one or Problem(f"{show(path)}: {_ENDED}", "Name it alone: monitor trace FILE")


def _read(path: Path, pieces: int) -> RankFile | Problem:
    try:
        analysis = analyse(path)
    except Problem as problem:
        return problem
    return RankFile(path, contract(analysis), members(analysis, pieces))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
