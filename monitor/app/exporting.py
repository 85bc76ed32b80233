"""What ``monitor export`` and ``attach --export`` share: looking at the host, and serving it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial

from whyidle.monitor.core.defaults import LOOPBACK
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.paths import database
from whyidle.monitor.export.collector import Collector
from whyidle.monitor.export.scrape import Shown, scrape
from whyidle.monitor.export.server import Server
from whyidle.monitor.export.web_config import WebConfig
from whyidle.monitor.render.console import say


def here(hz: float) -> Collector:
    """Return what looks at this host, and says on standard error what it cannot see."""
    return Collector(database(), say, hz)


def host_name(given: str | None) -> str:
    """Return what the host is called."""
    return given or socket.gethostname()


@contextlib.contextmanager
def serving(
    collector: Collector,
    shown: Shown,
    place: tuple[str, int],
    config: WebConfig,
    scraped: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Serve what it sees, until the block ends."""
    server = Server(*place, partial(scrape, collector, shown), config, scraped)
    say(f"Metrics for Prometheus: {server.url}")
    collector.start()
    server.start()
    try:
        yield
    finally:
        server.close()
        collector.close()


@contextlib.contextmanager
def beside(port: int) -> Iterator[None]:
    """Serve beside a recording, which goes on whatever becomes of it."""
    with contextlib.ExitStack() as stack:
        try:
            opened = serving(here(1.0), Shown(host_name(None)), (LOOPBACK, port), WebConfig())
            stack.enter_context(opened)
        except Problem as problem:
            say(f"{problem.what} The recording goes on without it.", problem.next_step)
        yield
