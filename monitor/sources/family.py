"""Whose use counts for a job: its live processes, and its dead that nobody has reaped yet.

A dead child's use is in the parent's totals only once it is reaped, so both are looked at together,
and none may be taken for living whose use a parent's total already holds.
"""

from __future__ import annotations

from collections.abc import Mapping

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat


class Family:
    """The processes whose totals make up the job's."""

    def __init__(self) -> None:
        self.stats: dict[ProcessKey, Stat] = {}
        # Seen for the first time, and started since the recording began.
        self.new: frozenset[ProcessKey] = frozenset()
        self._newest_before: int | None = None

    def look(self, fs: ProcFs, live: Mapping[ProcessKey, Stat]) -> None:
        """Take in the live processes of this moment, and look for the others."""
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
        """Add those that were dead before we came; return when the newest of all has started."""
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
        """Look again at those who were read first and may have been reaped before the parent was.

        Their use would count twice, and it may be that of days.
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
    """Return the process's line while it is not reaped."""
    stat = fs.stat(key.pid)
    return stat if stat is not None and stat.start_ticks == key.start_ticks else None
