"""What attach and run share: the share for traces, the screen, the summary at the end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.tracing.policy import SHARE

if TYPE_CHECKING:
    from whyidle.monitor.recording.session import Screen
    from whyidle.monitor.runs.summary import RunSummary


def share_of(trace_share: float | None, *, no_trace: bool) -> float:
    """Return what these options say."""
    if no_trace and trace_share:
        raise UsageProblem(
            "--no-trace takes no traces, and --trace-share says how many.", "Give one of them."
        )
    if no_trace:
        return 0.0
    return SHARE if trace_share is None else trace_share


def screen(*, as_json: bool, quiet: bool, everything: bool) -> Screen:
    """Return the screen that fits the options and the terminal."""
    # Rich comes with them: a tenth of a second, in which a command may fail or a job may start.
    from whyidle.monitor.render import screens  # noqa: PLC0415

    if as_json:
        return screens.JsonLines()
    if quiet:
        return screens.Quiet()
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from whyidle.monitor.render.live import LiveView  # noqa: PLC0415

        return LiveView(everything=everything)
    return screens.PlainLines(everything=everything)


def show(
    summary: RunSummary, *, as_json: bool, err: bool = False, everything: bool = False
) -> None:
    """Print the end of a recording, or everything that is known of it."""
    # As above: `monitor run` starts its job first.
    from whyidle.monitor.render import ending, jsonl, plain  # noqa: PLC0415

    if as_json:
        text = jsonl.line(jsonl.summary_object(summary))
    else:
        text = plain.summary_page(summary) if everything else ending.page(summary)
    click.echo(text, err=err)
