"""Who lost how many GPU-hours: rows of an answer put together from several queries."""

from __future__ import annotations

from collections.abc import Callable

from whyidle.monitor.core.contracts.fleet import Dimension, LostJson
from whyidle.monitor.export.lost_time import JOB
from whyidle.monitor.fleet import queries
from whyidle.monitor.fleet.asking import Asking, rounded, share, worst


def lost(asking: Asking, dimension: Dimension) -> list[LostJson]:
    """Return who lost the most of one kind, the worst first."""
    labels = queries.LABELS[dimension]
    found: list[LostJson] = []
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
        found.append({
            "labels": names,
            "gpu_hours": round(row.value, 4),
            "share": share(row.value, of),
        })  # fmt: skip
    more: dict[Dimension, Callable[[Asking, list[LostJson]], None]] = {
        "job": _more_of_jobs, "host": _more_of_hosts,
    }  # fmt: skip
    if dimension in more:
        more[dimension](asking, found)
    return found


def _more_of_jobs(asking: Asking, rows: list[LostJson]) -> None:
    causes = asking.by("job.causes", *JOB, "cause")
    times = asking.by("job.time", *JOB)
    # A framework and a recording are learnt late: the series that has them counts.
    known: dict[tuple[str, ...], dict[str, str]] = {}
    for row in asking.rows("job.info"):
        said = {name: row.labels[name] for name in ("run", "framework") if row.labels.get(name)}
        known.setdefault(tuple(row.labels.get(x, "") for x in JOB), {}).update(said)
    for each in rows:
        key = tuple(each["labels"].get(name, "") for name in JOB)
        time_of = times.get(key)
        each["share"] = share(each["gpu_hours"], time_of)
        of_job = {cause: hours for (*job, cause), hours in causes.items() if tuple(job) == key}
        each["causes"] = {
            cause: round(hours, 4)
            for cause, hours in sorted(of_job.items(), key=lambda one: -one[1])
        }
        each["run"] = known.get(key, {}).get("run")
        each["framework"] = known.get(key, {}).get("framework")


def _more_of_hosts(asking: Asking, rows: list[LostJson]) -> None:
    times, energy = asking.by("host.time", "instance"), asking.by("host.energy", "instance")
    money = asking.by("host.money", "instance", "currency")
    for each in rows:
        host = each["labels"].get("instance", "")
        time_of = times.get((host,))
        each["share"] = share(each["gpu_hours"], time_of)
        each["kwh"] = rounded(energy.get((host,)))
        each["money"] = {name: round(sum_, 2) for (of, name), sum_ in money.items() if of == host}
