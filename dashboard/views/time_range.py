"""The time range of a run that a page shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.store import Reader, Run

ALL: Final = "all"
RANGES: Final[dict[str, int | None]] = {
    "1m": 60, "5m": 300, "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, ALL: None,
}  # fmt: skip
# Points of one line: more cannot be seen, and cost time.
POINTS: Final = 500
# Points per line of a chart with several; estimates per moment share these reads.
FEW_POINTS: Final = 160
# Points of a chart with many lines.
MOST_POINTS: Final = 1000
# A live chart moves on by this part of a point; until then it is cached.
_PART_OF_A_POINT: Final = 4
# Around a peak, this part of the range is shown, and at least this long.
_AROUND: Final = 20
_LEAST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range of a run, by the clock of the recording."""

    start_ms: int
    end_ms: int
    is_live: bool
    # A zoom within a range of another name is dropped.
    name: str = ""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end_ms - self.start_ms) / 1000

    def around(self, ts_ms: int) -> TimeRange:
        """Return a short range around a moment within this one."""
        half = max(_LEAST_MS, (self.end_ms - self.start_ms) // _AROUND) // 2
        start, end = max(self.start_ms, ts_ms - half), min(self.end_ms, ts_ms + half)
        return replace(self, start_ms=start, end_ms=end, name=f"{self.name} {ts_ms}")


def of(reader: Reader, run: Run, name: str, now_ms: int) -> TimeRange:
    """Return the range of that name that ends now, or at the run's end."""
    live = run.is_recording
    end = now_ms if live else _end(reader, run)
    seconds = RANGES.get(name)
    length = end - run.started_ms if seconds is None else seconds * 1000
    if live:
        step = max(1000, length // (_PART_OF_A_POINT * POINTS) // 1000 * 1000)
        end = end // step * step
    start = run.started_ms if seconds is None else max(run.started_ms, end - length)
    return TimeRange(start, max(end + 1, start + 1000), live, f"{run.id} {name}")


def _end(reader: Reader, run: Run) -> int:
    """Return when a run ended; if its recorder died, when it was last heard from."""
    newest = reader.latest(run.id, (Scope.MONITOR, Scope.JOB)).values()
    last = max((value.ts_ms for value in newest), default=None)
    if run.ended_ms is not None and (last is None or last <= run.ended_ms):
        return run.ended_ms
    return run.started_ms if last is None else last


@lru_cache(maxsize=1 << 14)
def local(ts_ms: int) -> int:
    """Return a moment for a chart: local time, as if it were UTC.

    Charts ignore time zones, and read numbers faster than dates in text.
    """
    moment = datetime.fromtimestamp(ts_ms / 1000, tz=UTC).astimezone()
    offset = moment.utcoffset() or timedelta(0)
    return ts_ms + offset // timedelta(milliseconds=1)
