"""The newest value of each metric and its age; or why there is none."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.series import NEVER_READ
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.reading import Reading
from whyidle.monitor.render import numbers
from whyidle.monitor.store import Key, Reader, Run, Unknown, Value

SCOPES: Final = (Scope.GPU, Scope.JOB, Scope.HOST, Scope.MONITOR)
# Some metrics are not due at each tick: a value counts as old only from here on.
OLD_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Known:
    """One number for a tile: its value, or why there is none."""

    value: float | None
    why: str = ""
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest values in some scopes of a run."""

    values: Mapping[Key, Value]
    unknown: Mapping[Key, Unknown]
    now_ms: int

    @classmethod
    def of(cls, reader: Reader, run: Run) -> Newest:
        """Return the newest values of the run, read once for all parts of a page."""
        # A run whose recorder cannot be seen from here may still get values.
        moment = time.time_ns() // 1_000_000_000 if run.ended_ms is None else run.ended_ms
        return remember((reader, run.id, "newest", moment), lambda: cls.read(reader, run, SCOPES))

    @classmethod
    def read(cls, reader: Reader, run: Run, scopes: Collection[Scope]) -> Newest:
        """Read the newest values; for an ended run, those at its end."""
        values = reader.latest(run.id, scopes)
        last = max((value.ts_ms for value in values.values()), default=run.started_ms)
        now = time.time_ns() // 1_000_000 if run.is_recording else last
        return cls(values, reader.unknown(run.id, scopes), now)

    def get(self, metric: Metric, subject: int) -> Known:
        """Return one number; an old one comes with its age."""
        key = Key(metric.scope, subject, metric)
        found = self.values.get(key)
        if found is None:
            why = self.unknown.get(key)
            return Known(None, NEVER_READ if why is None else why.reason)
        age = max(0.0, (self.now_ms - found.ts_ms) / 1000)
        return Known(found.value, f"{numbers.duration(age)} ago" if age > OLD_SECONDS else "", age)

    def words(self, metric: Metric, subject: int) -> str:
        """Return one number as text; a dash if it is unknown."""
        return numbers.show(self.get(metric, subject).value, metric.unit)

    def reading(self, scope: Scope, subject: int) -> Reading:
        """Return all numbers of a subject as a reading."""
        values = {k.metric: v.value for k, v in self.values.items() if k[:2] == (scope, subject)}
        why = {k.metric: u.reason for k, u in self.unknown.items() if k[:2] == (scope, subject)}
        return Reading(values, why)
