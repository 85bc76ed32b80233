"""``monitor export``: the GPUs and jobs of this host, for Prometheus."""

from __future__ import annotations

import click

from whyidle.monitor.commands import _options as options
from whyidle.monitor.core.defaults import EXPORT_PORT, LOOPBACK
from whyidle.monitor.core.errors import Exit

# The command line of a process is everybody's to read.
BACKFILL_URL = "WHYIDLE_BACKFILL_URL"


_EPILOG = """\b
This host, for Prometheus:   monitor export
One scrape:                  monitor export --once
Record each job on a GPU:    monitor export --attach gpu"""


@click.command(epilog=_EPILOG)
@click.option("--port", type=options.PORT, default=EXPORT_PORT, show_default=True,
              metavar="N", help="Where it listens.")  # fmt: skip
@click.option("--address", default=LOOPBACK, show_default=True, metavar="A",
              help="Another address of this machine to listen on.")  # fmt: skip
@click.option("--once", is_flag=True,
              help="Print one scrape and end: nothing is served or recorded.")  # fmt: skip
@click.option("--attach", type=click.Choice(["all", "gpu", "none"]), default="none",
              show_default=True, help="Jobs to record: those on a GPU; all with a framework,"
                                      " too; or none, which enters nothing. As root everyone's,"
                                      " else your own.")  # fmt: skip
@click.option("--user", "users", multiple=True, metavar="NAME",
              help="With --attach: record only this user's; may be repeated.")  # fmt: skip
@click.option("--no-dcgm-names", is_flag=True,
              help="Leave out the names of dcgm-exporter, if that also runs.")  # fmt: skip
@click.option("--host-label", type=click.Choice(["Hostname", "hostname"]), default="Hostname",
              show_default=True, help="How those names label the host; releases of dcgm-exporter"
              " after 4.8.2 write the second.")  # fmt: skip
@click.option("--host", metavar="NAME", callback=options.text,
              help="What this host is called (default: its name).")  # fmt: skip
@click.option("--web-config", metavar="FILE", callback=options.text,
              help="TLS and passwords, in the file that exporters share.")  # fmt: skip
@click.option("--otlp", metavar="URL", callback=options.text,
              help="Send them to an OpenTelemetry receiver, too; with --once, once, and where that"
              f" fails it ends with {Exit.GONE.value}. Headers and the rest by"
              " OTEL_EXPORTER_OTLP_*.")  # fmt: skip
@click.option("--backfill", metavar="URL", callback=options.text, envvar=BACKFILL_URL,
              help="Where what no server scraped is written once it can be: Prometheus or"
              f" VictoriaMetrics. One with a password is safer in {BACKFILL_URL}.")  # fmt: skip
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE",
              help="With --backfill: a label that the server adds to its scrapes; may be repeated"
              " (job and instance are known).")  # fmt: skip
@options.hz
@options.require_gpu
@options.implemented_by("export")
def command() -> None:
    """Serve the GPUs and jobs of this host to Prometheus.

    GPUs have the metric names of dcgm-exporter, so that its dashboards work; what those do not
    cover, why GPUs wait and for what, has names that begin with whyidle_. Everything is read from
    outside: the driver's counters and /proc. What `monitor attach` records meanwhile is read from
    the store.

    Only this machine can reach it, unless --address says otherwise. Ctrl-C ends it.
    """
