"""Many queries at once to one server; each may fail for itself."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from whyidle.monitor.core.errors import Problem
from whyidle.monitor.fleet import queries
from whyidle.monitor.fleet.prometheus import Answer, Prometheus, Row
from whyidle.monitor.fleet.queries import Query

# As many as a small server answers at once.
AT_ONCE: Final = 4
TOO_SLOW: Final = "not asked: the server was too slow with the rest"


@dataclass(slots=True)
class Asking:
    """One answer while it comes together."""

    server: Prometheus
    seconds: int
    until: float
    step: float
    # By the server's clock.
    now: float = 0.0
    answers: dict[str, Answer] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def ask(self, asked: Iterable[Query]) -> None:
        """Ask several at once; one that fails costs its own part."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for query, found in pool.map(lambda one: (one, self._one(one)), tuple(asked)):
                if isinstance(found, Answer):
                    self.answers[query.part] = found
                else:
                    self.unknown[query.part] = found

    def _one(self, query: Query) -> Answer | str:
        left = self.until - time.monotonic()
        if left <= 0:
            return TOO_SLOW
        server = replace(self.server, seconds=min(self.server.seconds, left))
        text = queries.filled(query.text, self.seconds, self.step)
        try:
            if query.is_trend:
                return server.over(text, *self.moments, self.step)
            return server.now(text)
        except Problem as problem:
            return problem.what

    @property
    def moments(self) -> tuple[float, float]:
        """The first and the last of a trend, at whole steps: a server keeps answers by these."""
        end = self.now // self.step * self.step
        return end - (self.seconds // self.step) * self.step, end

    def rows(self, part: str) -> tuple[Row, ...]:
        """Return what a query found."""
        return self.answers[part].rows if part in self.answers else ()

    def one(self, part: str) -> float | None:
        """Return the only value that a query found."""
        found = self.rows(part)
        return found[0].value if found else None

    def by(self, part: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return what a query found, by labels."""
        return {
            tuple(row.labels.get(label, "") for label in labels): row.value
            for row in self.rows(part)
        }


def worst(rows: Iterable[Row]) -> list[Row]:
    """Return rows, the largest value first; some servers give the largest few in no order."""
    return sorted(rows, key=lambda row: (-row.value, sorted(row.labels.items())))


def rounded(value: float | None) -> float | None:
    """Return a sum without digits that mean nothing."""
    return None if value is None else round(value, 4)


def share(part: float, whole: float | None) -> float | None:
    """Return a part of a whole; sums of two queries may differ a little."""
    return None if not whole else round(min(1.0, part / whole), 4)
