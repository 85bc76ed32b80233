"""The CPU and memory limits that a container or a batch system sets (cgroup v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from whyidle.monitor.processes.procfs import ProcFs

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


class Cgroup:
    """The control groups of one process, found once."""

    def __init__(self, pid: int, fs: ProcFs, root: Path = Path("/sys/fs/cgroup")) -> None:
        cpu, memory = _folders(fs.text(f"{pid}/cgroup") or "", root)
        self._cpu, self._memory = _upwards(cpu, root), _upwards(memory, root)

    def read(self) -> Limits:
        """Return the current state; the tightest limit from the group up to the root counts."""
        return Limits(
            periods={f: p for f in self._cpu if (p := _periods(f)) is not None},
            cpu_cores=_tightest(_cpu_limit(f) for f in self._cpu),
            memory_bytes=_tightest(_memory_limit(f) for f in self._memory),
        )

    def oom_kills(self) -> int | None:
        """Return how many processes of the group the kernel has killed out of memory."""
        for folder in self._memory[:1]:
            for name in ("memory.events", "memory.oom_control"):
                count = _words(folder / name).get("oom_kill")
                if count is not None and count.isdecimal():
                    return int(count)
        return None


def _folders(text: str, root: Path) -> tuple[Path | None, Path | None]:
    """Return the folders of the cpu and the memory controller."""
    found: dict[str, Path] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = _folder(root, controller, controllers, path.lstrip("/"))
    unified = found.get("")
    return found.get("cpu", unified), found.get("memory", unified)


def _upwards(folder: Path | None, root: Path) -> list[Path]:
    """Return the group and its ancestors that have files of limits."""
    if folder is None:
        return []
    above = (f for f in (folder, *folder.parents) if f.is_relative_to(root))
    return [f for f in above if any((f / name).exists() for name in _FILES)]


def _folder(root: Path, controller: str, mounted_as: str, path: str) -> Path:
    for mount in (root / controller, root / mounted_as):
        if (mount / path).is_dir():
            return mount / path
    # Inside a container the path may be the host's, while the mount shows only our part.
    return root / controller


def _words(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return dict(line.split(None, 1) for line in lines if " " in line)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def _periods(folder: Path) -> Periods | None:
    stat = _words(folder / "cpu.stat")
    try:
        return Periods(int(stat["nr_periods"]), int(stat["nr_throttled"]))
    except (KeyError, ValueError):
        return None


def _cpu_limit(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        old_quota = _number(folder / "cpu.cfs_quota_us")
        old_period = _number(folder / "cpu.cfs_period_us")
        return old_quota / old_period if old_quota and old_period and old_quota > 0 else None
    return None if quota == "max" else int(quota) / int(period)


def _memory_limit(folder: Path) -> float | None:
    new = _number(folder / "memory.max")
    if new is not None:
        return new
    old = _number(folder / "memory.limit_in_bytes")
    return old if old is not None and old < _UNLIMITED_V1 else None


def _tightest(limits: Iterable[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
