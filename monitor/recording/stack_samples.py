"""Where a main thread was: now, for the screens, and every few seconds, to be kept."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TypeAlias

from whyidle.monitor.core.source_lines import SourceLine
from whyidle.monitor.link.records import Frame, Look, Stacks
from whyidle.monitor.processes.events import JobEvent
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.recording.due import MOST_COUNTED, Due, kept
from whyidle.monitor.runs.summary import STACKS

# What a screen shows as "now".
WHERE_NS = 10_000_000_000
LINES_KEPT = 20
LINES_SHOWN = 5

_Place: TypeAlias = tuple[str, int, str]

MOST_PLACES = 200
MOST_RECENT = 30


class Looks:
    """How often a thread was at which line of the user's, and of anybody's."""

    def __init__(self) -> None:
        self.samples = 0
        self.span_ns = 0
        self._lines: Counter[_Place] = Counter()
        self._leaves: Counter[_Place] = Counter()

    def add(self, stacks: Stacks) -> None:
        """Count one record."""
        self.samples += min(stacks.samples, MOST_COUNTED)
        self.span_ns += min(stacks.span_ns, WHERE_NS)
        for look in stacks.looks:
            count = min(look.count, MOST_COUNTED)
            if look.frames:
                _count(self._lines, look.frames[0], count)
            if look.leaf is not None:
                _count(self._leaves, look.leaf, count)

    def lines(self, most: int) -> tuple[SourceLine, ...]:
        """Return the user's lines, most first."""
        return self._top(self._lines, most)

    def event(self, key: ProcessKey) -> JobEvent:
        """Return what is kept of it."""
        lines, leaves = (self._top(c, LINES_KEPT) for c in (self._lines, self._leaves))
        return stacks_event(key, self.samples, self.span_ns / 1e9, lines, leaves)

    def _top(self, counts: Counter[_Place], most: int) -> tuple[SourceLine, ...]:
        # A liar may count more lines than looks.
        whole = max(1, self.samples, sum(counts.values()))
        return tuple(SourceLine(*place, n / whole) for place, n in counts.most_common(most))


class Where:
    """Takes the stacks of one process."""

    def __init__(self, key: ProcessKey) -> None:
        self._key = key
        self.lines: tuple[SourceLine, ...] = ()
        self.looks = 0
        self._recent: deque[tuple[int, Stacks]] = deque(maxlen=MOST_RECENT)
        self._since = Looks()
        self._due = Due()

    def take(self, stacks: Stacks, at_ns: int) -> None:
        """Take in one record."""
        self._recent.append((at_ns, _slim(stacks)))
        self._since.add(stacks)

    def look_back(self, now_ns: int) -> None:
        """Say where it was in the last seconds."""
        while self._recent and now_ns - self._recent[0][0] > WHERE_NS:
            self._recent.popleft()
        looks = Looks()
        for _, stacks in self._recent:
            looks.add(stacks)
        self.lines, self.looks = looks.lines(LINES_SHOWN), looks.samples

    def events(self, now_ns: int, *, ending: bool) -> list[JobEvent]:
        """Return what is due to be kept."""
        if self._due.now(now_ns, self._since.samples, ending=ending) is None:
            return []
        looks, self._since = self._since, Looks()
        return [looks.event(self._key)]


def _slim(stacks: Stacks) -> Stacks:
    """Return what a screen shows of a record: the user's innermost lines."""
    looks = [Look(look.count, None, look.frames[:1]) for look in stacks.looks if look.frames]
    return Stacks(stacks.t, stacks.span_ns, stacks.samples, looks)


def _count(counts: Counter[_Place], frame: Frame, count: int) -> None:
    place = frame.file, frame.line, frame.function
    if place in counts or len(counts) < MOST_PLACES:
        counts[place] += count


def stacks_event(
    key: ProcessKey,
    samples: int,
    seconds: float | None,
    lines: Iterable[SourceLine],
    leaves: Iterable[SourceLine] = (),
) -> JobEvent:
    """Return the event that says where a main thread was."""
    data = {
        "samples": samples,
        "seconds": None if seconds is None else round(seconds, 3),
        "lines": kept(line.told() for line in lines),
        "leaves": kept(line.told() for line in leaves),
    }
    text = f"Where the main thread of process {key.pid} was."
    return JobEvent(STACKS, key, text, data=data, is_news=False)
