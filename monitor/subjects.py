"""The ids that the store gives to GPUs and processes, asked for once each."""

from __future__ import annotations

from dataclasses import asdict

from whyidle.monitor.errors import StorageProblem
from whyidle.monitor.process import Identity, ProcessKey, describe
from whyidle.monitor.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts
from whyidle.monitor.store import Writer


class Subjects:
    """Knows the subject of every sample. ``None``: the store cannot take it in at the moment."""

    def __init__(self, writer: Writer, run: int, fs: ProcFs) -> None:
        self._writer = writer
        self._run = run
        self._fs = fs
        self._gpus: dict[str, int] = {}
        self._processes: dict[ProcessKey, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}

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
            who = identity or describe(key.pid, self._fs)
            try:
                self._processes[key] = self._writer.add_process(
                    self._run,
                    pid=key.pid,
                    start_ticks=key.start_ticks,
                    parent_pid=who.parent if who else None,
                    name=who.script if who else None,
                    command=who.command if who else None,
                )
            except StorageProblem:
                return None
        return self._processes[key]

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
