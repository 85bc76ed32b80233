"""The processes whose use counts for a job: live ones, and dead ones not reaped yet.

A dead child's use enters the parent's totals only once it is reaped. So both are read together, and
a process whose use is already in a parent's total must not count as live.
"""

from __future__ import annotations

from collections.abc import Mapping

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat


class Family:
    """The processes whose totals make up the job's."""

    def __init__(self) -> None:
        self.stats: dict[ProcessKey, Stat] = {}
        # Seen for the first time, and started after the recording began.
        self.new: frozenset[ProcessKey] = frozenset()
        self._newest_before: int | None = None

    def look(self, fs: ProcFs, live: Mapping[ProcessKey, Stat]) -> None:
        """Take in the live processes of this moment, and find the dead ones."""
        before, self.stats = self.stats, dict(live)
        if self._newest_before is None:
            self._newest_before = self._begin(fs)
        for key in before.keys() - live.keys():
            if (stat := _same(fs, key)) is not None:
                self.stats[key] = stat
        self._drop_reaped(fs, before)
        seen_first = self.stats.keys() - before.keys()
        self.new = frozenset(k for k in seen_first if k.start_ticks > self._newest_before)

    def _begin(self, fs: ProcFs) -> int:
        """Add those that were dead before we came; return the newest start time of all."""
        parents = {key.pid for key in self.stats}
        newest = max((key.start_ticks for key in self.stats), default=0)
        for pid in fs.pids():
            stat = fs.stat(pid)
            if stat is None:
                continue
            newest = max(newest, stat.start_ticks)
            if stat.has_ended and stat.parent in parents:
                self.stats[ProcessKey(pid, stat.start_ticks)] = stat
        return newest

    def _drop_reaped(self, fs: ProcFs, before: Mapping[ProcessKey, Stat]) -> None:
        """Read again those read first: they may have been reaped before the parent was read.

        Their use, possibly that of days, would count twice.
        """
        grown = {
            k.pid for k, s in self.stats.items() if k in before and _reaped_since(before[k], s)
        }
        if not grown:
            return
        suspects = grown | {key.pid for key in before.keys() - self.stats.keys()}
        children: dict[int, list[ProcessKey]] = {}
        for key, stat in self.stats.items():
            children.setdefault(stat.parent, []).append(key)
        while suspects:
            for key in children.pop(suspects.pop(), []):
                if _same(fs, key) is None:
                    del self.stats[key]
                    suspects.add(key.pid)


def _reaped_since(before: Stat, now: Stat) -> bool:
    return (now.reaped_ticks, now.reaped_minor_faults, now.reaped_major_faults) != (
        before.reaped_ticks,
        before.reaped_minor_faults,
        before.reaped_major_faults,
    )


def _same(fs: ProcFs, key: ProcessKey) -> Stat | None:
    """Return the process's stat line until it is reaped."""
    stat = fs.stat(key.pid)
    return stat if stat is not None and stat.start_ticks == key.start_ticks else None
