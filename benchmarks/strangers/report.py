"""The rows of the bench in the few numbers that count, for each side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

Row = Mapping[str, Any]


def scored(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the scores of both sides."""
    return {side: _of([r for r in rows if r["side"] == side]) for side in ("tune", "heldout")}


def _of(rows: Sequence[Row]) -> dict[str, Any]:
    faulty = [row for row in rows if not row["healthy"]]
    healthy = [row for row in rows if row["healthy"]]
    loud = [each for row in rows for each in row["loud"]]
    followed = [each for each in loud if each["outcome"] != "not measured"]
    stepped = [row for row in rows if row["steps"]["true"]]
    return {
        "programs": len(faulty),
        "healthy": len(healthy),
        "acceptable": _share(faulty, lambda row: row["acceptable"]),
        "loud": len(loud),
        "followed": len(followed),
        "gains": _share(followed, lambda each: each["outcome"] == "gains"),
        "harmful": _share(followed, lambda each: each["outcome"] == "harmful"),
        "empty": _share(followed, lambda each: each["outcome"] == "empty"),
        "unspoken": _median(row["unspoken"] for row in faulty),
        "missed": _share(faulty, lambda row: bool(row["missed"])),
        "healthy_loud": sum(not row["acceptable"] for row in healthy),
        "steps_right": _share(stepped, lambda row: row["steps"]["right"]),
        "width": _median(width for row in rows for width in row["widths"]),
        "monitor_mean": _median(row["weight"]["mean"] for row in rows),
        "monitor_worst": max((row["weight"]["worst"] for row in rows), default=None),
        "lost_in_worst": _lost([row["weight"]["seconds"] for row in rows]),
        "harmed": sum(not row["unharmed"] for row in rows),
    }


SHOWN: Final = {
    "programs": "with a fault",
    "healthy": "healthy",
    "acceptable": "first statement acceptable",
    "loud": "loud",
    "followed": "followed",
    "gains": "gains its low end",
    "harmful": "harmful",
    "empty": "empty",
    "unspoken": "unspoken part",
    "missed": "a gain of 1.15x missed",
    "healthy_loud": "healthy, loud",
    "steps_right": "steps right",
    "width": "median hi/lo",
    "monitor_mean": "monitor, cores",
    "monitor_worst": "worst second",
    "lost_in_worst": "job lost when it takes most",
    "harmed": "harmed",
}
_NUMBERS: Final = {"programs", "healthy", "loud", "followed", "healthy_loud", "width", "harmed"}


def scores_of(rows: Sequence[Row]) -> str:
    """Return the scores of both sides, in Markdown."""
    head = " | ".join(["", "side", *SHOWN.values(), ""]).strip()
    lines = [head, "|---" * (len(SHOWN) + 1) + "|"]
    for side, scores in scored(rows).items():
        figures = [_figure(name, scores[name]) for name in SHOWN]
        lines.append(" | ".join(["", side, *figures, ""]).strip())
    return "\n".join(lines) + "\n"


def at_first_sight(seen: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Return how many programs that no rule had been fitted to were judged right, by day."""
    lines = [
        "",
        "| never seen before, on | programs | right | wrong | harmful |",
        "|---|---|---|---|---|",
    ]
    for day, found in seen.items():
        numbers = [len(found[name]) for name in ("right", "wrong", "harmful")]
        whole = sum(numbers)
        each = [f"{numbers[0]} ({numbers[0] / max(1, whole):.0%})", *map(str, numbers[1:])]
        lines.append(f"| {day} | {whole} | {' | '.join(each)} |")
    return "\n".join(lines)


def programs(rows: Sequence[Row], truths: Mapping[str, str]) -> str:
    """Return each program with what is so and what is said, in Markdown."""
    lines = ["| program | side | what is so | said first | what following it gave |"]
    lines.append("|---|---|---|---|---|")
    lines += [_row(row, truths) for row in sorted(rows, key=lambda row: row["case"])]
    return "\n".join(lines) + "\n"


def _row(row: Row, truths: Mapping[str, str]) -> str:
    state = "healthy: " if row["healthy"] else ""
    right = "" if row["acceptable"] else "**no**: "
    name, truth = row["case"], truths.get(row["case"], "")
    return f"| `{name}` | {row['side']} | {state}{truth} | {right}{_said(row)} | {_gave(row)} |"


def _said(row: Row) -> str:
    if row["first"] is None:
        return row["verdict"] or "nothing"
    rule, severity, speedup = row["first"]
    return f"`{rule}` {severity}" + (f" {speedup[0]:.2f}-{speedup[1]:.2f}x" if speedup else "")


def _gave(row: Row) -> str:
    parts: Iterator[str] = (
        f"`{each['rule']}` "
        + (each["outcome"] if each["gain"] is None else f"{each['gain'][1]:.2f}x {each['outcome']}")
        for each in row["loud"]
    )
    missed = (f"missed: {each}" for each in row["missed"])
    return "; ".join([*parts, *missed])


def _lost(weights: Iterable[Sequence[Sequence[float]]]) -> float | None:
    """Return what the median job loses in the second in which the monitor takes the most.

    A program may pause by itself in any second: of all programs in the same one.
    """
    seconds = zip_longest(*weights)
    known = [[each for each in second if each is not None] for second in seconds]
    if not known:
        return None
    most = max(known, key=lambda second: statistics.fmean(taken for taken, _ in second))
    return round(1 - statistics.median(pace for _, pace in most), 4)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:g}" if name in _NUMBERS else f"{value:.0%}"


def _share(some: Sequence[Any], holds: Callable[[Any], bool]) -> float | None:
    return round(sum(map(holds, some)) / len(some), 4) if some else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None
