"""What a page shows, as a table for other programs: one row a moment, one column a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean

from whyidle.dashboard.views.series import Course


def as_csv(courses: Sequence[Course]) -> str:
    """Return courses as CSV; what was not known stays empty."""
    known = [course for course in courses if course.unknown is None]
    width = _width(known)
    columns = [_column(course, width) for course in known]
    # A row bears the first moment that lies in it.
    times: dict[int, int] = {}
    for time in sorted({time for course in known for time in course.times}):
        times.setdefault(time // width, time)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *(_name(course) for course in known)])
    for row, time in times.items():
        moment = datetime.fromtimestamp(time / 1000, tz=UTC).isoformat(timespec="milliseconds")
        cells = (column.get(row) for column in columns)
        writer.writerow([moment, *("" if cell is None else repr(cell) for cell in cells)])
    return text.getvalue()


def _width(courses: Sequence[Course]) -> int:
    """Return how long a row lasts: as the points of the coarsest course, where they differ."""
    if len({tuple(course.times) for course in courses}) < 2:
        return 1
    return max(
        min((b - a for a, b in pairwise(course.times)), default=1) or 1 for course in courses
    )


def _column(course: Course, width: int) -> dict[int, float]:
    """Return the mean of what is known in each row."""
    rows: dict[int, list[float]] = {}
    for time, value in zip(course.times, course.values, strict=True):
        if value is not None:
            rows.setdefault(time // width, []).append(value)
    return {row: fmean(values) for row, values in rows.items()}


def _name(course: Course) -> str:
    words = course.metric.label
    return words if course.name in {course.metric.words, ""} else f"{course.name}: {words}"
