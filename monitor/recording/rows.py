"""A tick's readings by the subjects that the store knows them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whyidle.monitor.core.reading import Reading
from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.process import Identity, ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.recording.pipeline import Guard
from whyidle.monitor.recording.subjects import Subjects
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading


class Rows:
    """Turns what was read into rows; who has no subject at the moment has none."""

    def __init__(self, subjects: Subjects, fs: ProcFs, guard: Guard) -> None:
        self._subjects = subjects
        self._fs = fs
        self._guard = guard

    def gpus(self, facts: Sequence[GpuFacts], gpus: Mapping[str, GpuReading]) -> dict[int, Reading]:
        """Return a row for each GPU."""
        rows = ((self._subjects.gpu(f), gpus.get(f.index)) for f in facts)
        return {i: r.reading for i, r in rows if i is not None and r is not None}

    def gpu_processes(
        self, facts: Sequence[GpuFacts], gpus: Mapping[str, GpuReading]
    ) -> dict[int, Reading]:
        """Return a row for each process on each GPU."""
        rows: dict[int, Reading] = {}
        for gpu in facts:
            listed = gpus[gpu.index].processes if gpu.index in gpus else {}
            for pid, reading in listed.items():
                key = self._key(pid)
                subject = self._subjects.gpu_process(gpu, key) if key else None
                if subject is not None:
                    rows[subject] = reading
        return rows

    def processes(
        self,
        outside: Mapping[ProcessKey, Reading],
        inside: Mapping[ProcessKey, Reading],
        known: Mapping[ProcessKey, Identity],
        settled: Callable[[ProcessKey], bool],
    ) -> dict[int, Reading]:
        """Return a row for each process that is worth one, seen from both sides."""

        def row(key: ProcessKey) -> tuple[int | None, Reading]:
            if not settled(key):
                return None, Reading()
            sides = [side[key] for side in (outside, inside) if key in side]
            return self._subjects.process(key, known.get(key)), _joined(sides)

        rows = self._guard.each("a process", {**outside, **inside}, row).values()
        return {subject: reading for subject, reading in rows if subject is not None}

    def _key(self, pid: int) -> ProcessKey | None:
        """Return the process behind a pid of the driver's, unless it may mean another one here."""
        stat = self._fs.stat(pid)
        if stat is None or not pids_match(self._fs, pid):
            return None
        return ProcessKey(pid, stat.start_ticks)


def _joined(sides: list[Reading]) -> Reading:
    if len(sides) == 1:
        return sides[0]
    whole = Reading()
    for side in sides:
        whole.values |= side.values
        whole.unknown |= side.unknown
    return whole
