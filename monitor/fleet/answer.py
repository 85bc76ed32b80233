"""What a fleet loses, in one answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from whyidle.monitor.core.contracts.fleet import (
    AlertJson,
    Dimension,
    FleetJson,
    GoneHostJson,
    GpuTimeJson,
    HeldIdleJson,
    TrendJson,
)
from whyidle.monitor.export.lost_time import JOB
from whyidle.monitor.fleet import queries
from whyidle.monitor.fleet.asking import Asking, rounded, worst
from whyidle.monitor.fleet.lost import lost
from whyidle.monitor.fleet.notes import notes
from whyidle.monitor.fleet.prometheus import Prometheus, Row, selector
from whyidle.monitor.fleet.queries import DIMENSIONS, Query, Source

# For all of it; what is not answered by then is left out.
ALL_SECONDS: Final = 40.0
TREND_POINTS: Final = 120
# Of a shorter time the rules have too few sums.
RULES_FROM_SECONDS: Final = 3600
_ORDER: Final = {"critical": 0, "warning": 1}


def ask(
    server: Prometheus,
    seconds: int,
    dimensions: Sequence[Dimension] = DIMENSIONS,
    source: Source | None = None,
) -> FleetJson:
    """Ask what a fleet has lost; a ``Problem`` says why nobody answers.

    ``source``: where sums come from; else from the rules, where they run.
    """
    # Without this one there is no use in asking more.
    before = time.time()
    clock = server.now(queries.CLOCK.text)
    took = time.time() - before
    now = clock.rows[0].value if clock.rows else before
    step = max(60.0, float(-(-seconds // TREND_POINTS)))
    asking = Asking(server, seconds, time.monotonic() + ALL_SECONDS, step, now)
    if source is None:
        asking.ask([queries.RULES_RUN])
        has_rules = bool(asking.one("rules")) and seconds >= RULES_FROM_SECONDS
        source = "rules" if has_rules else "counters"
    asking.ask(queries.main(dimensions, source))
    asking.ask(_of_theworst(asking, source))
    # It looked at its clock at some moment while we waited.
    ahead = round(now - before - took / 2, 1) if clock.rows else None
    found = _fleet(asking, dimensions, source, ahead)
    found.notes.extend(notes(asking, found, took))
    return found


def _of_theworst(asking: Asking, source: Source) -> list[Query]:
    jobs, hosts, gone = (asking.rows(x) for x in ("lost.job", "lost.host", "gone"))
    found: list[Query] = []
    if jobs:
        keys = selector(**{name: [row.labels.get(name, "") for row in jobs] for name in JOB})
        found += queries.of_jobs(keys, source)
    if hosts:
        names = selector(instance=[row.labels.get("instance", "") for row in hosts])
        found += queries.of_hosts(names, source)
    if gone:
        names = selector(instance=[row.labels.get("instance", "") for row in gone])
        found += queries.of_gone(names)
    return found


def _fleet(
    asking: Asking, dimensions: Sequence[Dimension], source: Source, ahead: float | None
) -> FleetJson:
    hosts, gpus, idle = (asking.one(x) for x in ("hosts", "gpus", "gpus_held_idle"))
    return FleetJson(
        server=asking.server.url,
        now_ms=round(asking.now * 1000),
        clock_ahead_s=ahead,
        seconds=asking.seconds,
        source=source,
        hosts=_whole(hosts),
        gone=_gone(asking),
        gpus=_whole(gpus),
        gpus_held_idle=_whole(idle),
        held=_held(asking),
        lost_gpu_hours=rounded(_whole_loss(asking)),
        job_gpu_hours=rounded(asking.one("job_gpu_hours")),
        lost={dimension: lost(asking, dimension) for dimension in dimensions},
        held_idle=[
            HeldIdleJson(labels=dict(row.labels), gpus=round(row.value))
            for row in worst(asking.rows("held_idle"))
        ],
        alerts=_alerts(asking.rows("alerts")),
        trend=_trend(asking),
        notes=[],
        unknown=asking.unknown,
    )


def _whole_loss(asking: Asking) -> float | None:
    """Return what all jobs have lost; of no job nothing is known."""
    causes = asking.rows("lost.cause")
    if "lost.cause" not in asking.answers or not (causes or asking.one("job_gpu_hours")):
        return None
    return sum(row.value for row in causes)


def _gone(asking: Asking) -> list[GoneHostJson]:
    """Return the hosts that no longer answer, the last one first."""
    seen = {row.labels.get("instance", ""): row.points[-1][0] for row in asking.rows("gone.seen")}
    hosts = {row.labels.get("instance", "") for row in asking.rows("gone")}
    # One that came and went within a step was there a moment ago.
    last = {host: round(1000 * seen.get(host, asking.now)) for host in hosts}
    return [
        GoneHostJson(host=host, last_seen_ms=at)
        for host, at in sorted(last.items(), key=lambda one: (-one[1], one[0]))
    ]


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _held(asking: Asking) -> dict[str, GpuTimeJson]:
    idle, energy = asking.by("held.idle", "held"), asking.by("held.energy", "held")
    money = asking.by("held.money", "held", "currency")
    return {
        held: GpuTimeJson(
            gpu_hours=round(hours, 4),
            idle_gpu_hours=rounded(idle.get((held,))),
            kwh=rounded(energy.get((held,))),
            money={name: round(sum_, 2) for (of, name), sum_ in money.items() if of == held},
        )
        for (held,), hours in sorted(asking.by("held.time", "held").items())
    }


def _alerts(rows: Iterable[Row]) -> list[AlertJson]:
    hidden = {"__name__", "alertname", "alertstate", "severity", "job"}
    found = [
        AlertJson(
            alert=row.labels.get("alertname", ""),
            severity=row.labels.get("severity", ""),
            labels={k: v for k, v in sorted(row.labels.items()) if k not in hidden},
        )
        for row in rows
    ]
    return sorted(
        found,
        key=lambda one: (_ORDER.get(one.severity, 2), one.alert, *one.labels.values()),
    )


def _trend(asking: Asking) -> TrendJson:
    start, end = asking.moments
    times = [start + i * asking.step for i in range(round((end - start) / asking.step) + 1)]

    def at(row: Row | None) -> list[float | None]:
        known = {} if row is None else {round(at): value for at, value in row.points}
        return [known.get(round(moment)) for moment in times]

    share, hosts = (next(iter(asking.rows(f"trend.{x}")), None) for x in ("idle_share", "hosts"))
    return TrendJson(
        times_ms=[round(moment * 1000) for moment in times],
        idle_share=at(share),
        hosts=[_whole(value) for value in at(hosts)],
        lost_gpus={row.labels.get("cause", ""): at(row) for row in asking.rows("trend.lost_gpus")},
    )
