"""``monitor stop``: end a recording that runs in the background."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from whyidle.monitor.app.record import show
from whyidle.monitor.core.errors import NotPermitted, Problem, TargetGone, UsageProblem
from whyidle.monitor.core.paths import as_root, database
from whyidle.monitor.runs.summary import summarise
from whyidle.monitor.store import Reader, Run

STOP_SECONDS = 15.0


def run(*, run: str | None, everything: bool, as_json: bool) -> None:
    """End the recordings that are meant, and show what each saw."""
    for found in _to_stop(database(), run, everything=everything):
        _stop(found)
        show(summarise(database(), str(found.id)), as_json=as_json)


def _to_stop(path: Path, ref: str | None, *, everything: bool) -> list[Run]:
    """Return the recordings that the user means, or say why there is none."""
    with Reader.open(path) as reader:
        running = [r for r in reader.runs() if r.is_recording]
        named = [reader.find(ref)] if ref is not None else running
    if not named:
        raise TargetGone("No recording runs.", "Start one with: monitor attach --background PID")
    if ref is not None and not named[0].is_recording:
        raise TargetGone(
            f"Run {named[0].id} has ended ({named[0].end_reason or 'its recorder is gone'}).",
            f"Look at it with: monitor runs {named[0].id}",
        )
    if len(named) > 1 and not everything:
        ids = ", ".join(str(r.id) for r in named)
        raise UsageProblem(
            f"{len(named)} recordings run: {ids}.",
            f"Say which: monitor stop {named[-1].id}, or --all",
        )
    return named


def _stop(run: Run) -> None:
    """Ask the recorder to end and wait until it has written the end."""
    pid = run.recorder_pid
    assert pid is not None  # noqa: S101  it was looked for
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not run.is_recording:
            return
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        ended, _, _ = select.select([handle], [], [], STOP_SECONDS)
    except PermissionError:
        what = f"Run {run.id} is recorded by another user (pid {pid})."
        raise NotPermitted(what, f"End it as root: {as_root(f'stop {run.id}')}") from None
    finally:
        os.close(handle)
    if not ended:
        what = f"The recorder of run {run.id} (pid {pid}) did not end within {STOP_SECONDS:g} s."
        raise Problem(what, f"Nothing stored is lost when you end it by force: kill -9 {pid}")
