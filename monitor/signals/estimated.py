"""Where the time of a recording went by its counters alone, on average."""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.runs.estimate import BACKENDS, Running, running
from whyidle.monitor.signals.recorded import Recorded


def estimated(job: Recorded) -> Running:
    """Return the estimate over the whole window."""
    means = {metric: mean for metric, mean in job.means.items() if metric.scope is Scope.JOB}
    reading = Reading(means, {k: why for k, why in job.unknown.items() if k.scope is Scope.JOB})
    gpus = [Reading(dict(gpu.means)) for gpu in job.gpus if gpu.owned]
    backend = job.fact("backend")
    device = BACKENDS.get(backend) if isinstance(backend, str) else None
    if device is None and any(m.GPU_UTILISATION in gpu.values for gpu in gpus):
        device = "gpu"
    return running(reading, gpus, device)
