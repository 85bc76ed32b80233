"""The newest value of each number, and how old it is; or why there is none."""

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
# Some metrics are not due at each tick: only from here on a value is old.
OLD_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Known:
    """One number as a tile shows it: its words, or none and why."""

    value: float | None
    why: str = ""
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """What is known now of some scopes of a run."""

    values: Mapping[Key, Value]
    unknown: Mapping[Key, Unknown]
    now_ms: int

    @classmethod
    def of(cls, reader: Reader, run: Run) -> Newest:
        """Return what is known of the run as a whole; all parts of a page share one look."""
        # Of a run whose recorder cannot be seen from here, more may still come.
        moment = time.time_ns() // 1_000_000_000 if run.ended_ms is None else run.ended_ms
        return remember((reader, run.id, "newest", moment), lambda: cls.read(reader, run, SCOPES))

    @classmethod
    def read(cls, reader: Reader, run: Run, scopes: Collection[Scope]) -> Newest:
        """Read it; of a run that has ended it is what was known at its end."""
        values = reader.latest(run.id, scopes)
        last = max((value.ts_ms for value in values.values()), default=run.started_ms)
        now = time.time_ns() // 1_000_000 if run.is_recording else last
        return cls(values, reader.unknown(run.id, scopes), now)

    def get(self, metric: Metric, subject: int) -> Known:
        """Return one number; an old one says how old it is."""
        key = Key(metric.scope, subject, metric)
        found = self.values.get(key)
        if found is None:
            why = self.unknown.get(key)
            return Known(None, NEVER_READ if why is None else why.reason)
        age = max(0.0, (self.now_ms - found.ts_ms) / 1000)
        return Known(found.value, f"{numbers.duration(age)} ago" if age > OLD_SECONDS else "", age)

    def words(self, metric: Metric, subject: int) -> str:
        """Return one number in words; a dash where it is not known."""
        return numbers.show(self.get(metric, subject).value, metric.unit)

    def reading(self, scope: Scope, subject: int) -> Reading:
        """Return all numbers of a subject as a probe gives them."""
        values = {k.metric: v.value for k, v in self.values.items() if k[:2] == (scope, subject)}
        why = {k.metric: u.reason for k, u in self.unknown.items() if k[:2] == (scope, subject)}
        return Reading(values, why)
