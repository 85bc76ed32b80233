"""What the agents of a job's processes say of the whole job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import FIRST, Reading

NONE_INSIDE = "no agent in the job"
SOME_SILENT = "not every process that trains tells its batch size"

_TOGETHER: tuple[tuple[Metric, Metric, Callable[[Iterable[float]], float]], ...] = (
    (m.JOB_GC_PAUSE, m.PROCESS_GC_PAUSE, max),
    (m.JOB_AGENT_CPU, m.PROCESS_AGENT_CPU, sum),
    (m.JOB_STEPS, m.PROCESS_STEPS, min),
    (m.JOB_SAMPLES, m.PROCESS_SAMPLES, sum),
    (m.JOB_LOADER_WAIT, m.PROCESS_LOADER_WAIT, max),
    (m.JOB_SYNC_WAIT, m.PROCESS_SYNC_WAIT, max),
    (m.JOB_COMPILE, m.PROCESS_COMPILE, max),
    (m.JOB_COMPILES, m.PROCESS_COMPILES, sum),
)
_OF_THE_SLOWEST = ((m.JOB_STEP_P50, m.PROCESS_STEP_P50), (m.JOB_STEP_P95, m.PROCESS_STEP_P95))


def put_job(job: Reading, inside: Sequence[Reading]) -> None:
    """Put what is true of the whole job; those that stand for it first."""
    job.values[m.JOB_AGENTS] = len(inside)
    for of_job, of_process, together in _TOGETHER:
        values = [v for r in inside if (v := r.get(of_process)) is not None]
        job.put(of_job, together(values) if values else None, _why(inside, of_process))
    # Who takes part in a step and does not count its samples would be missing from the sum.
    some_silent = any(r.get(m.PROCESS_STEPS) and m.PROCESS_SAMPLES not in r.values for r in inside)
    if some_silent and job.values.pop(m.JOB_SAMPLES, None) is not None:
        job.unknown[m.JOB_SAMPLES] = SOME_SILENT
    paced = [r for r in inside if m.PROCESS_STEP_P50 in r.values]
    slowest = max(paced, key=lambda r: r.values[m.PROCESS_STEP_P50], default=None)
    for of_job, of_process in _OF_THE_SLOWEST:
        found = None if slowest is None else slowest.get(of_process)
        job.put(of_job, found, _why(inside, of_process))


def _why(inside: Sequence[Reading], metric: Metric) -> str:
    if not inside:
        return NONE_INSIDE
    return next((r.unknown[metric] for r in inside if metric in r.unknown), FIRST)
