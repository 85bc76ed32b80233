"""Identify the processes of a job, seldom enough not to disturb it.

Reading a process's maps holds its memory lock for a moment. So we check each process a few times
after it appears (frameworks load late), and no more once its framework is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import TICKS_PER_SECOND, ProcFs
from whyidle.monitor.processes.roles import title_of

# A process that lives shorter than this (a compiler, a shell's helper) gets no row in the store: a
# job that starts some each step would fill it with names.
SETTLED_SECONDS = 5.0
LOOK_AFTER_SECONDS = (0.0, 2.0, 5.0, 15.0, 60.0)
LATER_LOOKS_EVERY_SECONDS = 60.0
MOST_LOOKS_PER_TICK = 4


class Naming:
    """The identities of a job's processes."""

    def __init__(self, root: ProcessKey, fs: ProcFs) -> None:
        self.root = root
        self.known: dict[ProcessKey, Identity] = {}
        self._fs = fs
        self._first: dict[ProcessKey, float] = {}
        self._looks: dict[ProcessKey, int] = {}
        self._live: set[ProcessKey] = set()
        self._leader: Identity | None = None

    def look(self, now: float, live: Iterable[ProcessKey]) -> set[ProcessKey]:
        """Check those that are due; return those with something new, or that now lead."""
        self._live = live = set(live)
        due = sorted(key for key in live if self._due(now, key))
        changed = self._retitled(now)
        for key in due[:MOST_LOOKS_PER_TICK]:
            self._looks[key] = self._looks.get(key, 0) + 1
            found = describe(key.pid, self._fs)
            if found is not None and found.key == key and found != self.known.get(key):
                self.known[key] = found
                changed.add(key)
        before, self._leader = self._leader, self._choose()
        if self._leader is not None and self._leader != before:
            changed.add(self._leader.key)
        self._forget(live)
        return changed

    def _retitled(self, now: float) -> set[ProcessKey]:
        """Take in the titles that processes have given themselves since they were looked at."""
        changed: set[ProcessKey] = set()
        for key in self._live:
            known, looks = self.known.get(key), self._looks.get(key, 0)
            if known is None or not known.frameworks or not 0 < looks < len(LOOK_AFTER_SECONDS):
                continue
            if now - self._first[key] < LOOK_AFTER_SECONDS[looks]:
                continue
            self._looks[key] = looks + 1
            if title_of(self._fs.arguments(key.pid) or ()) == known.title:
                continue
            found = describe(key.pid, self._fs)
            if found is not None and found.key == key:
                self.known[key] = found
                changed.add(key)
        return changed

    def _due(self, now: float, key: ProcessKey) -> bool:
        first = self._first.setdefault(key, now)
        looks = self._looks.get(key, 0)
        known = self.known.get(key)
        if known is not None and known.frameworks:
            return False
        late = looks - len(LOOK_AFTER_SECONDS) + 1
        if late <= 0:
            return now - first >= LOOK_AFTER_SECONDS[looks]
        # Python can load a framework at any time.
        is_python = known is not None and known.python is not None
        return (
            is_python and now - first >= LOOK_AFTER_SECONDS[-1] + late * LATER_LOOKS_EVERY_SECONDS
        )

    def settled(self, now: float, key: ProcessKey) -> bool:
        """Tell whether a process has lived long enough to be worth a name."""
        if key == self.root or now - self._first.get(key, now) >= SETTLED_SECONDS:
            return True
        # A process that was old before we came counts at once.
        uptime = (self._fs.text("uptime") or "0").split()[0]
        return float(uptime) - key.start_ticks / TICKS_PER_SECOND >= SETTLED_SECONDS

    def look_again(self, key: ProcessKey) -> None:
        """Check again a process that now runs another program."""
        for table in (self.known, self._first, self._looks):
            table.pop(key, None)

    def _forget(self, live: set[ProcessKey]) -> None:
        """Drop dead processes, except the one that the job is named after."""
        kept = live | {self.root} | ({self._leader.key} if self._leader else set())
        for table in (self.known, self._first, self._looks):
            for key in table.keys() - kept:
                del table[key]

    def leader(self) -> Identity | None:
        """Return the process to name the job after, as of the last check."""
        return self._leader

    def _choose(self) -> Identity | None:
        """Return the process to name the job after: with a framework, else the root, else any left.

        Live processes come before dead ones, and older ones before younger.
        """
        target = self.known.get(self.root)
        if self.root in self._live and target is not None and target.frameworks:
            return target
        living = sorted((self.known[k] for k in self._live if k in self.known), key=_age)
        before = self._leader or target
        if worker := next((i for i in living if i.frameworks), None):
            return worker
        if before is not None and before.frameworks:
            return before
        if self.root in self._live or not living:
            return target
        return living[0]


def _age(identity: Identity) -> tuple[int, int]:
    return identity.key.start_ticks, identity.key.pid
