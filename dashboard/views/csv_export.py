"""What a page shows, as CSV: one row per moment, one column per line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean

from whyidle.dashboard.views.series import Series


def as_csv(all_series: Sequence[Series]) -> str:
    """Return series as CSV; unknown values stay empty."""
    known = [series for series in all_series if series.unknown is None]
    width = _width(known)
    columns = [_column(series, width) for series in known]
    # A row has the time of its first moment.
    times: dict[int, int] = {}
    for time in sorted({time for series in known for time in series.times}):
        times.setdefault(time // width, time)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *(_name(series) for series in known)])
    for row, time in times.items():
        moment = datetime.fromtimestamp(time / 1000, tz=UTC).isoformat(timespec="milliseconds")
        cells = (column.get(row) for column in columns)
        writer.writerow([moment, *("" if cell is None else repr(cell) for cell in cells)])
    return text.getvalue()


def _width(all_series: Sequence[Series]) -> int:
    """Return the duration of a row: the point distance of the coarsest series."""
    if len({tuple(series.times) for series in all_series}) < 2:
        return 1
    return max(
        min((b - a for a, b in pairwise(series.times)), default=1) or 1 for series in all_series
    )


def _column(series: Series, width: int) -> dict[int, float]:
    """Return the mean of the known values in each row."""
    rows: dict[int, list[float]] = {}
    for time, value in zip(series.times, series.values, strict=True):
        if value is not None:
            rows.setdefault(time // width, []).append(value)
    return {row: fmean(values) for row, values in rows.items()}


def _name(series: Series) -> str:
    words = series.metric.label
    return words if series.name in {series.metric.words, ""} else f"{series.name}: {words}"
