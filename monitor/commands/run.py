"""``monitor run -- CMD``: start a job and record it."""

from __future__ import annotations

import sys

import click

from whyidle.monitor.commands import _options as options


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options.hz
@options.label
@options.require_gpu
@options.quiet
@options.as_json
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    *,
    cmd: tuple[str, ...],
    hz: float,
    label: str | None,
    require_gpu: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Start a job and watch it.

    The job is recorded from its first moment, and its exit code is ours.

    The job keeps the terminal: its output is its own, the summary comes on stderr when it ends.
    With --json the summary is alone on stdout, and the job's output goes to stderr.
    """
    from whyidle.monitor.launch import Launch, shell_code
    from whyidle.monitor.recording.recorder import Wanted
    from whyidle.monitor.recording.session import Session
    from whyidle.monitor.render.screens import Quiet
    from whyidle.monitor.state import database

    launch = Launch(list(cmd), output_to_stderr=as_json)
    launch.check()
    session = Session(database(), Quiet())
    if require_gpu:
        session.open_gpus(require=True)
    launch.start()
    try:
        if not require_gpu:
            session.open_gpus()
        told = session.record(Wanted(launch.key, hz, label), child=launch)
    except Exception as error:  # noqa: BLE001  whatever happens to us, the job goes on
        click.echo(f"monitor: the recording failed ({error}); the job goes on.", err=True)
        sys.exit(shell_code(launch.wait()))
    code = launch.wait()
    if as_json:
        options.tell(told, as_json=True)
    elif not quiet:
        options.tell(told, as_json=False, err=True)
    sys.exit(shell_code(code))
