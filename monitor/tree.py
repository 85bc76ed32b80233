"""Follow a job: the named process and everything it starts, for as long as any of it lives.

A child that loses its parent (a launcher that ends first) stays in the tree: it was seen as ours.
"""

from __future__ import annotations

from whyidle.monitor.process import ProcessKey
from whyidle.monitor.procfs import ProcFs, Stat

# Looking through all of /proc is the dearest read we make; new workers may wait this long.
RESCAN_SECONDS = 2.0
_DEAD = frozenset("ZX")


class Tree:
    """The live processes of one job, with the stat line of each, read once per tick."""

    def __init__(self, root: ProcessKey, fs: ProcFs | None = None) -> None:
        self.root = root
        self.fs = fs or ProcFs()
        self.stats: dict[ProcessKey, Stat] = {}
        self._members: set[ProcessKey] = {root}
        self._scanned: float | None = None

    def refresh(self, now: float) -> dict[ProcessKey, Stat]:
        """Return the live members at this moment; empty when the job is over."""
        if self._scanned is None or now - self._scanned >= RESCAN_SECONDS:
            self._scan()
            self._scanned = now
        else:
            self.stats = self._alive()
        self._members = set(self.stats)
        return self.stats

    def _alive(self) -> dict[ProcessKey, Stat]:
        stats = ((key, self.fs.stat(key.pid)) for key in self._members)
        return {k: s for k, s in stats if s is not None and is_alive(k, s)}

    def _scan(self) -> None:
        everybody = [s for pid in self.fs.pids() if (s := self.fs.stat(pid)) is not None]
        children: dict[int, list[Stat]] = {}
        for stat in everybody:
            children.setdefault(stat.parent, []).append(stat)
        waiting = [s for s in everybody if ProcessKey(s.pid, s.start_ticks) in self._members]
        found: dict[ProcessKey, Stat] = {}
        while waiting:
            stat = waiting.pop()
            key = ProcessKey(stat.pid, stat.start_ticks)
            if key in found or not is_alive(key, stat):
                continue
            found[key] = stat
            waiting += children.get(stat.pid, [])
        self.stats = found


def is_alive(key: ProcessKey, stat: Stat) -> bool:
    """Tell whether the stat line still is this process, and no zombie."""
    return stat.start_ticks == key.start_ticks and stat.state not in _DEAD
