"""What a fleet loses, as a page shows it: asked seldom, and the last answer kept for bad times."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from typing import Final

from whyidle.dashboard.views.cache import remember
from whyidle.monitor.core.contracts.fleet import FleetJson, LostJson
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.fleet import answer, windows
from whyidle.monitor.fleet.prometheus import URL, Prometheus
from whyidle.monitor.store import Reader

# Where hosts have dashboards of their own, e.g. http://{host}:8765/; without it they are named.
DASHBOARDS: Final = "WHYIDLE_DASHBOARD_URL"
HOST: Final = "{host}"
# Rules run every half minute: to ask more often shows nothing new.
EVERY_SECONDS: Final = 30
# A page does not wait as long as a person at a terminal.
SECONDS: Final = 10.0
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest answer, and why there is no newer one."""

    found: FleetJson | None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where more is known of a job: a run of this store, an address, or what to type."""

    run: int | None = None
    url: str | None = None
    type_: str | None = None


class _Kept:
    # Of this process, by server and time.
    last: dict[tuple[str, str], FleetJson] = {}  # noqa: RUF012


def is_configured() -> bool:
    """Return whether a server is named."""
    return bool(os.environ.get(URL, "").strip())


def has_answer(since: str) -> bool:
    """Return whether there is anything to show at once."""
    return _key(since) in _Kept.last


def _key(since: str) -> tuple[str, str]:
    return os.environ.get(URL, ""), since


def seen(since: str) -> Seen:
    """Return what the fleet has lost; all open pages ask once together."""
    tick = time.monotonic_ns() // (EVERY_SECONDS * 1_000_000_000)
    return remember(("fleet", *_key(since), tick), lambda: _seen(since))


def _seen(since: str) -> Seen:
    try:
        found = answer.ask(replace(Prometheus.here(), seconds=SECONDS), windows.seconds(since))
    except Problem as problem:
        return Seen(_Kept.last.get(_key(since)), problem)
    _Kept.last[_key(since)] = found
    return Seen(found)


def place_of(job: LostJson, reader: Reader | None) -> Place:
    """Return where more is known of a job."""
    run = job.run or None
    number = int(run) if run and run.isdecimal() and len(run) < 19 else None
    host = _host(job.labels.get("instance", ""))
    if number is not None and reader is not None:
        here = reader.run(number)
        key = None if here is None else f"{here.target_pid}-{here.target_start_ticks}"
        if key == job.labels.get("job_key"):
            return Place(run=number)
    if host is None:
        return Place()
    url = url_of(host)
    if url is not None:
        return Place(url=url if number is None else f"{url}?run={number}")
    what = f"monitor dashboard {number}" if number is not None else "monitor ps"
    return Place(type_=f"ssh {host} {what}")


def url_of(instance: str) -> str | None:
    """Return the address of a host's own dashboard."""
    form, host = os.environ.get(DASHBOARDS, "").strip(), _host(instance)
    if host is None or HOST not in form or not form.startswith(("http://", "https://")):
        return None
    return form.replace(HOST, host)


def _host(instance: str) -> str | None:
    found = _HOST.fullmatch(instance)
    return None if found is None else found[1]
