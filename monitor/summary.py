"""A recording in one page: read back from the store, so what is said is what was kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whyidle.monitor.metrics import Metric, Scope
from whyidle.monitor.store import Event, Gpu, Key, Reader, Run, Summary, Unknown

# A job may have had thousands of processes; the page tells of the whole.
TOLD = (Scope.GPU, Scope.JOB, Scope.HOST, Scope.MONITOR)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What `attach`, `run`, `stop` and `runs RUN` tell of a recording."""

    run: Run
    seconds: float
    ticks: int
    gpus: list[Gpu]
    owned: frozenset[str]
    metrics: dict[Key, Summary]
    unknown: dict[Key, Unknown]
    events: list[Event]
    trouble: str | None = None

    def of(self, metric: Metric, subject: int) -> Summary | None:
        """Return one metric over the whole run."""
        return self.metrics.get(Key(metric.scope, subject, metric))

    def why_not(self, metric: Metric, subject: int) -> str | None:
        """Return why a metric has no value."""
        found = self.unknown.get(Key(metric.scope, subject, metric))
        return found.reason if found else None

    def job_gpus(self) -> list[Gpu]:
        """Return the GPUs that were the job's; all, where that is not known."""
        mine = [g for g in self.gpus if g.idx in self.owned]
        return mine or self.gpus

    @property
    def gpu_problem(self) -> str | None:
        """Why no GPU was read, if none was."""
        return (self.run.info or {}).get("gpu_problem")


def summarise(path: Path, ref: str, trouble: str | None = None) -> RunSummary:
    """Return the summary of the recording that ``ref`` names."""
    with Reader.open(path) as reader:
        run = reader.find(ref)
        metrics = reader.summary(run.id, TOLD)
        own = [s.n for k, s in metrics.items() if k.scope is Scope.MONITOR]
        end = run.ended_ms or max(
            (v.ts_ms for v in reader.latest(run.id, TOLD).values()), default=0
        )
        return RunSummary(
            run=run,
            seconds=max(0, end - run.started_ms) / 1000,
            ticks=max(own, default=0),
            gpus=reader.gpus(run.id),
            owned=frozenset((run.info or {}).get("gpus", ())),
            metrics=metrics,
            unknown=reader.unknown(run.id, TOLD),
            events=reader.events(run.id),
            trouble=trouble,
        )
