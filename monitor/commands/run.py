"""``monitor run -- CMD``: start a job and record it."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.errors import Exit

_EPILOG = """\b
A job of a minute or more:   monitor run -- python train.py
Against a baseline, in CI:   monitor baseline save main
                             monitor run --gate main --repeat 3 -- python train.py --steps 200"""


@click.command(
    epilog=_EPILOG,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@options.hz
@options.label
@options.require_gpu
@click.option(
    "-q", "--quiet", is_flag=True, help="Print nothing of the monitor, not even the summary."
)
@options.traces
@click.option("--first-trace", type=options.Finite(min=0.0), metavar="S",
              help="Take the first trace this many seconds after the agent is inside (default:"
                   " 10), for a short job.")  # fmt: skip
@options.as_json
@click.option("--observe", is_flag=True, help="Start it as it is: put nothing into the job.")
@click.option(
    "--gate",
    metavar="BASELINE",
    help=f"End with {Exit.WORSE.value} if it is slower than this beyond noise, or has a new"
    f" finding, medium or high; with {Exit.NOT_JUDGED.value} if that is not known. See"
    " `monitor baseline`.",
)
@click.option(
    "--fail-slower",
    type=options.Finite(),
    metavar="PERCENT",
    help="With --gate: how much slower it may be (default: 3, the least, if both sides have three"
    " runs or more; else 10).",
)
@click.option("--repeat", type=options.Whole(1, 100), default=1, metavar="N",
              help="Run it N times, one after the other: the middle one is judged.")  # fmt: skip
@click.option(
    "--annotate", is_flag=True, help="With --gate: annotate lines that are to blame, for GitHub."
)
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@options.implemented_by("run")
def command() -> None:
    """Start a job and watch it from its first moment.

    It exits with the job's exit code. The agent is inside from the first import of jax, torch or
    tensorflow on, in every process of the job.

    The job keeps the terminal: its output is its own, and the summary is printed to stderr when it
    ends. With --json only the summary is on stdout, and the job's output goes to stderr.
    """
