"""The CPU and memory limits that a container or a batch system sets (cgroup v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whyidle.monitor.processes.procfs import ProcFs, content

_UNLIMITED_V1 = 1 << 60
_FILES = ("cpu.max", "cpu.stat", "cpu.cfs_quota_us", "memory.max", "memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Periods:
    """How many scheduling periods a group has run in, and in how many its limit stopped it."""

    all: int
    throttled: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on the job; ``None`` where none is set or it cannot be read."""

    periods: dict[Path, Periods]
    cpu_cores: float | None
    memory_bytes: float | None
    # From there on the kernel takes memory back and lets the job wait for it.
    memory_high: float | None
    # Of the group with the tightest of these, without the pages of files.
    memory_used: float | None


class Cgroup:
    """The control groups of one process, also once it is moved to others."""

    def __init__(self, pid: int, fs: ProcFs, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._pid = pid
        self._fs = fs
        self._root = root
        self._text = ""
        self._cpu: list[Path] = []
        self._memory: list[Path] = []
        self._throttling: list[Path] = []
        self.follow()

    def follow(self) -> bool:
        """Find its groups, of a process that lives; returns whether they are others than before.

        The kernel may show one that has ended at the top.
        """
        pid, fs, root = self._pid, self._fs, self._root
        text = fs.text(f"{pid}/cgroup") or self._text
        if text == self._text:
            return False
        self._text = text
        ours, its = fs.link("self/ns/cgroup"), fs.link(f"{pid}/ns/cgroup")
        # In a container of its own it sees its group as the top of what is mounted there.
        is_apart = None not in {ours, its} and ours != its
        own = Path(fs.root, f"{pid}/root", *root.parts[1:]) if is_apart else None
        before = self._cpu, self._memory
        self._cpu = _groups(text, "cpu", root, own)
        self._memory = _groups(text, "memory", root, own)
        self._throttling = [f for f in self._memory if (f / "memory.high").exists()]
        return before != (self._cpu, self._memory)

    @property
    def pid(self) -> int:
        """The process whose groups these are."""
        return self._pid

    def read(self) -> Limits:
        """Return the current state; the tightest limit from the group up to the root counts."""
        limits = {f: _memory_limit(f) for f in self._memory}
        highs = {f: _number(f, "memory.high") for f in self._throttling}
        limited = [
            (size, f) for of in (limits, highs) for f, size in of.items() if size is not None
        ]
        return Limits(
            periods={f: p for f in self._cpu if (p := _periods(f)) is not None},
            cpu_cores=_tightest(_cpu_limit(f) for f in self._cpu),
            memory_bytes=_tightest(limits.values()),
            memory_high=_tightest(highs.values()),
            memory_used=_used(min(limited)[1]) if limited else None,
        )

    def oom_kills(self) -> int | None:
        """Return how many processes of the group the kernel has killed out of memory."""
        for folder in self._memory[:1]:
            for name in ("memory.events", "memory.oom_control"):
                count = _words(folder, name).get("oom_kill")
                if count is not None and count.isdecimal():
                    return int(count)
        return None

    def memory_pressure(self) -> str | None:
        """Return how long tasks of the group waited for memory, as the kernel writes it."""
        for folder in self._memory[:1]:
            # The topmost group, which has no such file, is the whole machine.
            if (folder / "cgroup.events").exists():
                return _text(folder, "memory.pressure")
        return None


def _groups(text: str, controller: str, root: Path, own: Path | None) -> list[Path]:
    """Return the group of a controller and its ancestors that have files of limits.

    By our own view of all groups, and by the process's own where that does not show it.
    """
    named: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for each in controllers.split(","):
            named[each] = controllers, path.lstrip("/")
    found = controller if controller in named else ""
    if found not in named:
        return []
    mounted_as, path = named[found]
    folder = None if ".." in Path(path).parts else _below(root, (found, mounted_as), path)
    if folder is None:
        # Inside a container the path may be the host's, while the mount shows only our part.
        root = own or root
        folder = root / found
    above = (f for f in (folder, *folder.parents) if f.is_relative_to(root))
    return [f for f in above if any((f / name).exists() for name in _FILES)]


def _below(root: Path, mounts: Sequence[str], path: str) -> Path | None:
    return next((root / m / path for m in mounts if (root / m / path).is_dir()), None)


def _text(folder: Path, name: str) -> str | None:
    raw = content(f"{folder}/{name}")
    return None if raw is None else raw.decode("utf-8", "replace")


def _words(folder: Path, name: str) -> dict[str, str]:
    lines = (_text(folder, name) or "").splitlines()
    return dict(line.split(None, 1) for line in lines if " " in line)


def _number(folder: Path, name: str) -> float | None:
    try:
        return float(_text(folder, name) or "")
    except ValueError:
        return None


def _periods(folder: Path) -> Periods | None:
    stat = _words(folder, "cpu.stat")
    try:
        return Periods(int(stat["nr_periods"]), int(stat["nr_throttled"]))
    except (KeyError, ValueError):
        return None


def _cpu_limit(folder: Path) -> float | None:
    try:
        quota, period = (_text(folder, "cpu.max") or "").split()
    except ValueError:
        old_quota = _number(folder, "cpu.cfs_quota_us")
        old_period = _number(folder, "cpu.cfs_period_us")
        return old_quota / old_period if old_quota and old_period and old_quota > 0 else None
    return None if quota == "max" else int(quota) / int(period)


def _memory_limit(folder: Path) -> float | None:
    new = _number(folder, "memory.max")
    if new is not None:
        return new
    old = _number(folder, "memory.limit_in_bytes")
    return old if old is not None and old < _UNLIMITED_V1 else None


def _used(folder: Path) -> float | None:
    used = _number(folder, "memory.current")
    if used is None:
        used = _number(folder, "memory.usage_in_bytes")
    stat = _words(folder, "memory.stat")
    # The old one's own numbers leave out the groups below it.
    pages = (stat.get(f"total_{n}", stat.get(n, "0")) for n in ("inactive_file", "active_file"))
    return None if used is None else max(0.0, used - sum(map(int, pages)))


def _tightest(limits: Iterable[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
