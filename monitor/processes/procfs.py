"""Plain reads of /proc, with the root as a parameter so that tests can use a recorded one.

Every reader returns ``None`` for a process that is gone or closed to us: a watched job may end at
any time, and nothing here may raise for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Another Python, into which no way leads; of the files mapped into a process.
PYPY = re.compile(r"/(lib)?pypy3?[^/]*$")
_ENDED = frozenset("ZXx")
_STOPPED = frozenset("Tt")


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat; times in clock ticks."""

    pid: int
    name: str
    state: str
    parent: int
    minor_faults: int
    major_faults: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    rss: int
    # Of its CPU time that in the kernel.
    kernel_ticks: int = 0
    # The use of its children that have been reaped, and of all that these have reaped.
    reaped_ticks: int = 0
    reaped_kernel_ticks: int = 0
    reaped_minor_faults: int = 0
    reaped_major_faults: int = 0
    # The leaders of the process group and session: a child keeps both, even without its parent.
    group: int = 0
    session: int = 0
    # The core on which the main thread ran last.
    core: int | None = None

    @property
    def has_ended(self) -> bool:
        """Tell whether it is a zombie, which only waits for its parent to reap it."""
        return self.state in _ENDED

    @property
    def is_stopped(self) -> bool:
        """Tell whether it is stopped, by Ctrl-Z or a tracer."""
        return self.state in _STOPPED


