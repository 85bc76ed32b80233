"""``monitor fleet``: many hosts, watched by one Prometheus server."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options

_EPILOG = """\b
What a server needs:   monitor fleet init ~/fleet --target node1 --target node2"""


@click.group(epilog=_EPILOG)
def command() -> None:
    """Watch many hosts with a Prometheus server; each runs `monitor export`."""


@command.command("init", epilog=_EPILOG)
@click.argument("folder", metavar="DIR", callback=options.text)
@click.option("--target", "targets", multiple=True, metavar="HOST[:PORT]",
              help="A host to scrape; may be repeated (default: this one).")  # fmt: skip
@options.implemented_by("fleet", "init")
def init() -> None:
    """Write the configuration of a Prometheus server, and of its hosts, into DIR.

    It gets what to scrape, recording rules, and alerts (GPUs held and idle, memory held by nobody,
    lost GPUs, XIDs, throttling, slower steps, findings that last). For the hosts: a systemd unit, a
    DaemonSet for Kubernetes, a prolog and an epilog for SLURM, a script that attaches in a pod.
    What is there already stays as it is.
    """
