"""``monitor mcp``: the tools for coding agents."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
For an agent that starts it:   monitor mcp
One that may also attach:      monitor mcp --allow-actions
Over HTTP, with a token:       monitor mcp --http 9401"""


@click.command(epilog=_EPILOG)
@click.option("--http", "http_port", type=options.Whole(0, 65535), metavar="PORT",
              help="Serve streamable HTTP on this machine's loopback instead of stdio (0: any free"
              " port). A client needs the token, whose file is named at the start.")  # fmt: skip
@click.option("--allow-actions", is_flag=True,
              help="Also offer what touches a job: attach, trace_now, try_knob.")  # fmt: skip
@options.implemented_by("server", room="serve")
def command() -> None:
    """Answer the questions of a coding agent about jobs.

    It uses the Model Context Protocol, on stdio unless --http is given.

    The agent lists jobs, asks for findings, the account of the time, evidence, lines of code and
    patches, compares runs, and queries the store in SQL. It only reads unless --allow-actions is
    given. Answers contain no secrets, users or hosts.
    """
