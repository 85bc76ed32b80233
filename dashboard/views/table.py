"""What a page shows, as a table for other programs: one row a moment, one column a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime

from whyidle.dashboard.views.courses import Course


def as_csv(courses: Sequence[Course]) -> str:
    """Return courses as CSV; what was not known stays empty."""
    known = [course for course in courses if course.unknown is None]
    columns = [dict(zip(course.times, course.values, strict=True)) for course in known]
    times = sorted({time for column in columns for time in column})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *(_name(course) for course in known)])
    for time in times:
        moment = datetime.fromtimestamp(time / 1000, tz=UTC).isoformat(timespec="milliseconds")
        cells = (column.get(time) for column in columns)
        writer.writerow([moment, *("" if cell is None else repr(cell) for cell in cells)])
    return text.getvalue()


def _name(course: Course) -> str:
    words = course.metric.label
    return words if course.name in {course.metric.words, ""} else f"{course.name}: {words}"
