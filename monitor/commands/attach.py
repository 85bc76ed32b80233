"""``monitor attach``: watch a job that already runs."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
Choose from a list:             monitor attach
By the name of its script:      monitor attach train.py
Before it has been started:     monitor attach train.py --wait
In the background:              monitor attach 4711 --background
To be told of what is found:    monitor attach 4711 --notify ~/bin/tell-me"""


@click.command(epilog=_EPILOG)
@click.argument("pid", required=False, metavar="[PID|SCRIPT]")
@click.option("--wait", is_flag=True, help="Wait for a process that runs SCRIPT.")
@click.option("--for", "seconds", type=options.Finite(min=0.0, min_open=True), metavar="SECONDS",
              help="End after this many seconds (default: when the job ends).")  # fmt: skip
@options.hz
@options.label
@options.everything
@options.require_gpu
@options.observe
@options.any_user
@options.traces
@options.quiet
@click.option("--dashboard", is_flag=True, help="Show it as a web page too; it stays until Ctrl-C.")
@click.option("--export", type=options.PORT, metavar="PORT",
              help="Serve this host to Prometheus meanwhile; see `monitor export`.")  # fmt: skip
@click.option("--notify", metavar="CMD", callback=options.text,
              help="Run CMD when a finding of high severity appears; it gets JSON on its"
                   " standard input, and runs without a shell.")  # fmt: skip
@click.option(
    "--background", is_flag=True, help=("Keep recording in the background; see `monitor stop`.")
)
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--start-ticks", type=int, hidden=True)
@options.as_json
@options.implemented_by("attach", beside_a_job=True)
def command() -> None:
    """Show why a running job leaves its GPU idle.

    Its GPUs and processes are read from outside: the driver's counters and /proc. A small agent
    thread is injected into each Python process with JAX, PyTorch or TensorFlow; of a loader's
    workers, into two. It measures what is only visible from inside: steps, pauses of the garbage
    collector, the line of your code. Entering stops the process for a few milliseconds at most; its
    results stay the same. The agent writes to its own file under /tmp, and leaves when watching
    ends or the monitor is gone.

    If GPUs wait, or nothing measures whether they do, a short trace is taken now and then: at most
    1% of the job's time, and less often while the traces agree.

    With --observe nothing goes into the job. Without a PID it lists the jobs to choose from; a name
    such as train.py means the one process that runs it. Ctrl-C ends the watching, never the job.
    """
