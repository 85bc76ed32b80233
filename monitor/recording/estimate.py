"""Where the job's time goes right now."""

from __future__ import annotations

from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.runs.estimate import BACKENDS, Device, Running, running


def of(snapshot: Snapshot) -> Running:
    """Return where the time goes at this moment."""
    gpus = [snapshot.gpus[i].reading for i in sorted(snapshot.owned.indices & snapshot.gpus.keys())]
    trace = snapshot.traces
    age = None if trace is None else max(0.0, (snapshot.ts_ms - trace.ts_ms) / 1000)
    return running(snapshot.job, gpus, _device(snapshot), trace, age)


def _device(snapshot: Snapshot) -> Device | None:
    """Return what the job computes on, as its frameworks or the driver tell."""
    told = [facts.get("backend") for x in snapshot.members for facts in x.framework.values()]
    kinds = {BACKENDS.get(name) for name in told if isinstance(name, str)}
    if "gpu" in kinds or snapshot.owned.sure:
        return "gpu"
    return "cpu" if kinds == {"cpu"} else None
