"""What one tick showed, for the screens; and what a whole recording came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from whyidle.monitor.processes.process import Identity
from whyidle.monitor.reading import Reading
from whyidle.monitor.recording.ownership import Owned
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.news import GpuEvent


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the job."""

    run: int
    ts_ms: int
    elapsed: float
    ticks: int
    identity: Identity | None
    facts: tuple[GpuFacts, ...]
    gpus: dict[str, GpuReading]
    owned: Owned
    gpu_problem: str | None
    job_pids: frozenset[int]
    job: Reading
    host: Reading
    monitor: Reading
    period: float
    stopped: bool = False
    events: tuple[GpuEvent, ...] = ()
    trouble: str | None = None
    notes: tuple[str, ...] = field(default=())

    def shown(self, *, everything: bool) -> list[GpuFacts]:
        """Return the GPUs to show: the job's own, or all."""
        return [f for f in self.facts if everything or f.index in self.owned.indices]
