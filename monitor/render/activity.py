"""What the devices did: kernels, copies, collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.monitor.core.contracts.trace import (
    ActivityJson,
    CopyJson,
    CountedJson,
    KernelsJson,
    LaunchingJson,
)
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.kernel_names import short_name
from whyidle.monitor.render.numbers import DASH, scaled, size


def kernels(answer: ActivityJson, top: int, width: int) -> list[RenderableType]:
    """Return the kernels that took the most time, and figures about all of them."""
    parts: list[RenderableType] = []
    for found, title in (
        (answer.get("top_kernels"), "kernel"),
        (answer.get("top_operators"), "operator"),
    ):
        if found and top:
            parts.append(_ranking(found[:top], title, width))
    if facts := [*_of_kernels(answer.get("kernels")), *_of_launches(answer.get("launching"))]:
        parts.append(Text(f"{'; '.join(facts)}.", "dim"))
    return parts


def _ranking(found: Sequence[CountedJson], title: str, width: int) -> Table:
    columns = [
        Column("time", [clock(k["total_ns"]) for k in found]),
        Column("calls", [f"{k['count']:,}" for k in found], spare=1),
        Column("each", [_each(k) for k in found], spare=2),
        Column(title, [short_name(k["name"]) for k in found]),
    ]
    return grid(columns, width)


def _each(counted: CountedJson) -> str:
    return clock(counted["total_ns"] / counted["count"]) if counted["count"] else DASH


def _of_kernels(totals: KernelsJson | None) -> Iterator[str]:
    if not totals or not totals["count"]:
        return
    short, cores = totals["short"], totals["tensor_core_share"]
    kernels = "1 kernel" if totals["count"] == 1 else f"{totals['count']:,} kernels"
    yield f"{kernels} took {clock(totals['total_ns'])}"
    if short["count"]:
        few = share(short["count"], totals["count"])
        yield f"{few} are shorter than {short['below_ns'] / 1000:g} µs"
    if cores is not None:
        least, most = (share(part, 1) for part in cores)
        ran = least if least == most else f"{least} to {most}"
        yield f"tensor cores had {ran} of that time"


def _of_launches(launches: LaunchingJson | None) -> Iterator[str]:
    if not launches or not launches["calls"]:
        return
    if (rate := launches["calls_per_second"]) is not None:
        yield f"{scaled(rate, '')} launches a second".replace("  ", " ")
    if (delay := launches["delay_median_ns"] or 0) > 0:
        yield f"work starts {clock(delay)} after its launch (median)"


def copies(answer: ActivityJson, width: int) -> list[RenderableType]:
    """Return the copies by direction and memory kind, with their speed."""
    found = answer.get("copies") or []
    columns = [
        Column("time", [clock(c["total_ns"]) for c in found]),
        Column("calls", [f"{c['count']:,}" for c in found], spare=1),
        Column("bytes", [DASH if c["bytes"] is None else size(c["bytes"]) for c in found], spare=2),
        Column("speed", [_speed(c["gb_per_s"]) for c in found], spare=3),
        Column("copies", [_kind(c) for c in found]),
    ]
    return [grid(columns, width)] if found else []


def _speed(gb_per_s: float | None) -> str:
    return DASH if gb_per_s is None else f"{gb_per_s:.1f} GB/s"


def _kind(copy: CopyJson) -> str:
    # Device memory goes without saying; only host memory has kinds.
    memory = copy["memory"] if copy.get("memory") not in {None, "device", "unknown"} else ""
    return printable(f"{copy['direction']}{memory and f', {memory}'}")


def collectives(answer: ActivityJson, width: int) -> list[RenderableType]:
    """Return the collectives by kind and data type."""
    found = answer.get("collectives") or []
    return [_ranking(found, "collective", width)] if found else []
