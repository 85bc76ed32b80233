"""``monitor run -- CMD``: start a job and record it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.monitor.app.launch import Launch, shell_code
from whyidle.monitor.app.record import share_of
from whyidle.monitor.core.errors import StorageProblem, UsageProblem
from whyidle.monitor.render.console import mute, say
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.store import check_label

if TYPE_CHECKING:
    from whyidle.monitor.app.gate import Gate
    from whyidle.monitor.recording.session import Session
    from whyidle.monitor.runs.summary import RunSummary

# ruff: noqa: PLC0415  A part of ours that cannot be imported must not keep the job from starting.


def run(
    *,
    cmd: tuple[str, ...],
    hz: float,
    label: str | None,
    require_gpu: bool,
    quiet: bool,
    trace_share: float | None,
    no_trace: bool,
    first_trace: float | None,
    as_json: bool,
    observe: bool,
    gate: str | None,
    fail_slower: float | None,
    repeat: int,
    annotate: bool,
) -> None:
    """Start the job, record it, and end with its exit code, or as its gate says."""
    share = share_of(trace_share, no_trace=no_trace)
    opened = _gate(gate, fail_slower, cmd, repeat, annotate=annotate)
    boot = None if observe else _boot()
    check_label(label)
    summaries = []
    for _ in range(repeat):
        launch = Launch(list(cmd), output_to_stderr=as_json, boot=boot)
        launch.check()
        probe = GpuProbe()
        if require_gpu:
            probe.open()
        launch.start()
        # The job is never kept waiting by us: not by a store that another program holds.
        session = _session(probe)
        summary = None
        if session is not None:
            summary = _watch(
                session, launch, hz, label,
                observe=observe, trace_share=share, first_trace=first_trace,
            )  # fmt: skip
        code = launch.wait()
        # With a gate its answer has the summary.
        if summary is not None and (not quiet if not as_json else opened is None or code):
            _show(summary, as_json=as_json)
        if code:
            if opened is not None:
                opened.job_failed(code)
            sys.exit(shell_code(code))
        summaries.append(summary)
    if opened is not None:
        sys.exit(opened.judge(summaries, as_json=as_json))


def _gate(
    name: str | None, percent: float | None, cmd: Sequence[str], repeat: int, *, annotate: bool
) -> Gate | None:
    """Open the baseline before anything starts; without one nothing is judged."""
    if name is None:
        if percent is not None or annotate:
            raise UsageProblem(
                "--fail-slower and --annotate say how --gate judges.",
                "Name a baseline: monitor run --gate NAME -- CMD",
            )
        return None
    from whyidle.monitor.app import gate

    return gate.opened(name, percent, cmd, repeat, annotate=annotate)


def _show(summary: RunSummary, *, as_json: bool) -> None:
    try:
        from whyidle.monitor.app.record import show

        show(summary, as_json=as_json, err=not as_json)
        sys.stdout.flush()
    except OSError:
        # A summary that nobody can read must not change the job's code.
        mute()
    except Exception as error:  # noqa: BLE001  nor must one that we do not know
        say(f"the summary failed ({error}).", "Look again with: monitor runs last")


def _boot() -> Path | None:
    """Return the folder that brings the agent along; without one the job still runs."""
    try:
        from whyidle.monitor.attach import bootdir

        return bootdir.make()
    except Exception as error:  # noqa: BLE001  whatever happens to us, the job goes on
        say(f"the agent cannot be brought along ({error}); the job goes on.")
        return None


def _session(probe: GpuProbe) -> Session | None:
    """Open the store; without one the job still runs, as if it had been started without us."""
    try:
        from whyidle.monitor.core.paths import database
        from whyidle.monitor.recording.session import Session
        from whyidle.monitor.render.screens import Quiet

        return Session(database(), Quiet(), probe)
    except StorageProblem as problem:
        say(f"{problem.what} The job runs unrecorded.", problem.next_step)
    except Exception as error:  # noqa: BLE001  whatever happens to us, the job goes on
        say(f"the recording failed ({error}); the job goes on.")
    return None


def _watch(
    session: Session,
    launch: Launch,
    hz: float,
    label: str | None,
    *,
    observe: bool,
    trace_share: float,
    first_trace: float | None,
) -> RunSummary | None:
    try:
        from whyidle.monitor.processes.target import Target
        from whyidle.monitor.recording.requests import Wanted
        from whyidle.monitor.tracing.policy import SETTLED_SECONDS

        session.open_gpus()
        wanted = Wanted(
            Target(launch.key),
            hz,
            label,
            observe=observe,
            brought=not observe,
            trace_share=trace_share,
            settled=SETTLED_SECONDS if first_trace is None else first_trace,
        )
        return session.record(wanted, child=launch)
    except Exception as error:  # noqa: BLE001  whatever happens to us, the job goes on
        say(f"the recording failed ({error}); the job goes on.")
        return None
