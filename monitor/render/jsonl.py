"""JSON for other programs: one object a tick, the last one the summary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from whyidle.monitor.metrics import Scope, metrics_of
from whyidle.monitor.reading import Reading
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.store import Key
from whyidle.monitor.summary import RunSummary

SCHEMA = 1
NOT_DUE = "not due at this tick"
NO_STEPS = "no agent in the job: from outside nobody sees its steps"
NO_FINDINGS = "only counters are recorded: nothing was diagnosed"
METHOD = "nvml+procfs"
METHOD_NO_GPU = "procfs"


def line(value: dict[str, Any]) -> str:
    """Return one line of JSON; text that is no UTF-8 was escaped when it was read."""
    return msgspec.json.encode({"schema": SCHEMA, **value}).decode()


def reading(scope: Scope, values: Reading) -> dict[str, Any]:
    """Return every metric of the scope; an unknown one is null with its reason beside it."""
    columns: dict[str, Any] = {m.column: values.get(m) for m in metrics_of(scope)}
    unknown = {
        m.column: values.unknown.get(m, NOT_DUE) for m in metrics_of(scope) if values.get(m) is None
    }
    return {**columns, "unknown": unknown}


def tick(snapshot: Snapshot) -> dict[str, Any]:
    """Return one tick."""
    return {
        "run": snapshot.run,
        "ts_ms": snapshot.ts_ms,
        "elapsed_s": round(snapshot.elapsed, 3),
        "gpus": [_gpu(snapshot, f.index) for f in snapshot.facts],
        "gpu_problem": snapshot.gpu_problem,
        "stopped": snapshot.stopped,
        "job": reading(Scope.JOB, snapshot.job),
        "host": reading(Scope.HOST, snapshot.host),
        "monitor": reading(Scope.MONITOR, snapshot.monitor),
        "events": [
            {"kind": e.kind, "gpu": e.index, "text": e.text, "severity": e.severity}
            for e in snapshot.events
        ],
        "trouble": snapshot.trouble,
    }


def _gpu(snapshot: Snapshot, index: str) -> dict[str, Any]:
    facts = next(f for f in snapshot.facts if f.index == index)
    measured = snapshot.gpus[index]
    return {
        "index": index,
        "name": facts.name,
        "uuid": facts.uuid,
        "job": index in snapshot.owned.indices,
        **reading(Scope.GPU, measured.reading),
        "processes": [
            {"pid": pid, "job": pid in snapshot.job_pids, **reading(Scope.GPU_PROCESS, values)}
            for pid, values in measured.processes.items()
        ],
        "processes_unknown": measured.processes_unknown,
    }


def summary(told: RunSummary) -> dict[str, Any]:
    """Return the last object of a recording."""
    run = told.run
    return {
        "summary": True,
        "run": run.id,
        "attached": "outside",
        "method": METHOD if told.gpus else METHOD_NO_GPU,
        "steps": None,
        "findings": [],
        "unknown": {"steps": NO_STEPS, "findings": NO_FINDINGS},
        **head(told),
        "gpus": [
            {
                "index": g.idx,
                "name": g.name,
                "uuid": g.uuid,
                "job": g.idx in told.owned,
                **_spread(told, Scope.GPU, g.id),
            }
            for g in told.gpus
        ],
        "gpu_problem": told.gpu_problem,
        "job": _spread(told, Scope.JOB, run.id),
        "host": _spread(told, Scope.HOST, run.id),
        "monitor": _spread(told, Scope.MONITOR, run.id),
        "events": [
            {"ts_ms": e.ts_ms, "kind": e.kind, "severity": e.severity, "text": e.text}
            for e in told.events
        ],
        "trouble": told.trouble,
    }


def head(told: RunSummary) -> dict[str, Any]:
    """Return who was watched, and for how long."""
    run = told.run
    names = ("label", "script", "framework", "python", "user", "container", "command")
    return {
        "label": run.label,
        "pid": run.target_pid,
        "hostname": run.host,
        **{name: getattr(run, name) for name in names},
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "end": run.end_reason,
        "exit_code": run.exit_code,
        "seconds": round(told.seconds, 3),
        "ticks": told.ticks,
    }


def _spread(told: RunSummary, scope: Scope, subject: int) -> dict[str, Any]:
    """Return mean, least, most and last of each metric that was ever known, and why not else."""
    columns: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for metric in metrics_of(scope):
        found = told.metrics.get(Key(scope, subject, metric))
        columns[metric.column] = found and {
            "mean": found.mean,
            "min": found.least,
            "max": found.most,
            "last": found.last,
        }
        if found is None:
            unknown[metric.column] = told.why_not(metric, subject) or "never measured"
    return {**columns, "unknown": unknown}


def listing(name: str, rows: Iterable[dict[str, Any]]) -> str:
    """Return a list under its plural name."""
    return line({name: list(rows)})
