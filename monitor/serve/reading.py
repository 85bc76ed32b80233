"""The tools that only read: nothing that they do reaches a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from whyidle.monitor import compare, rules
from whyidle.monitor.app import windows
from whyidle.monitor.app.jobs import Job, find_jobs
from whyidle.monitor.compare.answer import as_json as comparison_json
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, PlaceJson
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import TargetGone, UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.diagnosis import diagnose
from whyidle.monitor.render.places import Repository
from whyidle.monitor.render.report import excerpt
from whyidle.monitor.serve import brief
from whyidle.monitor.signals import opening
from whyidle.monitor.store import Reader, Run
from whyidle.monitor.store.question import MOST_ROWS, ask

MOST_RUNS: Final = 10
MOST_JOBS: Final = 20
MOST_AROUND: Final = 40
MOST_LETTERS: Final = 16_000

Answer = dict[str, Any]
Target = Annotated[
    str,
    Field(description="a recording: its number, its label, `last`, or the pid that it watches"),
]


def list_jobs() -> Answer:
    """List the jobs that run on this machine now, and the last recordings.

    Of each job: its pid, script, framework, GPUs (memory in bytes, share of the SMs from 0 to 1),
    how attaching would go about it, and the run that records it. Begin here.
    """
    found = find_jobs()
    runs = _runs()
    recorded = {run.target_pid: run.id for run in runs if run.is_recording}
    return {
        "jobs": [_job(job, recorded) for job in found.jobs[:MOST_JOBS]],
        "more_jobs": max(0, len(found.jobs) - MOST_JOBS),
        "recordings": [brief.run(run) for run in runs[-MOST_RUNS:][::-1]],
        "gpus_unknown": None if found.gpu_problem is None else brief.text(found.gpu_problem),
    }


def _runs() -> list[Run]:
    if not database().exists():
        return []
    with Reader.open(database()) as reader:
        return reader.runs()


def _job(job: Job, recorded: dict[int | None, int]) -> JsonObject:
    who = job.identity
    refused = job.refused or job.not_inside
    return {
        "pid": who.key.pid,
        "script": brief.text(who.script),
        "framework": who.framework,
        "seconds": round(job.seconds, 1),
        "cpu_cores": round(job.cpu_share, 3),
        "rss_bytes": job.rss,
        "gpus": [
            {
                "index": index,
                "memory_bytes": reading.get(m.PROCESS_GPU_MEMORY),
                "sm_share": reading.get(m.PROCESS_SM_SHARE),
            }
            for index, reading in job.gpus.items()
        ],
        "attach_by": job.attach,
        "not_inside": None if refused is None else brief.text(refused),
        "recorded_by_run": recorded.get(who.key.pid),
    }


def get_findings(target: Target = "last") -> Answer:
    """Say what leaves the GPU idle in a recording: the most important finding first.

    Each has its rule, severity, confidence (measured, inferred, hinted), the share of the time that
    it costs (low, high), how much faster a step gets, the line of the user's code, and the fix in
    a sentence; `get_evidence` has the rest. With `abstained` too little is known for a verdict:
    nothing found then means nothing.
    """
    run, answer = diagnosed(target)
    return {**brief.run(run), **brief.findings(answer, Repository.here())}


def get_account(target: Target = "last") -> Answer:
    """Say where the time of a recording goes: compute, communication, copies, idle by cause.

    The parts have shares of the time that add up to 1, and milliseconds. `main_thread` says what
    the job's own code did meanwhile, by samples. `source` says what it rests on.
    """
    run, answer = diagnosed(target)
    return {**brief.run(run), **brief.account(answer, Repository.here())}


def get_evidence(
    rule: Annotated[str, Field(description="the rule of a finding, such as input_starved")],
    target: Target = "last",
) -> Answer:
    """Return what a finding rests on, with unit, source and age, and code that fixes it.

    Of a rule that found nothing `abstained` says whether it is well, or could not be judged.
    """
    if rule not in rules.load():
        raise UsageProblem(
            f"There is no rule '{brief.text(rule)}'.", "They are in whyidle://rules."
        )
    run, answer = diagnosed(target)
    head = brief.run(run)
    for finding in answer.findings:
        if finding.rule == rule:
            return {**head, **brief.evidence(finding, Repository.here())}
    needs = next((n.needs for n in answer.not_checked if n.rule == rule), None)
    seen = next((f.rule for f in answer.findings if rule in f.also_seen), None)
    why = "it was judged, and this run does not have it"
    if seen is not None:
        why = f"another finding explains it: {seen}"
    elif needs is not None:
        why = f"it could not be judged: needs {brief.text(needs)}"
    return {**head, "rule": rule, "abstained": why, "evidence": []}


def get_source(
    file: Annotated[str, Field(description="a file as an answer names it, or its last part")],
    line: Annotated[int, Field(ge=1, description="the line to show it around")],
    target: Target = "last",
    around: Annotated[int, Field(ge=0, le=MOST_AROUND, description="lines before and after")] = 12,
) -> Answer:
    """Return the user's code around a line that an answer names; secrets in it are masked.

    Only files that findings or samples of this run name can be read, as the user of the job may.
    """
    run, answer = diagnosed(target)
    repository = Repository.here()
    named = {place.file: repository.shown(place.file) for place in brief.places(answer)}
    meant = [
        path
        for path, shown in named.items()
        if file in {path, shown} or ("/" not in file and Path(path).name == file)
    ]
    head: Answer = {"run": run.id, "file": brief.text(file), "line": line, "code": None}
    if len(meant) != 1:
        few = sorted({brief.text(shown) for shown in named.values()})[: brief.MOST_RULES]
        why = (
            "several files that this run names are called so"
            if meant
            else "this run names no such file"
        )
        return {**head, "abstained": f"{why}; it names: {', '.join(few) or 'none'}"}
    place = PlaceJson(file=meant[0], line=line, function="")
    found = excerpt(place, run.user, around)
    if found is None:
        return {**head, "abstained": "it cannot be read here, is no Python, or has no such line"}
    lines = (f"{n:>5}  {brief.code(each)}" for n, each in enumerate(found.lines, found.first))
    shown = brief.text(named[meant[0]])
    return {
        **head,
        "file": shown,
        "first": found.first,
        "code": "\n".join(lines),
        "abstained": None,
    }


def compare_runs(
    before: Annotated[str, Field(description="the recording before a change: number or label")],
    after: Annotated[str, Field(description="the recording after it")],
) -> Answer:
    """Say whether a change made steps faster beyond noise, and which findings it took away.

    `speedup` above 1: the second is faster; its ends are what noise allows. With `abstained` the
    recordings do not say; record both for longer.
    """
    one, two = meant(before), meant(after)
    if one.id == two.id:
        raise UsageProblem(f"Both are run {one.id}.", "Name two recordings, see list_jobs.")
    sides = [compare.of_run(database(), str(run.id)) for run in (one, two)]
    found = comparison_json(compare.compare(*sides))
    return {"a": brief.run(one), "b": brief.run(two), **brief.comparison(found)}


def query(
    sql: Annotated[str, Field(description="one SELECT of SQLite over the views")],
) -> Answer:
    """Ask the store in SQL, read-only: at most 200 rows and 2 seconds.

    Views: runs, findings, events, traces, trace_slices, trace_kernels, and numbers over time:
    job_seconds, job_minutes, gpu_seconds, gpu_minutes, process_seconds, process_minutes,
    host_seconds, host_minutes. The resource whyidle://views lists their columns; units end their
    names, times are seconds since the run began (at_s).
    """
    found = ask(database(), sql)
    rows, left = [], MOST_LETTERS
    for row in found.rows:
        cells = [brief.text(cell) if isinstance(cell, str) else cell for cell in row]
        left -= sum(len(str(cell)) + 3 for cell in cells)
        if left < 0:
            break
        rows.append(cells)
    return {
        "columns": [brief.text(name) for name in found.columns],
        "rows": rows,
        "more": found.more or len(rows) < len(found.rows),
        "most_rows": MOST_ROWS,
        "took_ms": round(1000 * found.seconds, 1),
    }


# In the order in which an agent uses them.
TOOLS: Final[tuple[Callable[..., Answer], ...]] = (
    list_jobs, get_findings, get_account, get_evidence, get_source, compare_runs, query,
)  # fmt: skip


# What is asked about -----------------------------------------------------------------------------
def diagnosed(target: str) -> tuple[Run, DiagnosisJson]:
    """Return the recording that is meant, and what the rules say of it."""
    run = meant(target)
    # Of one that goes on, each trace and each minute may say more.
    with Reader.open(database()) as reader:
        newest = reader.newest_trace(run.id)
        last = max((v.ts_ms for v in reader.latest(run.id, {m.Scope.MONITOR}).values()), default=0)
    return run, _diagnosed(str(database()), run.id, run.is_recording, newest, last)


@lru_cache(maxsize=16)
def _diagnosed(store: str, run: int, *_: object) -> DiagnosisJson:
    return diagnose.as_json(diagnose.diagnose(opening.of_run(Path(store), str(run))))


def meant(target: str) -> Run:
    """Return the recording that is meant; raises a sentence where there is none."""
    try:
        ref = windows.recorded(target) if database().exists() else None
    except UsageProblem:
        ref = None
    if ref is None:
        what = f"There is no recording '{brief.text(target)}'."
        raise TargetGone(what, "See list_jobs; a job that runs is watched by attach.")
    with Reader.open(database()) as reader:
        return reader.find(ref)
