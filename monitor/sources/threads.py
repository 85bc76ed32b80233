"""The threads of a job: how many of them want a core, and which cores they may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs

# A look takes 8 us a thread (500 that sleep; a test has a bar for it): of a job
# with more threads the rest is left out, and nothing is said of how many want a core.
MOST_THREADS: Final = 4096
# The kernel takes longer to write where a thread may run.
MOST_MASKS: Final = 256
# A thread that wants less of a core is asleep: where it may run does not matter.
RUNS: Final = 0.01
# A process that wants so much of a core is one of those that compute.
COMPUTES: Final = 0.5
ALLOWED: Final = "Cpus_allowed_list"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the threads have wanted since the last look."""

    # How many could run and had no core, on average.
    waiting: float
    # Of how many processes the threads want half a core or more.
    processes: int
    # The cores on which those that run may do so.
    cores: frozenset[int]


class Threads:
    """Follows what each thread has run, and has waited for a core."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._last: dict[tuple[ProcessKey, str], tuple[int, int]] = {}

    def look(
        self, fs: ProcFs, now: float, live: Collection[ProcessKey], online: frozenset[int]
    ) -> Wanted | None:
        """Return what was wanted since the last look; ``None``: this is the first one."""
        before, self._last = self._last, dict(_times(fs, live))
        since, self._at = self._at, now
        if since is None or now <= since:
            return None
        # The counters are in nanoseconds.
        whole = (now - since) * 1e9
        waits, wants = 0.0, dict.fromkeys(live, 0.0)
        running: dict[tuple[ProcessKey, str], float] = {}
        for thread, (ran, waited) in self._last.items():
            if thread not in before:
                continue
            wait = max(0, waited - before[thread][1]) / whole
            want = wait + max(0, ran - before[thread][0]) / whole
            waits += wait
            wants[thread[0]] += want
            if want >= RUNS:
                running[thread] = want
        busiest = sorted(running, key=lambda thread: -running[thread])[:MOST_MASKS]
        computing = sum(want >= COMPUTES for want in wants.values())
        return Wanted(waits, computing, _masks(fs, busiest, online))

    @property
    def too_many(self) -> bool:
        """Whether the job has more threads than are followed."""
        return len(self._last) >= MOST_THREADS


def _times(
    fs: ProcFs, live: Iterable[ProcessKey]
) -> Iterator[tuple[tuple[ProcessKey, str], tuple[int, int]]]:
    left = MOST_THREADS
    for key in live:
        for thread in fs.threads(key.pid)[:left]:
            times = fs.schedule(key.pid, thread)
            if times is not None:
                left -= 1
                yield (key, thread), times


def _masks(
    fs: ProcFs, threads: Iterable[tuple[ProcessKey, str]], online: frozenset[int]
) -> frozenset[int]:
    """Return the cores of all masks together, as far as there are such cores.

    Most often the first thread may run anywhere, and no other is asked.
    """
    found: frozenset[int] = frozenset()
    for key, thread in threads:
        listed = fs.fields(f"{key.pid}/task/{thread}/status").get(ALLOWED, "")
        found |= cpus(listed) & online
        if found == online:
            break
    return found


def cpus(listed: str) -> frozenset[int]:
    """Return the numbers in a list of the kernel's, such as 0-3,8."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
