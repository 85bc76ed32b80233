"""Columns of integers out of what a JSON file holds: whole numbers, decimals, text, nothing."""

from __future__ import annotations

from array import array
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from whyidle.monitor.traces.model import Flags, Ints

# Below this a float holds microseconds to the half of a nanosecond; the base time of newer
# files keeps them there (91 days), times since 1970 lie far above.
_EXACT_BELOW: Final = float(1 << 43)
# A moment and a duration, added, and the difference of any two sums: all fit 64 bits.
_MOST_NS: Final = 1 << 61
_MOST_US: Final = _MOST_NS // 1000
_LONGEST: Final = 64
_INT64: Final = 1 << 63


class InexactError(Exception):
    """These floats are too large for nanoseconds: decode the text again, as decimals."""


def nanoseconds(values: list[Any]) -> tuple[Ints, Flags | None]:
    """Turn microseconds into nanoseconds; the flags mark what is no time; None: all are times."""
    try:
        whole = np.frombuffer(array("q", values), np.int64)
    except (TypeError, OverflowError):
        return _fractions(values)
    if len(whole) and (whole.max() > _MOST_US or whole.min() < -_MOST_US):
        return _one_by_one(values)
    return whole * 1000, None


def _fractions(values: list[Any]) -> tuple[Ints, Flags | None]:
    try:
        floats = np.frombuffer(array("d", values), np.float64)
    except (TypeError, OverflowError):
        return _one_by_one(values)
    if not np.abs(floats).max() < _EXACT_BELOW:
        return _one_by_one(values)
    # The whole part is exact, and so is what remains: only the last product is rounded.
    whole = np.floor(floats)
    parts = np.rint((floats - whole) * 1000)
    return whole.astype(np.int64) * 1000 + parts.astype(np.int64), None


def _one_by_one(values: list[Any]) -> tuple[Ints, Flags | None]:
    times = [_nanoseconds(value) for value in values]
    bad = np.array([time is None for time in times], np.bool_)
    column = np.array([time or 0 for time in times], np.int64)
    return column, bad if bad.any() else None


def _nanoseconds(value: Any) -> int | None:
    if isinstance(value, float):
        if abs(value) >= _EXACT_BELOW:
            raise InexactError
        value = Decimal(value)
    elif isinstance(value, str) and len(value) <= _LONGEST:
        try:
            value = Decimal(value)
        except InvalidOperation:
            return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    if isinstance(value, int | Decimal) and -_MOST_US <= value <= _MOST_US:
        return round(value * 1000)
    return None


def integers(values: list[Any]) -> Ints:
    """Return a column of ids or sizes: -1 for what is none, or fits none."""
    try:
        return np.frombuffer(array("q", values), np.int64)
    except (TypeError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value) if not isinstance(value, str) or len(value) <= _LONGEST else -1
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -_INT64 <= number < _INT64 else -1
