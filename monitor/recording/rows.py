"""A tick's readings by the subjects that the store knows them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache

from whyidle.monitor.core.errors import StorageProblem
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.processes.namespace import pids_match
from whyidle.monitor.processes.process import Identity, ProcessKey, describe
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.tree import is_alive
from whyidle.monitor.recording.pipeline import Guard, Moment
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.store import Writer

TIDY_AT = 500


class Subjects:
    """Knows the subject of every sample. ``None``: the store cannot take it in at the moment."""

    def __init__(self, writer: Writer, run: int, fs: ProcFs) -> None:
        self._writer = writer
        self._run = run
        self._fs = fs
        self._gpus: dict[str, int] = {}
        self._processes: dict[ProcessKey, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._tidy_at = TIDY_AT

    def gpu(self, facts: GpuFacts) -> int | None:
        """Return the id of a GPU."""
        if facts.index not in self._gpus:
            info = {k: v for k, v in asdict(facts).items() if k not in {"index", "name", "uuid"}}
            try:
                self._gpus[facts.index] = self._writer.add_gpu(
                    self._run, idx=facts.index, uuid=facts.uuid, name=facts.name, info=info
                )
            except StorageProblem:
                return None
        return self._gpus[facts.index]

    def process(self, key: ProcessKey, identity: Identity | None = None) -> int | None:
        """Return the id of a process."""
        if key not in self._processes:
            if len(self._processes) >= self._tidy_at:
                self._drop_ended()
            who = identity or describe(key.pid, self._fs)
            try:
                self._processes[key] = self._writer.add_process(
                    self._run,
                    pid=key.pid,
                    start_ticks=key.start_ticks,
                    parent_pid=who.parent if who else None,
                    name=who.script if who else None,
                    command=who.command if who else None,
                    rank=who.rank.rank if who and who.rank else None,
                )
            except StorageProblem:
                return None
        return self._processes[key]

    def _drop_ended(self) -> None:
        """Forget who has ended: a job may start new processes for weeks."""
        stats = {key: self._fs.stat(key.pid) for key in self._processes}
        live = {k for k, stat in stats.items() if stat is not None and is_alive(k, stat)}
        self._processes = {k: i for k, i in self._processes.items() if k in live}
        ids = set(self._processes.values())
        self._pairs = {pair: i for pair, i in self._pairs.items() if pair[1] in ids}
        self._tidy_at = max(TIDY_AT, 2 * len(self._processes))

    def gpu_process(self, facts: GpuFacts, key: ProcessKey) -> int | None:
        """Return the id of a process on a GPU."""
        gpu, process = self.gpu(facts), self.process(key)
        if gpu is None or process is None:
            return None
        pair = (gpu, process)
        if pair not in self._pairs:
            try:
                self._pairs[pair] = self._writer.add_gpu_process(gpu, process)
            except StorageProblem:
                return None
        return self._pairs[pair]


class Rows:
    """Turns readings into rows; what has no subject at the moment has no row."""

    def __init__(self, subjects: Subjects, fs: ProcFs, guard: Guard) -> None:
        self._subjects = subjects
        self._fs = fs
        self._guard = guard

    def tick(
        self,
        run: int,
        moment: Moment,
        facts: Sequence[GpuFacts],
        processes: Callable[[], dict[int, Reading]],
    ) -> Tick:
        """Return a tick as it is stored; a row that cannot be built costs its scope alone."""
        scopes: dict[Scope, Callable[[], dict[int, Reading]]] = {
            Scope.GPU: lambda: self.gpus(facts, moment.gpus),
            Scope.GPU_PROCESS: lambda: self.gpu_processes(facts, moment.gpus),
            Scope.PROCESS: processes,
            Scope.JOB: lambda: {run: moment.job},
            Scope.HOST: lambda: {run: moment.host},
            Scope.MONITOR: lambda: {run: moment.own},
        }
        return Tick(moment.ts_ms, self._guard.each("rows", scopes, lambda scope: scopes[scope]()))

    def gpus(self, facts: Sequence[GpuFacts], gpus: Mapping[str, GpuReading]) -> dict[int, Reading]:
        """Return a row for each GPU."""
        rows = ((self._subjects.gpu(f), gpus.get(f.index)) for f in facts)
        return {i: r.reading for i, r in rows if i is not None and r is not None}

    def gpu_processes(
        self, facts: Sequence[GpuFacts], gpus: Mapping[str, GpuReading]
    ) -> dict[int, Reading]:
        """Return a row for each process on each GPU."""
        rows: dict[int, Reading] = {}
        # A job has one process on many GPUs.
        key_of = cache(self._key)
        for gpu in facts:
            listed = gpus[gpu.index].processes if gpu.index in gpus else {}
            for pid, reading in listed.items():
                key = key_of(pid)
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
