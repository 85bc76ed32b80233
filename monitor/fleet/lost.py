"""Who lost how many GPU-hours: rows of an answer put together from several queries."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from whyidle.monitor.core.contracts.fleet import Dimension, LostJson
from whyidle.monitor.export.lost_time import JOB
from whyidle.monitor.fleet import queries
from whyidle.monitor.fleet.asking import Asking, rounded, share, worst


def lost(asking: Asking, dimension: Dimension) -> list[LostJson]:
    """Return who lost the most of one kind, the worst first."""
    labels = queries.LABELS[dimension]
    found = []
    rows = worst(asking.rows(f"lost.{dimension}"))
    whole = sum(row.value for row in rows)
    times = asking.by(f"time.{dimension}", *labels)
    for row in rows:
        names = {name: value for name in labels if (value := row.labels.get(name))}
        # Of a cause: its share of all that is lost.
        of = (
            whole
            if dimension == "cause"
            else times.get(tuple(row.labels.get(x, "") for x in labels))
        )
        hours = round(row.value, 4)
        found.append(LostJson(labels=names, gpu_hours=hours, share=share(row.value, of)))
    if dimension == "job":
        return list(_more_of_jobs(asking, found))
    return list(_more_of_hosts(asking, found)) if dimension == "host" else found


def _more_of_jobs(asking: Asking, rows: list[LostJson]) -> Iterator[LostJson]:
    causes = asking.by("job.causes", *JOB, "cause")
    times = asking.by("job.time", *JOB)
    # A framework and a recording are learnt late: the series that has them counts.
    known: dict[tuple[str, ...], dict[str, str]] = {}
    for row in asking.rows("job.info"):
        said = {name: row.labels[name] for name in ("run", "framework") if row.labels.get(name)}
        known.setdefault(tuple(row.labels.get(x, "") for x in JOB), {}).update(said)
    for each in rows:
        key = tuple(each.labels.get(name, "") for name in JOB)
        of_job = {cause: hours for (*job, cause), hours in causes.items() if tuple(job) == key}
        most = sorted(of_job.items(), key=lambda one: -one[1])
        yield replace(
            each,
            share=share(each.gpu_hours, times.get(key)),
            causes={cause: round(hours, 4) for cause, hours in most},
            run=known.get(key, {}).get("run"),
            framework=known.get(key, {}).get("framework"),
        )


def _more_of_hosts(asking: Asking, rows: list[LostJson]) -> Iterator[LostJson]:
    times, energy = asking.by("host.time", "instance"), asking.by("host.energy", "instance")
    money = asking.by("host.money", "instance", "currency")
    for each in rows:
        host = each.labels.get("instance", "")
        yield replace(
            each,
            share=share(each.gpu_hours, times.get((host,))),
            kwh=rounded(energy.get((host,))),
            money={name: round(sum_, 2) for (of, name), sum_ in money.items() if of == host},
        )
