"""``monitor fleet``: many hosts, watched by one Prometheus server."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.defaults import LOOPBACK

_EPILOG = """\b
What a server needs:   monitor fleet init ~/fleet --target node1 --target node2 \\
                         --address 0.0.0.0 --exec /opt/whyidle/bin/monitor
What hosts lose:       monitor fleet top --url http://127.0.0.1:9090"""


@click.group(epilog=_EPILOG)
def command() -> None:
    """Watch many hosts with a Prometheus server.

    Each host runs `monitor export`.
    """


@command.command("init", epilog=_EPILOG)
@click.argument("folder", metavar="DIR", callback=options.text)
@click.option("--target", "targets", multiple=True, metavar="HOST[:PORT]",
              help="A host to scrape; may be repeated (default: this one, or none with"
              " --kubernetes).")  # fmt: skip
@click.option("--alertmanager", "managers", multiple=True, metavar="HOST[:PORT]",
              help="Where alerts are sent; may be repeated (default: nowhere).")  # fmt: skip
@click.option("--kubernetes", is_flag=True,
              help="Scrape the pods of the DaemonSet: for a server in the cluster.")  # fmt: skip
@click.option("--address", "listens", default=LOOPBACK, show_default=True, metavar="A",
              help="What the exporter of each host listens on; 0.0.0.0 is each address that it"
              " has.")  # fmt: skip
@click.option("--exec", "program", metavar="PATH", callback=options.text,
              help="Where `monitor` is on the hosts (default: where it is here).")  # fmt: skip
@options.implemented_by("fleet", "init")
def init() -> None:
    """Write what a Prometheus server and its hosts need into DIR.

    It gets what to scrape, recording rules, alerts (GPUs held and idle, memory of no process, lost
    GPUs, XIDs, throttling, slower steps, findings that last) and dashboards for Grafana. For the
    hosts: a systemd unit, a DaemonSet for Kubernetes and the same as a chart for Helm, a prolog and
    an epilog for SLURM, a script that attaches in a pod. Existing files are not changed, and
    differences to them are reported.
    """


@command.command("top")
@click.option("--url", metavar="URL", callback=options.text,
              help="The server that answers PromQL (default: $WHYIDLE_PROM_URL).")  # fmt: skip
@click.option("--since", default="24h", show_default=True, metavar="AGE", callback=options.text,
              help="How far back: 30m, 24h, 7d.")  # fmt: skip
@click.option("--by", multiple=True,
              type=click.Choice(["job", "cause", "user", "team", "namespace", "host"]),
              help="Only these tables; may be repeated (default: all).")  # fmt: skip
@click.option("--counters", is_flag=True,
              help="Add up the counters, not what the recording rules kept: slower, and with time"
              " that was filled in later.")  # fmt: skip
@options.as_json
@options.implemented_by("fleet_top")
def top() -> None:
    """Show who loses the most GPU-hours: jobs, users, hosts.

    A Prometheus server, or VictoriaMetrics, is asked once: what was lost, the energy and money of
    GPUs that were held and idle, jobs whose GPUs have done nothing for half an hour, alerts, hosts
    that no longer answer. It sums best with the recording rules of `monitor fleet init`.

    WHYIDLE_PROM_TOKEN, or WHYIDLE_PROM_USER and WHYIDLE_PROM_PASSWORD, let it in.
    """
