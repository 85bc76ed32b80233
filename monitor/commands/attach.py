"""``monitor attach``: watch a job that already runs."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.commands._output import mute


@click.command()
@click.argument("pid", required=False)
@click.option("--for", "seconds", type=options.Finite(min=0.0, min_open=True), metavar="SECONDS",
              help="End after so many seconds (default: when the job ends).")  # fmt: skip
@options.hz
@options.label
@options.everything
@options.require_gpu
@options.observe
@options.any_user
@options.traces
@options.quiet
@click.option("--dashboard", is_flag=True, help="Show it as a web page too; it stays until Ctrl-C.")
@click.option("--background", is_flag=True, help="Record on in the background; see `monitor stop`.")
@click.option("--ready-fd", type=int, hidden=True)
@options.as_json
def command(
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
    """Watch a running job.

    Its GPUs and processes are read from outside: the driver's counters and /proc. Into each Python
    process with JAX or PyTorch goes a small agent, a thread that tells what only the inside knows:
    pauses of the garbage collector, and which line of your code the main thread is at. For that
    the process stands still for a few milliseconds at most; its results stay the same. The agent
    writes to a file of its own under /tmp, and goes when the watching ends or the monitor is gone.

    Where GPUs wait, or nothing tells whether they do, a short trace is taken now and then: at most
    1% of the job's time, and less and less often while each tells the same.

    With --observe nothing goes into the job. Without a PID it lists the jobs to choose from. Ctrl-C
    ends the watching, never the job.
    """
    import signal

    from whyidle.monitor.commands import _background, _beside
    from whyidle.monitor.commands._pick import pick
    from whyidle.monitor.core.paths import database
    from whyidle.monitor.processes.process import find_target
    from whyidle.monitor.recording.recorder import Wanted
    from whyidle.monitor.recording.session import Session

    share = options.share_of(trace_share, no_trace=no_trace)
    target = find_target(pid) if pid is not None else pick()
    if background:
        if dashboard:
            raise _beside.nowhere_to_say()
        _background.start(target, seconds=seconds, hz=hz, label=label, require_gpu=require_gpu,
                          observe=observe, any_user=any_user, trace_share=share,
                          as_json=as_json)  # fmt: skip
        return
    screen = options.screen(as_json=as_json, quiet=quiet, everything=everything)
    beside = _beside.dashboard(screen) if dashboard else nullcontext(_beside.Opened(screen))
    with beside as opened:
        session = Session(database(), opened.screen)
        session.open_gpus(require=require_gpu)
        told = session.record(
            Wanted(target, hz, label, observe=observe, any_user=any_user, trace_share=share),
            seconds,
            stop_on=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            ready=None if ready_fd is None else _background.announcer(ready_fd),
        )
        try:
            options.tell(told, as_json=as_json)
        except OSError:
            if session.stopped_by != signal.SIGHUP:
                raise
            # The terminal has gone, and whoever could read.
            mute()
        if session.stopped_by is None:
            opened.stay(told.run.id, may_wait=sys.stdout.isatty() and not as_json)
    if session.stopped_by in {signal.SIGINT, signal.SIGHUP}:
        sys.exit(128 + session.stopped_by)
