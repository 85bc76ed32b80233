"""JSON for other programs: one object per tick, then the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

import msgspec

from whyidle.monitor.attach.answers import OUTSIDE, Refusal
from whyidle.monitor.core.contracts.diagnosis import PlaceJson, brief
from whyidle.monitor.core.contracts.summary import (
    AgentJson,
    CompiledJson,
    EventJson,
    ReadBackJson,
    SummaryJson,
)
from whyidle.monitor.core.contracts.trace import JsonObject, Unknown
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.metrics import PROCESS_STEPS, Metric, Scope, metrics_of
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.recording.snapshot import Member, Snapshot
from whyidle.monitor.recording.stats.agent_stats import MEASURED
from whyidle.monitor.recording.tracked_process import NOT_YET
from whyidle.monitor.runs.energy import energy_of
from whyidle.monitor.runs.stacks import place_json
from whyidle.monitor.runs.summary import RunSummary, Watched
from whyidle.monitor.runs.training import Trained
from whyidle.monitor.store import Key

SCHEMA = 1
NOT_DUE = "not due at this tick"
NO_STEPS = "no agent in the job: its steps are not visible from outside"
NOT_DIAGNOSED = "it was not diagnosed"
METHOD = "nvml+procfs"
METHOD_NO_GPU = "procfs"
NO_RANK = "not started by torchrun, SLURM or MPI"
NO_SAMPLES = "its main thread has not been sampled yet"
NO_SAMPLES_OUTSIDE = "no agent in the process, and no sample from outside so far"
NO_AGENTS = "no process of the job has JAX or PyTorch loaded"
NO_FRAMEWORK_YET = "no framework has reported to the agent"
NO_FRAMEWORK_OUTSIDE = "no agent in the process"
NONE_COMPILED = "no compilation was reported for this process"
NO_READS = "no read of a value from the device was seen in this process"
NO_TRACE = "no trace was taken"
NEVER_SAMPLED = "no main thread was sampled"


def line(value: Mapping[str, object] | msgspec.Struct) -> str:
    """Return one line of JSON; text that is not UTF-8 was escaped when it was read."""
    whole = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    return msgspec.json.encode({"schema": SCHEMA, **whole}).decode()


def reading(scope: Scope, values: Reading) -> JsonObject:
    """Return every metric of the scope; an unknown one is null, with its reason beside it."""
    return _measured(metrics_of(scope), values)


def _measured(
    metrics: Iterable[Metric], values: Reading, also_unknown: Unknown | None = None
) -> JsonObject:
    columns: JsonObject = {}
    unknown: Unknown = {}
    for metric in metrics:
        columns[metric.column] = values.get(metric)
        if columns[metric.column] is None:
            unknown[metric.column] = values.unknown.get(metric, NOT_DUE)
    return {**columns, "unknown": unknown | (also_unknown or {})}


def tick(snapshot: Snapshot) -> JsonObject:
    """Return one tick."""
    return {
        "run": snapshot.run,
        "ts_ms": snapshot.ts_ms,
        "elapsed_s": round(snapshot.elapsed, 3),
        "gpus": [_gpu(snapshot, f.index) for f in snapshot.facts],
        "gpu_problem": snapshot.gpu_problem,
        "stopped": snapshot.stopped,
        "main_stopped": snapshot.main_stopped,
        "job": reading(Scope.JOB, snapshot.job),
        "host": reading(Scope.HOST, snapshot.host),
        "monitor": reading(Scope.MONITOR, snapshot.monitor),
        "events": [
            {"kind": e.kind, "gpu": e.index, "text": e.text, "severity": e.severity}
            for e in snapshot.events
        ]
        + [
            {
                "kind": e.kind,
                "gpu": None,
                "pid": e.key.pid,
                "text": e.text,
                "severity": e.severity,
                "data": e.data,
            }
            for e in snapshot.happened
        ],
        "agents": [_agent(member) for member in snapshot.members],
        "verdict": snapshot.verdict,
        "findings": [brief(found) for found in snapshot.findings],
        "unknown": _no_agents(len(snapshot.members), _sentence(snapshot.not_entered)),
        "trouble": snapshot.trouble,
        # In the tick that brought it.
        **_new_trace(snapshot),
    }


def _new_trace(snapshot: Snapshot) -> JsonObject:
    request = snapshot.traces if snapshot.has_new_trace else None
    return {"trace": request.as_json()} if request is not None else {}


def _not_diagnosed(summary: RunSummary) -> str:
    return summary.not_diagnosed or NOT_DIAGNOSED


def _sentence(refusal: Refusal | None) -> str | None:
    return f"{refusal.what} {refusal.next_step}".rstrip() if refusal else None


def _no_agents(count: int, why: str | None) -> dict[str, str]:
    """Return why the list of agents is empty, if it is."""
    return {} if count else {"agents": why or NO_AGENTS}


def _agent(member: Member) -> JsonObject:
    """Return how a process is watched, and what the agent sees inside."""
    refusal = member.refusal
    return {
        "pid": member.key.pid,
        "rank": member.rank,
        "method": member.method,
        "refused": refusal.what if refusal else None,
        "next_step": (refusal.next_step or None) if refusal else None,
        "stops_ms": [round(ms, 3) for ms in member.stops_ms],
        **_measured(MEASURED, member.reading, _reasons(member)),
        "where": _places(member.where) if member.looks else None,
        "looks": member.looks or None,
        "framework": member.framework or None,
        "steps_source": member.steps_source,
        # Only of a process that has a part in a job of several.
        **({} if member.role is None else {"role": member.role, "title": member.title}),
    }


def _places(lines: Iterable[SourceLine]) -> list[PlaceJson]:
    return [place_json(line, round(line.share, 4)) for line in lines]


def _reasons(member: Member) -> dict[str, str]:
    """Return the reasons for unknown values that are no metrics."""
    reasons = {} if member.rank is not None else {"rank": NO_RANK}
    if member.method is None:
        reasons["method"] = NOT_YET
    if not member.looks:
        why = {None: NOT_YET, OUTSIDE: NO_SAMPLES_OUTSIDE}.get(member.method, NO_SAMPLES)
        reasons |= {"where": why, "looks": why}
    outside = {None: NOT_YET, OUTSIDE: NO_FRAMEWORK_OUTSIDE}.get(member.method)
    if not member.framework:
        reasons["framework"] = outside or NO_FRAMEWORK_YET
    if member.steps_source is None:
        reasons["steps_source"] = outside or _why_no_steps(member)
    return reasons


def _why_no_steps(member: Member) -> str:
    return member.reading.unknown.get(PROCESS_STEPS, NOT_DUE)


def _gpu(snapshot: Snapshot, index: str) -> JsonObject:
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


def summary_object(summary: RunSummary) -> SummaryJson:
    """Return the last object of a recording."""
    run, principal = summary.run, summary.principal
    inside = principal is not None and principal.inside
    training = summary.trained
    return SummaryJson(
        run=run.id,
        attached="agent" if inside else "outside",
        method=principal.method if principal and inside else _outside_method(summary),
        steps=training.steps,
        verdict=None if summary.diagnosis is None else summary.diagnosis.verdict,
        findings=[] if summary.diagnosis is None else summary.diagnosis.findings,
        not_checked=None if summary.diagnosis is None else summary.diagnosis.not_checked,
        unknown={
            **({} if training.steps is not None else {"steps": _no_steps(summary)}),
            **({} if summary.diagnosis else {"findings": _not_diagnosed(summary)}),
            **({} if summary.diagnosis else {"not_checked": _not_diagnosed(summary)}),
            **({} if summary.diagnosis else {"overhead": _not_diagnosed(summary)}),
            **({} if summary.where else {"where": NEVER_SAMPLED}),
            **({} if summary.where_of else {"where_pid": NEVER_SAMPLED}),
            **({} if summary.compiled else {"compiled": NONE_COMPILED}),
            **({} if summary.reads else {"reads": NO_READS}),
            **({} if summary.trace else {"trace": NO_TRACE}),
            **_no_agents(len(summary.watched), summary.not_entered),
        },
        label=run.label,
        pid=run.target_pid,
        hostname=run.host,
        script=run.script,
        framework=run.framework,
        python=run.python,
        user=run.user,
        container=run.container,
        command=run.command,
        started_ms=run.started_ms,
        ended_ms=run.ended_ms,
        end=run.end_reason,
        exit_code=run.exit_code,
        seconds=round(summary.seconds, 3),
        ticks=summary.ticks,
        training=_trained(training, summary.why_not_trained),
        agents=[_watched(w) for w in summary.watched],
        where=_places(summary.where) or None,
        where_pid=summary.where_of.pid if summary.where_of else None,
        compiled=[CompiledJson(**asdict(each)) for each in summary.compiled] or None,
        reads=[ReadBackJson(**asdict(each)) for each in summary.reads] or None,
        gpus=[
            {
                "index": g.idx,
                "name": g.name,
                "uuid": g.uuid,
                "job": g.idx in summary.owned,
                **_spread(summary, Scope.GPU, g.id),
            }
            for g in summary.gpus
        ],
        gpu_problem=summary.gpu_problem,
        energy=energy_of(summary),
        job=_spread(summary, Scope.JOB, run.id),
        host=_spread(summary, Scope.HOST, run.id),
        monitor=_spread(summary, Scope.MONITOR, run.id),
        overhead=None if summary.diagnosis is None else summary.diagnosis.overhead,
        events=[
            EventJson(ts_ms=e.ts_ms, kind=e.kind, severity=e.severity, text=e.text)
            for e in summary.events
        ],
        more_events=summary.more_events,
        trace=summary.trace,
        trouble=summary.trouble,
        defects=dict(summary.defects),
    )


def _watched(watched: Watched) -> AgentJson:
    return AgentJson(
        pid=watched.pid,
        rank=watched.rank,
        method=watched.method,
        refused=watched.refused,
        next_step=watched.next_step,
        stops_ms=list(watched.stops_ms),
        framework=watched.frameworks or None,
        unknown={
            **({} if watched.rank is not None else {"rank": NO_RANK}),
            **({} if watched.frameworks else {"framework": _no_framework(watched)}),
        },
        role=watched.role or msgspec.UNSET,
        title=watched.title or msgspec.UNSET,
    )


def _no_framework(watched: Watched) -> str:
    return NO_FRAMEWORK_YET if watched.inside else NO_FRAMEWORK_OUTSIDE


def _no_steps(summary: RunSummary) -> str:
    inside = any(watched.inside for watched in summary.watched)
    return summary.why_not_trained("steps") if inside else NO_STEPS


def _trained(training: Trained, why_not: Callable[[str], str]) -> JsonObject:
    """Return what was trained and where its time went; an unknown value is null, with a reason."""
    values = asdict(training)
    unknown = {name: why_not(name) for name, value in values.items() if value is None}
    return {**values, "unknown": unknown}


def _outside_method(summary: RunSummary) -> str:
    return METHOD if summary.gpus else METHOD_NO_GPU


def _spread(summary: RunSummary, scope: Scope, subject: int) -> JsonObject:
    """Return mean, min, max and last of each metric, or why it was never known."""
    columns: JsonObject = {}
    unknown: dict[str, str] = {}
    for metric in metrics_of(scope):
        found = summary.metrics.get(Key(scope, subject, metric))
        columns[metric.column] = found and {
            "mean": found.mean,
            "min": found.least,
            "max": found.most,
            "last": found.last,
        }
        if found is None:
            unknown[metric.column] = summary.why_not(metric, subject) or "never measured"
    return {**columns, "unknown": unknown}


def listing(name: str, rows: Iterable[object]) -> str:
    """Return a list as one object, under its plural name."""
    return line({name: list(rows)})
