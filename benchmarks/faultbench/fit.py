"""What came back of what each rule claimed, on the side that constants may be fitted to.

A rule claims a share of the time; its constants say what part of that a fix gives back. Each case
of the tune side in which the right rule gave a range is one point: the part that came back in
truth. The table shows how many there are, and the least, the middle and the most of them.

Run: .venv/bin/python -m benchmarks.faultbench.fit
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
PAIRS: Final = HERE.parent / "accuracy.json"
# Fewer cases fit nothing: a page with such a rule says so.
ENOUGH: Final = 3


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


def kept() -> dict[str, Behind]:
    """Return what is behind each rule, by what was judged last."""
    results = json.loads((HERE / "results.json").read_text())
    return behind(results["cases"], json.loads(PAIRS.read_text())["pairs"])


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
