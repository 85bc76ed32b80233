"""A fleet in the terminal: what it lost, the worst first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import UNSET

from whyidle.monitor.core.contracts.fleet import Dimension, FleetJson, LostJson
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.render import numbers
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.tables import table

SOURCES: Final = {"rules": "as its recording rules kept it", "counters": "added up from counters"}
NOBODY: Final = "(none)"
UNWATCHED: Final = "no job was watched in this time"
# Longer than this the names of gone hosts, and of labels of alerts, tell a person no more.
MOST_NAMES: Final = 5


def lines(found: FleetJson, since: str) -> Iterator[str]:
    """Return what to print."""
    yield f"{found.server}, the last {since}, {SOURCES[found.source]}"
    for note in found.notes:
        yield f"! {printable(note)}"
    yield ""
    yield from _overview(found)
    for dimension, rows in found.lost.items():
        if not is_of_nobody(rows, dimension):
            yield ""
            yield from _table(found, dimension, rows)
    yield from _held_idle(found)
    yield from _alerts(found)
    if found.unknown:
        yield "\nNot known:"
        for part, why in found.unknown.items():
            yield f"  {part}: {printable(why)}"


def cause_words(cause: str) -> str:
    """Return a cause for a person; a newer exporter may know more of them."""
    try:
        return LOOKS[Slice(f"idle_{cause}")].words.removeprefix("idle: ")
    except ValueError:
        return cause


def hours(value: float | None) -> str:
    """Return GPU-hours."""
    if value is None:
        return numbers.DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def share(value: float | None) -> str:
    """Return a share."""
    return numbers.show(value, "ratio")


def spent(kwh: float | None, money: Mapping[str, float]) -> str:
    """Return energy and money, as far as they are known."""
    said = [] if kwh is None else [f"{hours(kwh)} kWh"]
    said += [numbers.money(value, currency) for currency, value in sorted(money.items())]
    return ", ".join(said)


def clock(ms: float) -> str:
    """Return a moment of the last days."""
    return time.strftime("%b %d %H:%M", time.localtime(ms / 1000))


def job(labels: Mapping[str, str]) -> str:
    """Return what a job is called: its process on its host, and the name that a scheduler gave."""
    pid = labels.get("job_key", "").partition("-")[0]
    return ", ".join(x for x in (f"pid {pid}" if pid else "", _owner(labels)) if x)


def _owner(labels: Mapping[str, str]) -> str:
    pod = "/".join(x for x in (labels.get("namespace"), labels.get("pod")) if x)
    slurm = f"slurm {labels['slurm_job']}" if labels.get("slurm_job") else ""
    return ", ".join(x for x in (pod, slurm) if x)


def _overview(found: FleetJson) -> Iterator[str]:
    gone = found.gone
    said = f"{_count(found.hosts)} answer"
    if gone:
        named = ", ".join(f"{x.host} ({clock(x.last_seen_ms)})" for x in gone[:MOST_NAMES])
        more = f" and {len(gone) - MOST_NAMES} more" if len(gone) > MOST_NAMES else ""
        said += f"; {len(gone)} no longer: {named}{more}"
    yield f"hosts  {printable(said)}"
    yield (
        f"GPUs   {_count(found.gpus)}, of which {_count(found.gpus_held_idle)} are held and"
        " have done nothing for half an hour"
    )
    lost, whole = found.lost_gpu_hours, found.job_gpu_hours
    part = None if lost is None or not whole else min(1.0, lost / whole)
    yield f"lost   {hours(lost)} GPU-hours, {share(part)} of the time of jobs"
    for held, words in (("true", "held"), ("false", "free")):
        time_of = found.held.get(held)
        if time_of is not None:
            of = hours(time_of.gpu_hours)
            cost = spent(time_of.kwh, time_of.money)
            idle = hours(time_of.idle_gpu_hours)
            said = f"{idle} of {of} GPU-hours idle{f': {cost}' if cost else ''}"
            yield f"{words}   {printable(said)}"
    known = [value for value in found.trend.idle_share if value is not None]
    if known:
        line = numbers.sparkline(_thinned(found.trend.idle_share), 1.0)
        yield f"idle   {line} now {share(known[-1])}"


def _thinned(values: list[float | None], most: int = 60) -> list[float | None]:
    size = -(-len(values) // most)
    parts = [values[i : i + size] for i in range(0, len(values), size)]
    known = [[value for value in part if value is not None] for part in parts]
    return [sum(part) / len(part) if part else None for part in known]


def _count(value: int | None) -> str:
    return numbers.DASH if value is None else f"{value:,}"


def _table(found: FleetJson, dimension: Dimension, rows: list[LostJson]) -> Iterator[str]:
    if not rows:
        yield f"by {dimension}: {printable(why_none(found, dimension))}"
    elif dimension == "job":
        titles = ["GPU-hours", "of its time", "mostly", "user", "team", "host", "run", "job"]
        yield table(titles, [_job(row) for row in rows], right="rr")
    elif dimension == "host":
        titles = ["GPU-hours", "of its time", "kWh, money", "host"]
        cells = [
            [hours(row.gpu_hours), share(row.share),
             spent(None if row.kwh is UNSET else row.kwh, row.money or {}), name(row, dimension)]
            for row in rows
        ]  # fmt: skip
        yield table(titles, cells, right="rr")
    else:
        of = "of all" if dimension == "cause" else "of its time"
        cells = [[hours(r.gpu_hours), share(r.share), name(r, dimension)] for r in rows]
        yield table(["GPU-hours", of, dimension], cells, right="rr")


def why_none(found: FleetJson, dimension: Dimension) -> str:
    """Return why there is no row of a kind."""
    watched = "nothing was lost" if found.lost_gpu_hours is not None else UNWATCHED
    return found.unknown.get(f"lost.{dimension}") or watched


def _job(row: LostJson) -> list[str]:
    labels = row.labels
    most = next(iter(row.causes or ()), "")
    return [
        hours(row.gpu_hours), share(row.share), cause_words(most) if most else numbers.DASH,
        labels.get("user", ""), labels.get("team", ""), labels.get("instance", ""),
        row.run or "", job(labels),
    ]  # fmt: skip


def name(row: LostJson, dimension: Dimension) -> str:
    """Return whose row that is."""
    label = "instance" if dimension == "host" else dimension
    value = row.labels.get(label, "")
    return cause_words(value) if dimension == "cause" and value else value or NOBODY


def is_of_nobody(rows: list[LostJson], dimension: Dimension) -> bool:
    """Return whether nothing there has such an owner: no teams, no namespaces."""
    return dimension not in {"job", "host"} and [name(r, dimension) for r in rows] == [NOBODY]


def _held_idle(found: FleetJson) -> Iterator[str]:
    if not found.held_idle:
        return
    yield "\nheld by a job, and nothing done for half an hour"
    cells = [
        [str(row.gpus), row.labels.get("user", ""), row.labels.get("instance", ""),
         job(row.labels)]
        for row in found.held_idle
    ]  # fmt: skip
    yield table(["GPUs", "user", "host", "job"], cells, right="r")


def _alerts(found: FleetJson) -> Iterator[str]:
    if not found.alerts:
        return
    yield "\nalerts that fire"
    cells = [
        [one.severity, one.alert, ", ".join(f"{k}={v}" for k, v in one.labels.items())]
        for one in found.alerts
    ]
    yield table(["", "alert", "of"], cells)
