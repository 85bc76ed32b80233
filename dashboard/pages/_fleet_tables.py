"""The tables of the fleet page: whose GPU-hours were lost, and what needs a hand now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from whyidle.dashboard import markup, theme
from whyidle.dashboard.markup import Markup, safe
from whyidle.dashboard.views import fleet
from whyidle.monitor.core.contracts.fleet import Dimension, FleetJson, LostJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.render import fleet as words
from whyidle.monitor.render import numbers
from whyidle.monitor.store import Reader

_BAR_PX: Final = 150
_COLOURS: Final = {part.removeprefix("idle_"): theme.CAUSES[part] for part in Slice if part.idle}


def jobs(found: FleetJson, reader: Reader | None) -> str:
    """Return the jobs that lost the most, with the way to each."""
    rows = found.lost.get("job", [])
    title = markup.title(
        "Jobs that lost the most", "GPU-hours in which their GPUs waited, by cause"
    )
    if not rows:
        return title + _no_rows(found, "job", "Jobs")
    most = rows[0].gpu_hours
    cells = [
        (
            words.hours(row.gpu_hours), words.share(row.share), _bar(row, most),
            words.cause_words(next(iter(row.causes or ()), numbers.DASH)),
            row.labels.get("user", ""), row.labels.get("team", ""),
            row.framework or "", _host(row.labels.get("instance", "")),
            words.job(row.labels), _way(row, reader),
        )
        for row in rows
    ]  # fmt: skip
    head = ("GPU-hours", "of its time", "", "mostly", "user", "team", "framework", "host", "job",
            "to look closer")  # fmt: skip
    return title + markup.table(head, cells, right=(0, 1))


def lost(found: FleetJson, dimension: Dimension, name: str) -> str:
    """Return who of one kind lost the most."""
    rows = found.lost.get(dimension, [])
    if words.is_of_nobody(rows, dimension):
        return ""
    title = markup.title(name)
    if not rows:
        return title + _no_rows(found, dimension, name)
    most = rows[0].gpu_hours
    cells = [
        (words.name(row, dimension), words.hours(row.gpu_hours), words.share(row.share),
         _bar(row, most, dimension))
        for row in rows
    ]  # fmt: skip
    of = "of all" if dimension == "cause" else "of their time"
    return title + markup.table((dimension, "GPU-hours", of, ""), cells, right=(1, 2))


def hosts(found: FleetJson) -> str:
    """Return the hosts whose jobs lost the most, with the way to each."""
    rows = found.lost.get("host", [])
    title = markup.title("By host", "energy and money: of GPUs that were held and idle")
    if not rows:
        return title + _no_rows(found, "host", "By host")
    cells = [
        (_host(row.labels.get("instance", "")),
         words.hours(row.gpu_hours), words.share(row.share),
         words.hours(None if row.kwh is UNSET else row.kwh),
         words.spent(None, row.money or {}) or numbers.DASH)
        for row in rows
    ]  # fmt: skip
    head = ("host", "GPU-hours lost", "of its jobs' time", "kWh", "money")
    return title + markup.table(head, cells, right=(1, 2, 3, 4))


def held_idle(found: FleetJson) -> str:
    """Return the jobs whose GPUs have done nothing for half an hour."""
    title = markup.title("Held and idle", "by jobs that have run nothing on them for half an hour")
    rows = found.held_idle
    if not rows:
        return title + _none(found, "held_idle", "Held and idle", "no job of that kind")
    cells = [
        (str(row.gpus), row.labels.get("user", ""), _host(row.labels.get("instance", "")),
         words.job(row.labels))
        for row in rows
    ]  # fmt: skip
    return title + markup.table(("GPUs", "user", "host", "job"), cells, right=(0,))


def alerts(found: FleetJson) -> str:
    """Return the alerts that fire."""
    title = markup.title("Alerts")
    if not found.alerts:
        return title + _none(found, "alerts", "Alerts", "none fires")
    cells = [
        (one.severity, one.alert.removeprefix("Whyidle"),
         ", ".join(f"{k}={v}" for k, v in one.labels.items()))
        for one in found.alerts
    ]  # fmt: skip
    return title + markup.table(("", "alert", "where"), cells)


def gone(found: FleetJson) -> str:
    """Return the hosts that no longer answer."""
    title = markup.title("Hosts that no longer answer")
    if not found.gone:
        return title + _none(found, "gone", "Hosts", "none in this time")
    cells = [(_host(one.host), words.clock(one.last_seen_ms)) for one in found.gone]
    return title + markup.table(("host", "last seen"), cells)


def _no_rows(found: FleetJson, dimension: Dimension, what: str) -> str:
    return _none(found, f"lost.{dimension}", what, words.why_none(found, dimension))


def _none(found: FleetJson, part: str, what: str, otherwise: str) -> str:
    why = found.unknown.get(part)
    return markup.note(otherwise) if why is None else markup.unknown(what, why)


def _bar(row: LostJson, most: float, dimension: Dimension = "job") -> Markup:
    """Return a bar on the scale of the largest; of a job it is divided by cause."""
    label = row.labels.get("cause", "") if dimension == "cause" else ""
    parts: Sequence[tuple[str, float]] = tuple((row.causes or {}).items())
    parts = parts or ((label, row.gpu_hours),)
    drawn = "".join(
        f'<i title="{safe(f"{words.cause_words(cause)}: {words.hours(hours)}" if cause else "")}"'
        f' style="width:{_BAR_PX * hours / most:.1f}px;'
        f'background:{_COLOURS.get(cause, theme.GREY)}"></i>'
        for cause, hours in parts
    )
    return Markup(f'<div class="w-hours" style="width:{_BAR_PX}px">{drawn}</div>')


def _host(instance: str) -> str:
    url = fleet.url_of(instance)
    return instance if url is None else markup.outside(url, instance)


def _way(row: LostJson, reader: Reader | None) -> str:
    place = fleet.place_of(row, reader)
    if place.run is not None:
        return Markup(markup.link("", f"run {place.run}", run=place.run))
    if place.url is not None:
        return markup.outside(place.url, f"run {row.run}" if row.run else "its host")
    return place.type_ or ""
