"""``monitor export``: the GPUs and jobs of this host, for Prometheus."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import click

from whyidle.monitor.app.export_options import check_once, labels_to_add, users_to_record
from whyidle.monitor.app.exporting import here, host_name, serving
from whyidle.monitor.app.recording_policy import Policy
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.paths import state_dir
from whyidle.monitor.export import web_config as web
from whyidle.monitor.export.collector import OTLP, Collector
from whyidle.monitor.export.fleet_files import JOB
from whyidle.monitor.export.otlp import Pusher
from whyidle.monitor.export.remote_write import Sender
from whyidle.monitor.export.scrape import Shown, families, scrape
from whyidle.monitor.export.unscraped import FILE, Backfill, Unscraped
from whyidle.monitor.render.console import say


def run(
    *,
    port: int,
    address: str,
    once: bool,
    attach: Literal["all", "gpu", "none"],
    users: tuple[str, ...],
    no_dcgm_names: bool,
    host_label: Literal["Hostname", "hostname"],
    host: str | None,
    web_config: str | None,
    otlp: str | None,
    backfill: str | None,
    labels: tuple[str, ...],
    hz: float,
    require_gpu: bool,
) -> None:
    """Serve until Ctrl-C, or print one page."""
    if once:
        check_once()
    recorded, added = users_to_record(attach, users), labels_to_add(backfill, labels)
    config = web.WebConfig() if web_config is None else web.read(Path(web_config))
    shown = Shown(host_name(host), host_label, not no_dcgm_names)
    collector = here(hz)
    pusher = None if otlp is None else Pusher(collector, shown.host, otlp)
    if require_gpu:
        collector.open_driver()
    if once:
        _once(collector, shown, pusher)
        return
    scraped: Callable[[str], None] = lambda _: None  # noqa: E731
    with contextlib.ExitStack() as stack:
        sends = None
        if backfill is not None:
            names = _names(added, f"{shown.host}:{port}")
            sends = _backfill(collector, shown, backfill, names)
            scraped = sends.scrapes.note
        stack.enter_context(serving(collector, shown, (address, port), config, scraped))
        for each in (sends, pusher):
            if each is not None:
                each.start()
                stack.callback(each.close)
        if not address.startswith(("127.", "::1", "localhost")) and not (
            config.tls and config.users
        ):
            say(
                f"Everybody who reaches {address} can read them, users and jobs included.",
                "Safer: TLS and passwords by --web-config FILE",
            )
        with Policy(attach, collector, recorded):
            _wait()


def _once(collector: Collector, shown: Shown, pusher: Pusher | None) -> None:
    collector.once()
    if pusher is not None:
        collector.attempt(OTLP, pusher.push)
        pusher.close()
    click.echo(scrape(collector, shown), nl=False)
    collector.close()
    # Said already; a script has only the code.
    if OTLP in collector.problems:
        raise SystemExit(Exit.GONE)


def _backfill(
    collector: Collector, shown: Shown, url: str, added: Callable[[str], dict[str, str]]
) -> Backfill:
    page = partial(families, collector, shown)
    return Backfill(collector, page, Sender(url), Unscraped(state_dir() / FILE), added)


def _names(added: dict[str, str], name: str) -> Callable[[str], dict[str, str]]:
    """Return what a server would add to what it scrapes, by the name that it calls us."""
    return lambda instance: {"job": JOB, "instance": instance or name, **added}


def _wait() -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # What `nohup` or a shell's `&` keeps from us stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: ended.set())
    ended.wait()
