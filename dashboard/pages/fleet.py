"""Fleet: what many hosts lose, by job, cause, user, team and host; from a Prometheus server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from whyidle.dashboard import frame, markup, store_reader, theme, widgets
from whyidle.dashboard.blocks import Block, Chart, Columns, Html, series_chart
from whyidle.dashboard.figures.account import over_time
from whyidle.dashboard.figures.lines import Line, lines
from whyidle.dashboard.markup import Tile
from whyidle.dashboard.pages import _fleet_tables as tables
from whyidle.dashboard.views import fleet
from whyidle.dashboard.views.causes import Causes
from whyidle.dashboard.views.series import Series
from whyidle.dashboard.views.time_range import TimeRange
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.fleet import FleetJson
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.fleet.prometheus import URL
from whyidle.monitor.render import fleet as words
from whyidle.monitor.render import numbers
from whyidle.monitor.store import Reader

TITLE: Final = "Fleet"
PATH: Final = "fleet"
SINCE: Final = ("1h", "6h", "24h", "7d")
_HALF_AN_HOUR: Final = "for half an hour"


def page() -> None:
    """Draw the page; it asks anew by itself."""
    since = st.segmented_control(
        "Time range", SINCE, default="24h", key="since", bind="query-params"
    )
    place = st.empty()
    if not fleet.has_answer(since or "24h"):
        with place:
            widgets.note("Asking the server …")

    def part() -> None:
        frame.alone(lambda: _live(since or "24h"))

    st.fragment(part, run_every=fleet.EVERY_SECONDS)()
    place.empty()


def _live(since: str) -> None:
    seen = fleet.seen(since)
    blocks: list[Block] = []
    if seen.problem is not None:
        told = markup.unknown("No answer", seen.problem.what, seen.problem.next_step)
        again = f"It is asked again every {fleet.EVERY_SECONDS:.0f} s. {URL} names it."
        blocks += [Html(told), Html(markup.note(again))]
    if seen.found is not None:
        if seen.problem is not None:
            at = words.clock(seen.found.now_ms)
            blocks.append(Html(markup.alarm(f"What follows was known at {at}.")))
        blocks += _blocks(seen.found, since)
    widgets.board("fleet", blocks)


def _blocks(found: FleetJson, since: str) -> list[Block]:
    about = f"{found.server}, {words.SOURCES[found.source]}, {words.clock(found.now_ms)}"
    reader = _store()
    return [
        Html(markup.note(about)),
        *(Html(markup.alarm(note)) for note in found.notes),
        Html(markup.tiles(_tiles(found))),
        Columns([_lost(found, since), [*_idle(found, since), *_hosts(found, since)]]),
        # What needs a hand now, before what was lost.
        Columns([[Html(tables.alerts(found))], [Html(tables.held_idle(found))],
                 [Html(tables.gone(found))]]),
        Html(tables.jobs(found, reader)),
        Columns([
            [Html(tables.lost(found, "cause", "By cause")),
             Html(tables.lost(found, "namespace", "By namespace"))],
            [Html(tables.lost(found, "user", "By user"))],
            [Html(tables.lost(found, "team", "By team"))],
        ]),
        Html(tables.hosts(found)),
    ]  # fmt: skip


def _store() -> Reader | None:
    """Return the store of this host, in which a job may be found."""
    try:
        return store_reader.reader()
    except Exception:  # noqa: BLE001  a fleet is asked without one, too
        return None


def _tiles(found: FleetJson) -> list[Tile]:
    unknown, gpus = found.unknown, found.gpus
    lost, whole = found.lost_gpu_hours, found.job_gpu_hours
    part = None if lost is None or not whole else min(1.0, lost / whole)
    alerts = None if "alerts" in unknown else str(len(found.alerts))
    return [
        Tile("GPU-hours lost", None if lost is None else words.hours(lost),
             unknown.get("lost.cause") or (
                 words.UNWATCHED if lost is None
                 else f"{words.share(part)} of the time that jobs had")),
        Tile("Held and idle", None if gpus is None else _count(found.gpus_held_idle),
             unknown.get("gpus_held_idle") or unknown.get("gpus") or (
                 "no GPU is watched now" if gpus is None
                 else f"of {gpus:,} GPUs, {_HALF_AN_HOUR}")),
        *_spent(found),
        _hosts_now(found),
        Tile("Alerts", alerts, unknown.get("alerts") or "fire now"),
    ]  # fmt: skip


def _spent(found: FleetJson) -> list[Tile]:
    """Return what GPUs cost that were held and idle, and how long others were free."""
    held, free, unknown = found.held.get("true"), found.held.get("false"), found.unknown
    kwh = None if held is None else held.kwh
    money = {} if held is None else held.money
    of_these = "of GPUs that were held and idle"
    return [
        Tile("Energy", None if kwh is None else f"{words.hours(kwh)} kWh",
             unknown.get("held.energy") or ("nothing is known of it" if kwh is None else of_these)),
        Tile("Money", words.spent(None, money) or None,
             unknown.get("held.money") or (of_these if money else "no host has a price set")),
        Tile("Free", None if free is None else words.hours(free.gpu_hours),
             unknown.get("held.time") or (
                 "nothing is known of it" if free is None else "GPU-hours that no job held")),
    ]  # fmt: skip


def _hosts_now(found: FleetJson) -> Tile:
    gone = f"; {len(found.gone)} no longer" if found.gone else ""
    why = "none answers" if found.hosts is None else f"answer now{gone}"
    return Tile("Hosts", _count(found.hosts), found.unknown.get("hosts") or why)


def _count(value: int | None) -> str:
    return numbers.DASH if value is None else f"{value:,}"


def _span(found: FleetJson, since: str) -> TimeRange:
    times = found.trend.times_ms
    return TimeRange(times[0], max(times[-1], times[0] + 1), True, since)


def _lost(found: FleetJson, since: str) -> list[Block]:
    title = Html(markup.title("GPUs lost", "how many waited at a time, by cause"))
    parts: Mapping[Slice, list[float | None]] = _parts(found)
    if not parts:
        why = found.unknown.get("trend.lost_gpus", words.UNWATCHED)
        return [title, Html(markup.unknown("GPUs lost", why))]
    causes = Causes(found.trend.times_ms, parts, is_of_steps=False)
    figure = over_time("fleet-lost", causes, _span(found, since), unit="count")
    return [title, Chart("fleet-lost", figure, theme.CHART_HEIGHT + theme.SMALL_HEIGHT)]


def _parts(found: FleetJson) -> dict[Slice, list[float | None]]:
    """Return the trend by causes in their order; what a newer exporter says is unknown here."""
    known: dict[Slice, list[float | None]] = {}
    names = {part.removeprefix("idle_"): part for part in Slice if part.idle}
    for cause, values in found.trend.lost_gpus.items():
        part = names.get(cause, Slice.IDLE_UNKNOWN)
        if any(values):
            before = known.get(part) or [None] * len(values)
            known[part] = [
                None if a is None and b is None else (a or 0.0) + (b or 0.0)
                for a, b in zip(before, values, strict=True)
            ]
    return {part: known[part] for part in Slice if part in known}


def _idle(found: FleetJson, since: str) -> list[Block]:
    series = _series("idle", found, found.trend.idle_share, "trend.idle_share")
    figure = lines(
        "fleet-idle", [Line(series, theme.SLATE, fill=True)], "ratio", _span(found, since),
        showlegend=False,
    )  # fmt: skip
    return series_chart(
        "Share of all GPUs that was idle", figure, [series], "fleet-idle", theme.SMALL_HEIGHT
    )


def _hosts(found: FleetJson, since: str) -> list[Block]:
    values = [None if x is None else float(x) for x in found.trend.hosts]
    series = _series("hosts", found, values, "trend.hosts")
    figure = lines(
        "fleet-hosts", [Line(series, theme.SLATE)], "count", _span(found, since), showlegend=False
    )
    return series_chart("Hosts that answer", figure, [series], "fleet-hosts", theme.SMALL_HEIGHT)


def _series(name: str, found: FleetJson, values: list[float | None], part: str) -> Series:
    why = None if any(x is not None for x in values) else "nothing is known of this time"
    unknown = found.unknown.get(part) or why
    return Series(name, m.GPU_UTILISATION, found.trend.times_ms, values, unknown=unknown)
