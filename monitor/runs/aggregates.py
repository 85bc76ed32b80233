"""Sums over a recording of what its agents reported: what was compiled, what was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MOST = 20


@dataclass(frozen=True, slots=True)
class Compiled:
    """All compilations of one function from one line."""

    framework: str
    function: str
    count: int
    ns: int
    cached: int
    # The last that was given.
    reason: str | None
    # Where it was called from.
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class ReadBack:
    """All sampled reads of one line."""

    kind: str
    file: str
    line: int
    function: str
    count: int
    ns: int


def compiled(events: Iterable[Mapping[str, Any]]) -> tuple[Compiled, ...]:
    """Return the functions that took longest to compile, from single events and from sums."""
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for data in events:
        for each in data.get("functions", (data,)):
            place = tuple(each.get(name) for name in ("framework", "function", "file", "line"))
            found = sums.setdefault(place, [0, 0, 0, None])
            found[0] += each.get("count", 1)
            found[1] += each["ns"]
            found[2] += each["cached"]
            found[3] = each["reason"] or found[3]
    most = sorted(sums.items(), key=lambda item: item[1][1], reverse=True)[:MOST]
    return tuple(
        Compiled(framework, function, count, ns, cached, reason, file, line)
        for (framework, function, file, line), (count, ns, cached, reason) in most
    )


def reads(events: Iterable[Mapping[str, Any]]) -> tuple[ReadBack, ...]:
    """Return the lines that read most often."""
    sums: dict[tuple[str, str, int, str], list[int]] = {}
    for data in events:
        for each in data["places"]:
            place = each["kind"], each["file"], each["line"], each["function"]
            found = sums.setdefault(place, [0, 0])
            found[0] += each["count"]
            found[1] += each["ns"]
    most = sorted(sums.items(), key=lambda item: item[1], reverse=True)[:MOST]
    return tuple(ReadBack(*place, *totals) for place, totals in most)
