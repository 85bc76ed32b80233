"""The ranks of a job on a screen: who is late, and the worst few of however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from statistics import median
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from whyidle.monitor.core.contracts.trace import RankJson, RanksJson, StragglerJson
from whyidle.monitor.core.slices import LOOKS, Slice
from whyidle.monitor.render.budget import clock, share
from whyidle.monitor.render.devices import total_of
from whyidle.monitor.render.escape import printable
from whyidle.monitor.render.grid import Column, grid
from whyidle.monitor.render.numbers import DASH, size

# So many ranks are shown one by one; of more only the latest, and what the one in the middle does.
LINES: Final = 8
WORST: Final = 5
# Kinds of communication to list.
KINDS: Final = 5
# Clocks that are nearer than this need no word.
_SKEW_NS: Final = 1_000_000
# Nor is a difference between ranks that is smaller than this.
_UNEVEN: Final = 1.05


def ranks(found: RanksJson, width: int) -> list[RenderableType]:
    """Return the parts of the page about the ranks."""
    parts: list[RenderableType] = [Text(verdict(found), "bold")]
    if found["each"]:
        parts.append(_table(found["each"], width))
    if found["communication"]:
        parts.append(_exchanges(found, width))
    if said := [*_facts(found)]:
        parts.append(Text(" ".join(said), "dim"))
    if found["warnings"]:
        parts.append(Group(*(Text(f"! {printable(w)}", "yellow") for w in found["warnings"])))
    return parts


def verdict(found: RanksJson) -> str:
    """Say which rank is late, how much, and at what; or why none is named."""
    late = found["straggler"]
    if late is None:
        reason = found["unknown"].get("straggler") or "nothing shows one"
        return f"No rank is named as late: {printable(reason)}."
    name, of = _name(late["rank"], late["host"], late["file"]), "each step"
    lost = f"{_range(late['share'])} of {of}"
    if found["step_ns"]:
        low, high = map(clock, late["late_ns"])
        lost += f" ({low if low == high else f'{low} to {high}'})"
    text = f"{name} keeps the others waiting for {lost}: it comes last to {late['last']:.0%}"
    return f"{text} of the collectives{_at(late)}.{_alike(late)}{_why(late)}"


def _name(rank: int | None, host: str | None, file: str) -> str:
    name = printable(file) if rank is None else f"Rank {rank}"
    return f"{name} on {printable(host)}" if host else name


def _range(ends: Sequence[float]) -> str:
    low, high = (share(end, 1) for end in ends)
    return low if low == high else f"{low} to {high}"


def _at(late: StragglerJson) -> str:
    kinds = late["collectives"]
    first = next(iter(kinds), None)
    if first is None or len(kinds) < 2 or kinds[first] < 0.5:
        return ""
    return f", and {kinds[first]:.0%} of that is at {_kind(*_parsed(first))}"


def _alike(late: StragglerJson) -> str:
    names = [str(rank) for rank in late["alike"] if rank is not None]
    if not names:
        return ""
    shown = ", ".join(names[:KINDS]) + (", ..." if len(names) > KINDS else "")
    return f" As late {'is rank' if len(names) == 1 else 'are ranks'} {shown}."


def _why(late: StragglerJson) -> str:
    why = late["why"]
    if why is None:
        return ""
    text = f" It takes {clock(why['ns'])} a step more for {LOOKS[Slice(why['slice'])].words}"
    place = why["where"]
    if place is None:
        return f"{text}."
    file = printable(PurePath(place["file"]).name)
    return f"{text}: {printable(place['function'])}() of {file}:{place['line']}."


def _parsed(label: str) -> tuple[str, int | None]:
    kind, _, length = label.partition(", ")
    return kind, int(length.split()[0]) if length else None


def _kind(kind: str, length: int | None) -> str:
    return kind if length is None else f"{kind} of {size(length)}"


def _table(each: Sequence[RankJson], width: int) -> RenderableType:
    shown = list(each)
    if len(each) > LINES:
        shown = sorted(each, key=lambda rank: -(rank["late"] or [0, 0])[1])[:WORST]
    several = len({rank["file"] for rank in each}) < len(each)
    rows = [_cells(rank, several=several) for rank in shown]
    if len(each) > LINES:
        rows.append(_middle(each))
    columns = list(zip(*rows, strict=True))
    hosts = len({rank["host"] for rank in each}) > 1
    titles = ("late", "waits", "last to", "compute", "step", "rank")
    spares = (0, 1, 2, 3, 4, 0)
    names = [f"{n}, {h}" if h and hosts else n for n, h in zip(columns[5], columns[6], strict=True)]
    cells = [*columns[:5], names]
    return grid(
        [Column(t, c, spare=s) for t, c, s in zip(titles, cells, spares, strict=True)], width
    )


def _cells(rank: RankJson, *, several: bool) -> tuple[str, ...]:
    step = rank["steps"]["median_ns"]
    name = rank["file"] if rank["rank"] is None else f"rank {rank['rank']}"
    if rank["rank"] is None and several:
        name = f"{name}, {rank['kind'].upper()} {rank['device']}"
    return (
        DASH if rank["late"] is None else share(sum(rank["late"]) / 2, 1),
        DASH if rank["waits"] is None else share(rank["waits"][1], 1),
        DASH if rank["last"] is None else f"{rank['last']:.0%}",
        share(rank["budget"]["slices"][Slice.COMPUTE], total_of(rank["budget"])),
        DASH if step is None else clock(step),
        printable(name),
        printable(rank["host"] or ""),
    )


def _middle(each: Sequence[RankJson]) -> tuple[str, ...]:
    """The median of all ranks, in each column by itself."""
    late = [sum(rank["late"]) / 2 for rank in each if rank["late"] is not None]
    waits = [rank["waits"][1] for rank in each if rank["waits"] is not None]
    last = [rank["last"] for rank in each if rank["last"] is not None]
    steps = [ns for rank in each if (ns := rank["steps"]["median_ns"]) is not None]
    compute = [
        rank["budget"]["slices"][Slice.COMPUTE] / total
        for rank in each
        if (total := total_of(rank["budget"]))
    ]
    return (
        share(median(late), 1) if late else DASH,
        share(median(waits), 1) if waits else DASH,
        f"{median(last):.0%}" if last else DASH,
        share(median(compute), 1) if compute else DASH,
        clock(median(steps)) if steps else DASH,
        f"median of {len(each)} ranks",
        "",
    )


def _exchanges(found: RanksJson, width: int) -> RenderableType:
    rows = found["communication"][:KINDS]
    whole = [
        DASH if r["waiting_ns"] is None else share(r["waiting_ns"], r["total_ns"]) for r in rows
    ]
    speed = [DASH if r["gb_per_s"] is None else f"{r['gb_per_s']:.1f} GB/s" for r in rows]
    return grid(
        [
            Column("time", [clock(r["total_ns"]) for r in rows]),
            Column("waiting", whole),
            Column("calls", [f"{r['count']:,}" for r in rows], spare=1),
            Column("ranks", [f"{r['ranks']}" for r in rows], spare=2),
            Column("speed", speed, spare=3),
            Column("collective", [_kind(r["kind"], r["bytes"]) for r in rows]),
        ],
        width,
    )


def _facts(found: RanksJson) -> Iterator[str]:
    uneven = found["imbalance"]
    if uneven is not None and uneven["most_over_mean"] >= _UNEVEN:
        busiest = "" if uneven["busiest"] is None else f" (rank {uneven['busiest']})"
        more = f"{uneven['most_over_mean'] - 1:.0%}"
        yield f"The busiest rank computes {more} more than the mean{busiest}."
    skew = found["skew"]
    if skew is not None and skew["most_ns"] >= _SKEW_NS:
        apart = clock(skew["most_ns"])
        yield f"Their clocks are up to {apart} apart: set right by what they shared."
