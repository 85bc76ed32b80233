"""The rows of the bench in a few numbers, for each side, family and fault."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

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
    healthy = [row for row in rows if not row["is_fault"]]
    known = [row["unknown"] for row in rows if row["unknown"] is not None]
    # A range is judged where the right fault gave one.
    ranged = [row for row in faults if row["promised"]]
    return {
        "cases": len(faults),
        "healthy": len(healthy),
        "families": len({row["family"] for row in rows}),
        "right_first": _share(faults, lambda r: r["right_first"]),
        "right_anywhere": _share(faults, lambda r: r["right_anywhere"]),
        "right_line": _share(faults, lambda r: r["right_line"]),
        "py_spy_line": _share(faults, lambda r: r["py_spy_line"]),
        "loud_false": _share(healthy, lambda r: bool(r["loud_false"])),
        "coverage": _share(ranged, lambda r: r["covered"]),
        "median_width": _median([r["width"] for r in ranged]),
        "interval_score": _mean([r["interval_score"] for r in ranged]),
        "unknown_over_15": _share(known, lambda share: share > UNKNOWN),
        "seconds_to_finding": _median([r["first_s"] for r in faults if r["first_s"] is not None]),
        "harmed": sum(not row["unharmed"] for row in rows),
    }


def _share(rows: Sequence[Any], holds: Callable[[Any], bool]) -> float | None:
    return round(sum(map(holds, rows)) / len(rows), 4) if rows else None


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None
