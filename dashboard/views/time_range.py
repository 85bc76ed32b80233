"""From when to when a page shows a run."""

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
# Of one line: more is not seen, and costs.
POINTS: Final = 500
# Of each line of a chart with several; what is judged moment by moment shares their reads.
FEW_POINTS: Final = 160
# Of a chart with many lines.
MOST_POINTS: Final = 1000
# A chart moves on by so much of a point: until then it is the same, and costs nothing.
_PART_OF_A_POINT: Final = 4
# Around a peak this part of the whole is shown, and at least so much.
_AROUND: Final = 20
_LEAST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A stretch of a run, by the clock of the recording."""

    start_ms: int
    end_ms: int
    is_live: bool
    # Another name is another choice of the reader's: a zoom within the old one does not count on.
    name: str = ""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end_ms - self.start_ms) / 1000

    def around(self, ts_ms: int) -> TimeRange:
        """Return a short stretch around a moment of this one."""
        half = max(_LEAST_MS, (self.end_ms - self.start_ms) // _AROUND) // 2
        start, end = max(self.start_ms, ts_ms - half), min(self.end_ms, ts_ms + half)
        return replace(self, start_ms=start, end_ms=end, name=f"{self.name} {ts_ms}")


def of(reader: Reader, run: Run, name: str, now_ms: int) -> TimeRange:
    """Return the last stretch of that name: until now, or until the run's end."""
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
    """Return when a run ended; one whose recorder died, when it was last heard of."""
    newest = reader.latest(run.id, (Scope.MONITOR, Scope.JOB)).values()
    last = max((value.ts_ms for value in newest), default=None)
    if run.ended_ms is not None and (last is None or last <= run.ended_ms):
        return run.ended_ms
    return run.started_ms if last is None else last


@lru_cache(maxsize=1 << 14)
def local(ts_ms: int) -> int:
    """Return a moment as charts take it: by this machine's clock, as if that were the world's.

    Charts know no time zones, and read a number faster than a date in words.
    """
    moment = datetime.fromtimestamp(ts_ms / 1000, tz=UTC).astimezone()
    offset = moment.utcoffset() or timedelta(0)
    return ts_ms + offset // timedelta(milliseconds=1)
