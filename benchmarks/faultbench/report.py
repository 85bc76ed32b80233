"""The rows of the bench in a few numbers, for each side, family and fault."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.faultbench.judge import UNKNOWN

Row = dict[str, Any]


def scored(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the scores of both sides."""
    return {
        side: of_rows([row for row in rows if row["side"] == side]) for side in ("tune", "heldout")
    }


def of_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the scores of some cases."""
    faults = [row for row in rows if row["is_fault"]]
    healthy = [row for row in rows if row["is_healthy"]]
    known = [row["unknown"] for row in rows if row["unknown"] is not None]
    # A range is judged where the right fault gave one.
    placed = [row for row in faults if row["right_line"] is not None]
    ranged = [row for row in faults if row["promised"]]
    return {
        "cases": len(faults),
        "healthy": len(healthy),
        "unclear": len(rows) - len(faults) - len(healthy),
        "families": len({row["family"] for row in rows}),
        "right_first": _share(faults, lambda r: r["right_first"]),
        "right_anywhere": _share(faults, lambda r: r["right_anywhere"]),
        "right_line": _share(placed, lambda r: r["right_line"]),
        "py_spy_line": _share(placed, lambda r: r["py_spy_line"]),
        "loud_false": _share(healthy, lambda r: bool(r["loud_false"])),
        "coverage": _share(ranged, lambda r: r["covered"]),
        "median_width": _median([r["width"] for r in ranged]),
        "interval_score": _mean([r["interval_score"] for r in ranged]),
        "unknown_over_15": _share(known, lambda share: share > UNKNOWN),
        "seconds_to_finding": _median([r["first_s"] for r in faults if r["first_s"] is not None]),
        "harmed": sum(not row["unharmed"] for row in rows),
    }


SHOWN: Final = {
    "cases": "faults",
    "healthy": "healthy",
    "unclear": "unclear",
    "right_first": "right first",
    "right_anywhere": "right anywhere",
    "right_line": "right line",
    "py_spy_line": "line by py-spy",
    "loud_false": "loud on healthy",
    "coverage": "gain inside",
    "median_width": "median hi/lo",
    "interval_score": "interval score",
    "unknown_over_15": "unknown above 15%",
    "seconds_to_finding": "seconds to it",
    "harmed": "harmed",
}


def scores_of(rows: Sequence[Row], before: Sequence[Row] = ()) -> str:
    """Return the scores by side, in Markdown. ``before``: the same of an earlier product."""
    earlier = [row | {"side": f"{row['side']}, before"} for row in before]
    return _table("side", [*earlier, *rows], lambda row: row["side"])


def each_of(rows: Sequence[Row], reasons: Mapping[str, str] | None = None) -> str:
    """Return the scores by family and fault, and every miss by its name, in Markdown.

    ``reasons``: why a case is missed, by its name.
    """
    known = reasons or {}
    misses = (f"- {case}{what}{'; ' * (case in known)}{known.get(case, '')}"
              for case, what in _misses(rows))  # fmt: skip
    parts = [
        _table("family", rows, lambda row: f"{row['family']} ({row['side']})"),
        _table("fault", rows, _fault),
        "Misses:\n",
        "\n".join(misses) or "none",
    ]
    return "\n".join(parts) + "\n"


def _fault(row: Row) -> str:
    if row["is_fault"]:
        return str(row["fault"])
    return "none" if row["is_healthy"] else "(unclear)"


def _table(name: str, rows: Sequence[Row], by: Callable[[Row], str]) -> str:
    lines = [" | ".join(["", name, *SHOWN.values(), ""]), "|---" * (len(SHOWN) + 1) + "|"]
    for key in sorted({by(row) for row in rows}):
        scores = of_rows([row for row in rows if by(row) == key])
        lines.append(" | ".join(["", key, *(_figure(k, scores[k]) for k in SHOWN), ""]))
    return "\n".join(line.strip() for line in lines) + "\n"


def _figure(key: str, value: float | None) -> str:
    if value is None:
        return ""
    is_share = key not in _NUMBERS
    return f"{value:.0%}" if is_share else f"{value:g}"


def _misses(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the name of a case and what is wrong with its answer."""
    for row in sorted(rows, key=lambda row: row["case"]):
        case, names = row["case"], ", ".join(f"`{rule}`" for rule in row.get("loud_false", ()))
        first = next((found for found in row["found"] if found[2] or found[1] != "info"), None)
        said = "nothing" if first is None else f"`{first[0]}` ({first[1]})"
        if not row["is_fault"]:
            if row["is_healthy"] and names:
                yield case, f": healthy, yet {names} loud"
        elif not row["right_first"]:
            later = ", the right one later" if row["right_anywhere"] else ""
            yield case, f" (costs {row['gain'][1]:.2f}x): {said} first{later}"
        else:
            if row["right_line"] is False:
                yield case, f": {said}, at another line"
            if row["covered"] is False:
                low, high = row["promised"]
                yield case, f": {low:.2f}-{high:.2f}x promised, costs {row['gain'][1]:.2f}x"


_NUMBERS: Final = {
    "cases", "healthy", "unclear", "median_width", "interval_score", "seconds_to_finding", "harmed",
}  # fmt: skip


def _share(rows: Sequence[Any], holds: Callable[[Any], bool]) -> float | None:
    return round(sum(map(holds, rows)) / len(rows), 4) if rows else None


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None
