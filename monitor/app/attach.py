"""``monitor attach``: watch a job that already runs."""

from __future__ import annotations

import signal
import sys

from whyidle.monitor.app import live_dashboard, record
from whyidle.monitor.app.background import announcer, start
from whyidle.monitor.app.pick import pick
from whyidle.monitor.core.paths import database
from whyidle.monitor.processes.process import find_target
from whyidle.monitor.recording.recorder import Wanted
from whyidle.monitor.recording.session import Session
from whyidle.monitor.render.console import mute


def run(
    *,
    pid: str | None,
    seconds: float | None,
    hz: float,
    label: str | None,
    everything: bool,
    require_gpu: bool,
    observe: bool,
    any_user: bool,
    trace_share: float | None,
    no_trace: bool,
    quiet: bool,
    dashboard: bool,
    background: bool,
    ready_fd: int | None,
    as_json: bool,
) -> None:
    """Carry out the command."""
    share = record.share_of(trace_share, no_trace=no_trace)
    target = find_target(pid) if pid is not None else pick()
    if background:
        if dashboard:
            raise live_dashboard.nowhere_to_say()
        start(target, seconds=seconds, hz=hz, label=label, require_gpu=require_gpu,
              observe=observe, any_user=any_user, trace_share=share, as_json=as_json)  # fmt: skip
        return
    screen = record.screen(as_json=as_json, quiet=quiet, everything=everything)
    with live_dashboard.beside(screen, wanted=dashboard) as opened:
        session = Session(database(), opened.screen)
        session.open_gpus(require=require_gpu)
        told = session.record(
            Wanted(target, hz, label, observe=observe, any_user=any_user, trace_share=share),
            seconds,
            stop_on=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            ready=None if ready_fd is None else announcer(ready_fd),
        )
        try:
            record.tell(told, as_json=as_json)
        except OSError:
            if session.stopped_by != signal.SIGHUP:
                raise
            # The terminal has gone, and whoever could read.
            mute()
        if session.stopped_by is None:
            opened.stay(told.run.id, may_wait=sys.stdout.isatty() and not as_json)
    if session.stopped_by in {signal.SIGINT, signal.SIGHUP}:
        sys.exit(128 + session.stopped_by)
