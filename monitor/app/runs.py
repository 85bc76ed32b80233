"""``monitor runs``: what was recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from whyidle.monitor.control import client
from whyidle.monitor.core.contracts.trace import JsonObject
from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.core.paths import database
from whyidle.monitor.render import jsonl, numbers
from whyidle.monitor.render.tables import table
from whyidle.monitor.store import Reader, Run
from whyidle.monitor.store.labels import label_run, new_label

if TYPE_CHECKING:
    from whyidle.monitor.store.stored_traces import KeptTrace

LONGEST_LABEL = 24
DIED = "recorder died"
# What a list says of a finding; `monitor diagnose` has the rest.
_OF_FINDING = ("rule", "severity", "title", "expected")
_NOTHING = "Nothing is recorded yet. Begin with: monitor attach PID"


def run(*, run: str | None, label: str | None, as_json: bool) -> None:
    """List the recordings, show one, or label it."""
    path = database()
    if label is not None:
        _name(run, label, as_json=as_json)
        return
    if run is not None:
        _one(run, as_json=as_json)
        return
    if not path.exists():
        click.echo(jsonl.listing("runs", []) if as_json else _NOTHING)
        return
    with Reader.open(path) as reader:
        rows = [(run, run.is_recording, reader.worst_finding(run.id)) for run in reader.runs()]
    if as_json:
        click.echo(jsonl.listing("runs", [_row(*each) for each in rows]))
    else:
        click.echo(_table(rows) if rows else _NOTHING)


def _one(ref: str, *, as_json: bool) -> None:
    # A list needs none of these, and numpy with them: they take a quarter of a second.
    from whyidle.monitor.app.record import show  # noqa: PLC0415
    from whyidle.monitor.diagnosis.diagnose import concluded  # noqa: PLC0415
    from whyidle.monitor.runs.summary import summarise  # noqa: PLC0415

    summary = concluded(database(), summarise(database(), ref))
    traces = _traces(summary.run.id)
    if as_json:
        listed = [_listed(trace) for trace in traces]
        click.echo(jsonl.line(asdict(jsonl.summary_object(summary)) | {"traces": listed}))
        return
    show(summary, as_json=False, everything=True)
    for trace in traces:
        is_there = os.path.exists(trace.path)  # noqa: PTH110  a folder may be closed to us
        command = "dashboard" if trace.format == "ranks" else "trace view"
        look = f"; see it with: monitor {command} {summary.run.id}"
        gone = " (its file is gone)"
        click.echo(f"kept trace: {trace.answer['file']}{look if is_there else gone}")


def _name(ref: str | None, text: str, *, as_json: bool) -> None:
    """Label a recording: its recorder does that as long as there is one."""
    if ref is None:
        raise UsageProblem(
            "Say which recording to label.", "For instance: monitor runs last --label NAME"
        )
    label = new_label(text)
    with Reader.open(database()) as reader:
        found = reader.find(ref)
        worst = reader.worst_finding(found.id)
    if found.is_recording:
        client.set_label(database(), found.id, label or "")
    else:
        label_run(database(), found.id, label)
    if as_json:
        row = _row(found, found.is_recording, worst)
        click.echo(jsonl.listing("runs", [row | {"label": label}]))
    else:
        said = f"is called {label} now" if label else "has no label now"
        click.echo(f"Run {found.id} {said}.")


def _traces(run: int) -> list[KeptTrace]:
    from whyidle.monitor.store.stored_traces import Kept  # noqa: PLC0415  it imports numpy

    with Kept.open(database()) as kept:
        return kept.traces(run)


def _listed(trace: KeptTrace) -> JsonObject:
    return {
        "trace": trace.id,
        "ts_ms": trace.ts_ms,
        "format": trace.format,
        "file": trace.answer["file"],
        "budget": trace.answer["budget"],
    }


def _state(run: Run, *, running: bool) -> str:
    if running:
        return "recording"
    return run.end_reason or DIED


def _seconds(run: Run) -> float:
    end = run.ended_ms if run.ended_ms is not None else time.time() * 1000
    return max(0.0, end - run.started_ms) / 1000


def _row(run: Run, running: bool, worst: Mapping[str, Any] | None) -> JsonObject:
    return {
        "run": run.id,
        "label": run.label,
        "state": _state(run, running=running),
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "seconds": round(_seconds(run), 3) if running or run.ended_ms is not None else None,
        "pid": run.target_pid,
        "script": run.script,
        "command": run.command,
        "framework": run.framework,
        "user": run.user,
        "host": run.host,
        "hz": run.hz,
        "exit_code": run.exit_code,
        "steps_per_s": run.steps_per_s,
        "finding": worst and {name: worst.get(name) for name in _OF_FINDING},
    }


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _result(run: Run, running: bool, worst: Mapping[str, Any] | None) -> str:
    """Return what became of it: its pace, and what it loses most by."""
    state = _state(run, running=running)
    said = [state] if running or state == DIED else []
    if run.steps_per_s is not None:
        said.append(f"{numbers.amount(run.steps_per_s, '')} steps/s")
    if worst is not None:
        gain = "" if worst.get("expected") is None else f" {worst['expected']:.1f}x"
        said.append(f"{worst['rule']}{gain}")
    return ", ".join(said) or state


def _table(rows: Sequence[tuple[Run, bool, Mapping[str, Any] | None]]) -> str:
    cells = []
    for run, running, worst in rows:
        known_end = running or run.ended_ms is not None
        cells.append(
            [
                str(run.id),
                _short(run.label or ""),
                time.strftime("%m-%d %H:%M", time.localtime(run.started_ms / 1000)),
                numbers.duration(_seconds(run)) if known_end else numbers.DASH,
                _result(run, running, worst),
                run.script or run.command or "",
            ]
        )
    titles = ["run", "label", "started", "time", "result", "job"]
    return table(titles, cells, right="r  r")
