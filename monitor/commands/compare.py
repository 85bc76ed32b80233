"""``monitor compare``: two runs or traces side by side, before and after a change."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
Two recordings:           monitor compare 3 last
Two traces:               monitor compare before.json.gz after.json.gz
In a test of your own:    monitor compare baseline last --fail-slower 5"""


@click.command(epilog=_EPILOG)
@click.argument("a")
@click.argument("b")
@click.option("--fail-slower", type=options.Finite(), metavar="PERCENT",
              help="End with 1 if B is slower by more than this: by the number before the brackets,"
              " and only beyond noise. End with 7 if that is not certain. At least 3: less is"
              " never called a difference.")  # fmt: skip
@options.as_json
@options.implemented_by("compare")
def command() -> None:
    """Compare two runs: what got faster or slower, and why.

    By how much B differs from A, beyond noise. A and B are recordings (a number, a label, or
    `last`) or trace files. Times are per step, or, if the steps of one are not known, per second.
    The brackets show how much the steps vary within these two recordings (95%), not how much one
    program varies from run to run: less than 3% is never called a difference.

    If other programs on the machine slowed one of the two more than the other, the result is not
    certain whatever the steps say: record both again.

    In JSON, step_ns are medians (step_by); speedup is by the mean if the steps were counted all the
    time, so that pauses between them count, and by the median otherwise (speedup_by).
    """