def content(path: str, *, short: bool = False) -> bytes | None:
    """Return a file's bytes, ``None`` when it is gone or closed to us.

    Dozens are read each second, without what Python's own files cost. A short one comes in one
    piece, which saves one of four calls.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if short:
            return os.read(handle, 4096)
        parts = []
        while part := os.read(handle, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(handle)


def own_memory() -> int | None:
    """Return the resident bytes of this very process."""
    words = (content("/proc/self/statm", short=True) or b"").split()
    return int(words[1]) * PAGE if words else None


class ProcFs:
    """One mounted proc file system."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        # The last read start times of the pids to follow.
        self.followed: dict[int, int] = {}

    def read(self, path: str, *, short: bool = False) -> bytes | None:
        """Return a file's bytes; see ``content``."""
        return content(f"{self.root}/{path}", short=short)

    def text(self, path: str) -> str | None:
        """Return a file's text; invalid UTF-8 stays recognisable."""
        raw = self.read(path)
        return None if raw is None else raw.decode("utf-8", "backslashreplace")

    def link(self, path: str) -> str | None:
        """Return where a link points."""
        try:
            return os.readlink(f"{self.root}/{path}")
        except OSError:
            return None

    def stat(self, pid: int) -> Stat | None:
        """Return the process's stat line, ``None`` when it is gone."""
        raw = self.read(f"{pid}/stat", short=True)
        if not raw:
            return None
        stat = parse_stat(raw)
        if pid in self.followed:
            self.followed[pid] = stat.start_ticks
        return stat

    def disk(self, pid: int) -> tuple[int, int, int] | None:
        """Return the bytes read from storage and written to it, and those that calls have read."""
        words = (self.read(f"{pid}/io", short=True) or b"").split()
        return (int(words[9]), int(words[11]), int(words[1])) if len(words) > 11 else None

    def schedule(self, pid: int, thread: str | None = None) -> tuple[int, int] | None:
        """Return the ns that a thread, else the main one, has run, and has waited for a core."""
        folder = f"{pid}" if thread is None else f"{pid}/task/{thread}"
        words = (self.read(f"{folder}/schedstat", short=True) or b"").split()
        return (int(words[0]), int(words[1])) if len(words) > 1 else None

    @cached_property
    def namespace(self) -> str | None:
        """Our own pid namespace."""
        return self.link("self/ns/pid")

    def threads(self, pid: int) -> list[str]:
        """Return the threads of a process."""
        try:
            return [name for name in os.listdir(f"{self.root}/{pid}/task") if name.isdigit()]
        except OSError:
            return []

    def pids(self) -> list[int]:
        """Return every process that we may see."""
        try:
            return [int(name) for name in os.listdir(self.root) if name.isdigit()]
        except OSError:
            return []

    def stats(self) -> dict[int, Stat]:
        """Return the stat line of every process that we may see, by pid."""
        return {pid: stat for pid in self.pids() if (stat := self.stat(pid)) is not None}

    def fields(self, path: str, *only: str) -> dict[str, str]:
        """Return a file of ``name: value`` or ``name value`` lines as a dict; some, if wanted.

        The kernel's own lists have hundreds of lines, and are read each second.
        """
        # Not `splitlines`: names in a job may contain other line ends.
        lines = (self.text(path) or "").split("\n")
        near = (line for line in lines if line.startswith(only or ""))
        pairs = (line.replace(":", " ", 1).split(None, 1) for line in near)
        return {
            pair[0]: pair[1].strip()
            for pair in pairs
            if len(pair) == 2 and (not only or pair[0] in only)
        }

    def arguments(self, pid: int) -> list[str] | None:
        """Return the command line; empty for a kernel thread or a zombie."""
        text = self.text(f"{pid}/cmdline")
        if text is None:
            return None
        return text.rstrip("\0").split("\0") if text else []

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the environment that the process was started with."""
        text = self.text(f"{pid}/environ")
        if text is None:
            return None
        return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)

    def mapped_files(self, pid: int) -> set[str] | None:
        """Return the files mapped into the process."""
        text = self.text(f"{pid}/maps")
        return None if text is None else files_in(text)

    def owner(self, pid: int) -> int | None:
        """Return the user id of the process."""
        uids = self.fields(f"{pid}/status").get("Uid")
        return int(uids.split()[1]) if uids else None

    def tracer(self, pid: int) -> int:
        """Return who traces the process; 0 for nobody."""
        return int(self.fields(f"{pid}/status").get("TracerPid", "0"))


def files_in(maps: str) -> set[str]:
    """Return the files in a memory map."""
    # Only a newline ends a line: file names may contain other line ends.
    columns = (line.split(None, 5) for line in maps.split("\n"))
    return {c[5] for c in columns if len(c) == 6 and c[5].startswith("/")}


def above_each(stats: Mapping[int, Stat]) -> dict[int, frozenset[int]]:
    """Return for each process its parent, the parent of that one, and so on."""
    found = {}
    for pid, stat in stats.items():
        above: set[int] = set()
        while (parent := stats.get(stat.parent)) is not None and parent.pid not in {pid, *above}:
            if parent.start_ticks > stat.start_ticks:
                # Its parent ended while we looked, and another process has that pid.
                break
            above.add(parent.pid)
            stat = parent  # noqa: PLW2901  one step up
        found[pid] = frozenset(above)
    return found


def parse_stat(raw: bytes) -> Stat:
    """Parse a stat line; the name is in parentheses and may itself contain some."""
    opening, closing = raw.index(b"("), raw.rindex(b")")
    rest = raw[closing + 2 :].split()
    return Stat(
        pid=int(raw[:opening]),
        name=raw[opening + 1 : closing].decode("utf-8", "backslashreplace"),
        state=rest[0].decode(),
        parent=int(rest[1]),
        minor_faults=int(rest[7]),
        major_faults=int(rest[9]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        threads=int(rest[17]),
        start_ticks=int(rest[19]),
        rss=int(rest[21]) * PAGE,
        kernel_ticks=int(rest[12]),
        reaped_ticks=int(rest[13]) + int(rest[14]),
        reaped_kernel_ticks=int(rest[14]),
        reaped_minor_faults=int(rest[8]),
        reaped_major_faults=int(rest[10]),
        group=int(rest[2]),
        session=int(rest[3]),
        core=int(rest[36]) if len(rest) > 36 else None,
    )
