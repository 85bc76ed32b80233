"""``monitor export``: the GPUs and jobs of this host, for Prometheus."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Literal

import click

from whyidle.monitor.app.exporting import here, host_name, serving
from whyidle.monitor.app.recording_policy import Policy
from whyidle.monitor.export import web_config as web
from whyidle.monitor.export.scrape import Shown, scrape
from whyidle.monitor.render.console import say


def run(
    *,
    port: int,
    address: str,
    once: bool,
    attach: Literal["all", "gpu", "none"],
    no_dcgm_names: bool,
    host_label: Literal["Hostname", "hostname"],
    host: str | None,
    web_config: str | None,
    hz: float,
    require_gpu: bool,
) -> None:
    """Serve until Ctrl-C, or print one page."""
    config = web.WebConfig() if web_config is None else web.read(Path(web_config))
    shown = Shown(host_name(host), host_label, not no_dcgm_names)
    collector = here(hz)
    if require_gpu:
        collector.open_driver()
    if once:
        collector.once()
        click.echo(scrape(collector, shown), nl=False)
        collector.close()
        return
    with serving(collector, shown, address, port, config):
        if not address.startswith(("127.", "::1", "localhost")) and not (
            config.tls and config.users
        ):
            say(
                f"Everybody who reaches {address} can read them, users and jobs included.",
                "Safer: TLS and passwords by --web-config FILE",
            )
        with Policy(attach, collector):
            _wait()


def _wait() -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # What `nohup` or a shell's `&` keeps from us stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: ended.set())
    ended.wait()
