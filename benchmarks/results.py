"""A table of figures beside their bars, as two of the benchmarks print it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the bar is reached."""
        if self.bar is None:
            return ""
        return "ok" if (self.value >= self.bar) == self.at_least or self.value == self.bar else "NO"


def print_results(results: Iterable[Result], *, as_json: bool) -> None:
    """Print the table, or its JSON."""
    if as_json:
        rows = [{"what": r.what, "value": r.value, "unit": r.unit, "bar": r.bar} for r in results]
        print(json.dumps({"schema": 1, "results": rows}))
        return
    for r in results:
        bar = "" if r.bar is None else f"{'>=' if r.at_least else '<='} {r.bar:g}"
        print(f"{r.what:<36} {r.value:10.3f} {r.unit:<11} {bar:>6}  {r.verdict}")
