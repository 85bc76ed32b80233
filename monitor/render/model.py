"""What a job trains, with what, and on what; a job may claim anything about itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from whyidle.monitor.recording.snapshot import Member, Snapshot
from whyidle.monitor.render import numbers
from whyidle.monitor.render.escape import printable

# Length of a name that the job chose, and how many kinds of one thing are named.
LONGEST: Final = 40
FEW: Final = 2

Facts = Mapping[str, Any]
# By the name of the probe.
Frameworks = Mapping[str, Facts]


def model(snapshot: Snapshot) -> str | None:
    """Return what is trained, as the frameworks of the lowest rank report it."""
    return of_frameworks(best(x.framework for x in sorted(snapshot.members, key=_rank)))


def _rank(member: Member) -> float:
    return float("inf") if member.rank is None else member.rank


def best(known: Iterable[Frameworks]) -> Frameworks:
    """Return the report of the first process that knows its model, or that reports anything."""
    found = [each for each in known if any(each.values())]
    knows = (each for each in found if any(facts.get("model") for facts in each.values()))
    return next(knows, found[0] if found else {})


def of_frameworks(frameworks: Frameworks) -> str | None:
    """Return what is trained, with what and on what: each fact once, unknown ones left out."""
    facts: dict[str, Any] = {}
    for each in frameworks.values():
        facts |= {name: value for name, value in each.items() if value is not None}
    parts = [*_model(facts), *_feed(facts), *_spread(facts), *_frameworks(frameworks)]
    return ", ".join(parts) or None


def _model(facts: Facts) -> Iterator[str]:
    name, count = facts.get("model"), _number(facts.get("parameters"))
    kinds = _kinds(facts.get("dtypes"))
    if isinstance(name, str) and name:
        yield named(name)
    if count is not None:
        several = "parameter" if count == 1 else "parameters"
        yield f"{numbers.scaled_tightly(count)} {several}{f' in {kinds}' if kinds else ''}"
    autocast = facts.get("autocast")
    if isinstance(autocast, list) and autocast:
        yield f"autocast to {' and '.join(named(str(kind)) for kind in autocast[:FEW])}"


def _feed(facts: Facts) -> Iterator[str]:
    if (batch := _number(facts.get("batch_size"))) is not None:
        yield f"batch {batch}"
    loaders = facts.get("loaders")
    found = [x for x in loaders if isinstance(x, dict)] if isinstance(loaders, list) else []
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        yield f"loader ({_loader(found[0])}){more}"


def _loader(loader: Facts) -> str:
    workers = _number(loader.get("workers"))
    parts = ["workers unknown" if workers is None else f"{workers} worker{'s' * (workers != 1)}"]
    if loader.get("pin_memory") is True:
        parts.append("pinned")
    if (ahead := _number(loader.get("prefetch_factor"))) is not None and workers:
        parts.append(f"prefetch {ahead}")
    return ", ".join(parts)


def _spread(facts: Facts) -> Iterator[str]:
    way, size = facts.get("parallel"), _number(facts.get("world_size"))
    if isinstance(way, str) and way:
        yield named(way) + (f" of {size}" if size is not None and size > 1 else "")
    used, there = _number(facts.get("devices_used")), _number(facts.get("devices"))
    if used is not None and there is not None and used < there:
        yield f"{used} of {there} devices in use"


def _frameworks(frameworks: Frameworks) -> Iterator[str]:
    for name, facts in frameworks.items():
        said = [x for x in (facts.get("version"), facts.get("backend")) if isinstance(x, str)]
        if said:
            yield " ".join([named(name), *(("on " * n) + named(x) for n, x in enumerate(said))])


def _kinds(dtypes: object) -> str:
    """Return the data types of the parameters, the most frequent first."""
    if not isinstance(dtypes, dict):
        return ""
    found = {named(str(k)): n for k, v in dtypes.items() if (n := _number(v)) is not None}
    most = sorted(found, key=lambda name: -found[name])
    more = f" and {len(most) - FEW} more" if len(most) > FEW else ""
    return " and ".join(most[:FEW]) + more


def _number(value: object) -> int | None:
    """Return the value if it is a sane count: a job may report anything."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63
    return int(value) if sound and isinstance(value, int | float) else None


def named(text: str) -> str:
    """Return a name that a job chose, shortened and safe for a screen."""
    said = printable(text[:LONGEST])
    return said if len(text) <= LONGEST else f"{said}…"
