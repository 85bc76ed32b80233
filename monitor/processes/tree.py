"""Follow a job: the named process and everything it starts, as long as any of it lives.

A child that loses its parent (a launcher that ends first) stays in the tree: we saw it as ours. So
does one that we did not see before its parent ended (a double fork), if it is still in a process
group or session that the job began; one in a session of its own is a stranger.
A monitor that watches its own shell is a child of the job, but not part of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs, Stat

# New workers may wait this long to be seen. Only new pids are read: a machine has thousands of
# others.
RESCAN_SECONDS = 0.9
# A pid may have been reused unseen; a full scan settles that, at no more than this share.
WHOLE_SCAN_SECONDS = 60.0
WHOLE_SCAN_SHARE = 0.001


class Tree:
    """The live processes of one job, with the stat line of each, read once per tick."""

    def __init__(self, root: ProcessKey, fs: ProcFs | None = None) -> None:
        self.root = root
        self.fs = fs or ProcFs()
        self.stats: dict[ProcessKey, Stat] = {}
        self._members: set[ProcessKey] = {root}
        # The process groups and sessions that members lead, with the parent of each leader.
        self._circles: dict[int, int] = {}
        self._seen: set[int] = set()
        self._ourselves = int(self.fs.link("self") or 0)
        self._scan_at = 0.0
        self._whole_at = 0.0
        # Why members could not be read at the last scan: they are assumed unchanged.
        self.unreadable: list[Exception] = []

    def refresh(self, now: float) -> dict[ProcessKey, Stat]:
        """Return the live members at this moment; empty when the job is over."""
        self.unreadable = []
        stats = [(key, self._read(key)) for key in self._members]
        self.stats = {k: s for k, s in stats if s is not None and is_alive(k, s)}
        if now >= self._whole_at:
            began = time.monotonic()
            self._seen = {key.pid for key in self._members}
            self._scan()
            took = time.monotonic() - began
            self._whole_at = now + max(WHOLE_SCAN_SECONDS, took / WHOLE_SCAN_SHARE)
            self._scan_at = now + RESCAN_SECONDS
        elif now >= self._scan_at:
            self._scan()
            self._scan_at = now + RESCAN_SECONDS
        self._members = set(self.stats)
        return self.stats

    def root_lives(self) -> bool:
        """Tell whether the named process lives, if the job's processes cannot be read."""
        try:
            stat = self.fs.stat(self.root.pid)
        except (ValueError, IndexError):
            return True
        return stat is not None and is_alive(self.root, stat)

    def _read(self, key: ProcessKey) -> Stat | None:
        try:
            return self.fs.stat(key.pid)
        except (ValueError, IndexError) as error:
            if key not in self.stats:
                raise
            self.unreadable.append(error)
            return self.stats[key]

    def _new(self, pid: int) -> Stat | None:
        try:
            return self.fs.stat(pid)
        except (ValueError, IndexError) as error:
            # Some process of the machine, most likely not one of the job's.
            self.unreadable.append(error)
            return None

    def _scan(self) -> None:
        """Read every new pid, and add the children of members."""
        pids = set(self.fs.pids())
        unseen = pids - self._seen - {self._ourselves, *(key.pid for key in self.stats)}
        new = [s for pid in unseen if (s := self._new(pid)) is not None]
        # New children of an ended member are strangers: another process has its pid by now.
        parents = {key.pid for key in self.stats}
        orphans = self._orphans(new)
        family = descendants(new, parents | {s.pid for s in orphans})
        for stat in (*orphans, *family):
            key = ProcessKey(stat.pid, stat.start_ticks)
            if is_alive(key, stat):
                self.stats[key] = stat
        self._seen = pids

    def _orphans(self, new: list[Stat]) -> list[Stat]:
        """Return those whose parent ended unseen, but that are in a group or session of the job."""
        began = {s.pid: s.parent for s in self.stats.values()}
        # Our own children may be in a group of ours.
        if (ourselves := self.fs.stat(self._ourselves)) is not None:
            began[ourselves.pid] = ourselves.parent
        began |= self._circles
        used = {number for s in self.stats.values() for number in (s.group, s.session)}
        self._circles = {number: began[number] for number in used & began.keys()}
        near = (s for s in new if s.group in self._circles or s.session in self._circles)
        return [s for s in near if self._is_left_alone(s)]

    def _is_left_alone(self, stat: Stat) -> bool:
        """Tell an orphan from a neighbour: who reads the job's pipe is a child of its shell.

        A parent in the same session proves nothing: a supervisor may adopt orphans.
        """
        began_by = {self._circles.get(stat.group), self._circles.get(stat.session)}
        parent = self.fs.stat(stat.parent)
        while parent is not None and parent.session == stat.session:
            if parent.pid in began_by or parent.pid == self._ourselves:
                return False
            parent = self.fs.stat(parent.parent)
        return True


def descendants(stats: Iterable[Stat], parents: set[int]) -> list[Stat]:
    """Return those below these processes, children and their children."""
    children: dict[int, list[Stat]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat)
    found: list[Stat] = []
    waiting = list(parents)
    while waiting:
        for stat in children.pop(waiting.pop(), []):
            found.append(stat)
            waiting.append(stat.pid)
    return found


def is_alive(key: ProcessKey, stat: Stat) -> bool:
    """Tell whether the stat line is still of this process, and not of a zombie."""
    return stat.start_ticks == key.start_ticks and not stat.has_ended
