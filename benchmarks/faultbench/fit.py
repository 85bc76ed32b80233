"""What came back of what each rule claimed, on the side that constants may be fitted to.

A rule claims a share of the time; its constants say what part of that a fix gives back. Each case
of the tune side in which the right rule gave a range is one point: the part that came back in
truth. The table shows how many there are, and the least, the middle and the most of them.

Where in its range a gain is to be expected is one constant for all rules: a second table shows how
far each point of the ranges was from the gain, on both sides.

Run: .venv/bin/python -m benchmarks.faultbench.fit
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whyidle.monitor.core.finding import Gain

HERE: Final = Path(__file__).parent
PAIRS: Final = HERE.parent / "accuracy.json"
# Fewer cases fit nothing: a page with such a rule says so.
ENOUGH: Final = 3
# Points of a range, from its least factor to its most; ``Gain.expected`` is the middle of these.
POINTS: Final = tuple(n / 10 for n in range(11))


@dataclass(frozen=True, slots=True)
class Behind:
    """What stands behind the range of one rule."""

    pairs: int
    # Of each case: the least and the most that was claimed, and what came back, as shares.
    cases: tuple[tuple[float, float, float], ...] = ()

    @property
    def number(self) -> int:
        """All measurements."""
        return self.pairs + len(self.cases)

    @property
    def inside(self) -> int:
        """The cases of the bench whose gain lay in the range."""
        return sum(low <= back <= high for low, high, back in self.cases)

    @property
    def parts(self) -> list[float]:
        """What came back of the most that was claimed, in order."""
        return sorted(back / high for _, high, back in self.cases if high)


def behind(rows: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> dict[str, Behind]:
    """Return the measurements behind each rule that gives a range."""
    cases: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        if row["side"] == "tune" and row["is_fault"] and row["right_anywhere"]:
            for rule, claimed in _right(row):
                cases.setdefault(rule, []).append((*map(_lost, claimed), _lost(row["gain"][1])))
    counts: dict[str, int] = {}
    for pair in pairs:
        ranged = any(f["rule"] == pair["rule"] and f["speedup"] for f in pair["before"]["found"])
        if pair["measured"] and ranged:
            counts[pair["rule"]] = counts.get(pair["rule"], 0) + 1
    return {
        rule: Behind(counts.get(rule, 0), tuple(cases.get(rule, ())))
        for rule in sorted(cases.keys() | counts.keys())
    }


def _right(row: dict[str, Any]) -> Iterator[tuple[str, Sequence[float]]]:
    for rule, _, speedup in row["found"]:
        if rule in row["right"] and speedup:
            yield rule, speedup
            return


def _lost(speedup: float) -> float:
    return max(0.0, 1 - 1 / speedup)


def sure(rows: Sequence[dict[str, Any]], side: str) -> list[tuple[Gain, float]]:
    """Return the ranges of right rules that are surely above nothing, each with the true factor."""
    found = (
        (Gain(*map(_lost, claimed)), max(1.0, row["gain"][1]))
        for row in rows
        if row["side"] == side and row["is_fault"] and row["right_anywhere"]
        for _, claimed in _right(row)
    )
    return [(gain, true) for gain, true in found if gain.is_sure]


def off(gain: Gain, true: float, point: float) -> float:
    """Return how far a point of a range is from the true factor, as a logarithm."""
    low, high = (math.log(factor) for factor in gain.speedup)
    return abs(low + point * (high - low) - math.log(true))


def points(rows: Sequence[dict[str, Any]]) -> str:
    """Return how far each point of the ranges is from what came back, in Markdown."""
    sides = {side: sure(rows, side) for side in ("tune", "heldout")}
    heads = " | ".join(f"{side}, {len(some)} ranges" for side, some in sides.items())
    lines = [f"| point of the range | {heads} |", "|---|---|---|"]
    for point in POINTS:
        errors = [[off(*one, point) for one in some] for some in sides.values()]
        cells = (
            f"{math.exp(statistics.fmean(some)):.2f}x, half within"
            f" {math.exp(statistics.median(some)):.2f}x"
            for some in errors
        )
        lines.append(f"| {point:g} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def judged() -> list[dict[str, Any]]:
    """Return the rows that were judged last."""
    rows: list[dict[str, Any]] = json.loads((HERE / "results.json").read_text())["cases"]
    return rows


def kept() -> dict[str, Behind]:
    """Return what is behind each rule, by what was judged last."""
    return behind(judged(), json.loads(PAIRS.read_text())["pairs"])


def table(found: dict[str, Behind]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| rule | demo pairs | cases (tune) | gain inside | came back of the most claimed |",
        "|---|---|---|---|---|",
    ]
    for rule, each in found.items():
        parts = each.parts
        spread = f"{parts[0]:.0%}, {statistics.median(parts):.0%}, {parts[-1]:.0%}" if parts else ""
        few = "" if each.number >= ENOUGH else " (fewer than three in all)"
        inside = f"{each.inside} of {len(each.cases)}" if each.cases else ""
        lines.append(f"| `{rule}`{few} | {each.pairs} | {len(each.cases)} | {inside} | {spread} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(kept()))
    print(points(judged()))
