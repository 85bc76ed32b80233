"""Find out who the processes of a job are, seldom enough to leave the job alone.

Reading a process's maps holds its memory lock for a moment, so each process is looked at a few
times after it appears (a framework is loaded late) and not again once its framework is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import ProcFs

# What lives shorter than this (a compiler, a shell's helper) gets no line of its own in the store:
# a job that starts some each step would fill it with names.
SETTLED_SECONDS = 5.0
LOOK_AFTER_SECONDS = (0.0, 2.0, 5.0, 15.0, 60.0)
MOST_LOOKS_PER_TICK = 4


class Naming:
    """The identities of a job's processes."""

    def __init__(self, root: ProcessKey, fs: ProcFs) -> None:
        self.root = root
        self.known: dict[ProcessKey, Identity] = {}
        self._fs = fs
        self._first: dict[ProcessKey, float] = {}
        self._looks: dict[ProcessKey, int] = {}

    def look(self, now: float, live: Iterable[ProcessKey]) -> set[ProcessKey]:
        """Look at those that are due; return those that told something new."""
        live = set(live)
        self._forget(live)
        due = sorted(key for key in live if self._due(now, key))
        changed = set()
        for key in due[:MOST_LOOKS_PER_TICK]:
            self._looks[key] = self._looks.get(key, 0) + 1
            found = describe(key.pid, self._fs)
            if found is not None and found.key == key and found != self.known.get(key):
                self.known[key] = found
                changed.add(key)
        return changed

    def _due(self, now: float, key: ProcessKey) -> bool:
        first = self._first.setdefault(key, now)
        looks = self._looks.get(key, 0)
        known = self.known.get(key)
        if known is not None and known.frameworks:
            return False
        return looks < len(LOOK_AFTER_SECONDS) and now - first >= LOOK_AFTER_SECONDS[looks]

    def settled(self, now: float, key: ProcessKey) -> bool:
        """Tell whether a process has lived long enough to be worth a name."""
        return key == self.root or now - self._first.get(key, now) >= SETTLED_SECONDS

    def _forget(self, live: set[ProcessKey]) -> None:
        """Drop the dead, but not who the job is named after."""
        leader = self.leader()
        kept = live | {self.root} | ({leader.key} if leader else set())
        for table in (self.known, self._first, self._looks):
            for key in table.keys() - kept:
                del table[key]

    def leader(self) -> Identity | None:
        """Return who to name the job after: the first worker with a framework, else the target."""
        target = self.known.get(self.root)
        if target is not None and target.frameworks:
            return target
        workers = [i for i in self.known.values() if i.frameworks]
        return min(workers, key=lambda i: i.key.start_ticks) if workers else target
