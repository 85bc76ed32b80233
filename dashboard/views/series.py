"""Metrics over time, aligned; and why one is unknown."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from whyidle.dashboard.views.cache import remember
from whyidle.dashboard.views.time_range import MOST_POINTS, POINTS, TimeRange
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.store import Key, Point, Reader, Unknown

NEVER_READ = "it was never read in this run"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart; unknown values are gaps."""

    name: str
    metric: Metric
    times: Sequence[int] = ()
    values: Sequence[float | None] = ()
    least: Sequence[float | None] = ()
    most: Sequence[float | None] = ()
    # Why there is nothing at all.
    unknown: str | None = None

    @classmethod
    def of(cls, name: str, metric: Metric, points: Sequence[Point]) -> Series:
        """Make a series from the points of the store."""
        times, values, least, most = zip(*points, strict=True)
        return cls(name, metric, times, values, least, most)

    @property
    def last(self) -> float | None:
        """The newest known value."""
        return next((value for value in reversed(self.values) if value is not None), None)

    @property
    def mean(self) -> float | None:
        """The mean of the known values."""
        known = [value for value in self.values if value is not None]
        return sum(known) / len(known) if known else None

    @property
    def peak(self) -> tuple[int, float] | None:
        """When it was highest, and how high."""
        heights = self.most or self.values
        known = [(h, t) for t, h in zip(self.times, heights, strict=True) if h is not None]
        return (max(known)[1], max(known)[0]) if known else None


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom the store keeps a number of."""

    id: int
    name: str


@dataclass(slots=True)
class SeriesSource:
    """Asks the store for a run's courses in one span."""

    reader: Reader
    run: int
    span: TimeRange
    # Of each line so many points, whatever a chart asks for: rows of a table belong together.
    grid: int | None = None
    _unknown: dict[Scope, Mapping[Key, Unknown]] = field(default_factory=dict)

    def once(self, what: Hashable, answer: Callable[[], _T]) -> _T:
        """Return the cached answer for this time range, or compute it."""
        return remember((self.reader, self.run, self.span, what), answer)

    def of(
        self, metric: Metric, subjects: Sequence[Subject], points: int | None = None
    ) -> list[Series]:
        """Return the series of a metric, one per subject; many subjects get fewer points each."""
        points = self.grid or points or min(POINTS, max(2, MOST_POINTS // max(1, len(subjects))))
        what = (metric, tuple(subjects), points)
        return self.once(what, lambda: self._read(metric, subjects, points))

    def _read(self, metric: Metric, subjects: Sequence[Subject], points: int) -> list[Series]:
        span = self.span
        ids = [subject.id for subject in subjects]
        found = self.reader.series(metric, ids, span.start_ms, span.end_ms, points)
        all_series = []
        for subject in subjects:
            there = found.get(subject.id, [])
            if not any(point.mean is not None for point in there):
                why = self.why_not(metric, subject.id)
                all_series.append(Series(subject.name, metric, unknown=why))
                continue
            all_series.append(Series.of(subject.name, metric, there))
        return all_series

    def one(self, metric: Metric, subject: int, name: str | None = None) -> Series:
        """Return the series of a metric for one subject."""
        return self.of(metric, [Subject(subject, name or metric.words)])[0]

    def mean(
        self,
        metric: Metric,
        subjects: Sequence[Subject],
        name: str | None = None,
        points: int = POINTS,
    ) -> Series:
        """Return the mean over subjects, known where all subjects with any data are known.

        Its ``least`` and ``most`` are those of any one subject.
        """
        name, points = name or metric.words, self.grid or points
        if len(subjects) == 1:
            return replace(self.of(metric, subjects, points)[0], name=name)
        several = self.of(metric, subjects, points)
        known = [series for series in several if series.unknown is None]
        if not known:
            why = next((c.unknown for c in several if c.unknown), NEVER_READ)
            return Series(name, metric, unknown=why)
        what = (metric, tuple(subjects), name, points, "mean")
        return self.once(what, lambda: _mean(name, metric, known))

    def why_not(self, metric: Metric, subject: int) -> str:
        """Return why a metric has no value, as its source reported it."""
        scope = metric.scope
        if scope not in self._unknown:
            self._unknown[scope] = self.reader.unknown(self.run, (scope,))
        found = self._unknown[scope].get(Key(scope, subject, metric))
        return NEVER_READ if found is None else found.reason


def _mean(name: str, metric: Metric, known: Sequence[Series]) -> Series:
    by_time: dict[int, list[float]] = {}
    for series in known:
        for time, value in zip(series.times, series.values, strict=True):
            kept = by_time.setdefault(time, [])
            if value is not None:
                kept.append(value)
    times = sorted(by_time)
    whole = [by_time[t] if len(by_time[t]) == len(known) else [] for t in times]
    return Series(
        name,
        metric,
        times,
        [sum(some) / len(some) if some else None for some in whole],
        [min(some, default=None) for some in whole],
        [max(some, default=None) for some in whole],
    )
