"""What a step is: the time between two ticks of the best source that ticks.

Sources tick on the job's own threads, at the end of each step or at the beginning of each. The
user's own marks are the best source. What ticks has a key of its own: of several functions, or
threads that mark steps, the slowest makes a whole step. Of several optimizers it is the one that
steps once a batch; where no loader counts batches, the one that steps most often: an actor that is
delayed, or a generator that waits for its critic, skips turns of the loop.
"""

from __future__ import annotations

from collections import deque
from itertools import compress
from math import log
from operator import sub
from time import monotonic_ns

from .main_thread import MainThreadCall
from .ring import drain
from .wire import MOST_DURATIONS, MOST_PACED, STEP_SOURCES, STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any

SECOND = 1_000_000_000
# A better source that is silent for so long gives way to a worse one; sooner, if it is silent for
# this many of its own steps: a profiler's schedule ends, and the training goes on.
QUIET_NS = 60 * SECOND
QUIET_STEPS = 20
# Ticks between two calls of ``second``: two seconds of steps of a tenth of a millisecond.
CAPACITY = 20_000
# Optimizers of one source that are told apart.
MOST_KEYS = 64
# With so few, the ticks are filtered once for each.
FEW = 4
# Not a moment, but a gap: the ticks before and after it do not follow each other.
APART = 0
# An optimizer rests if it is silent for so many of its own intervals and a second.
LATE = 4
# Optimizers that step as often as each other must not take turns: one takes over when its
# intervals are nearer to those of a step by a quarter.
NEARER = log(1.25)
# One that has come back may be silent for twice as long again.
AGAIN = 2


class _Key:
    """When one optimizer ticked."""

    __slots__ = ("comes_back", "first", "is_apart", "last", "patience", "ticks")

    def __init__(self, moment: int, *, comes_back: bool) -> None:
        self.first = self.last = moment
        self.ticks = 1
        # Whether silences that it comes back from are part of its pace, and how long it may be
        # silent after one: models that train in turns, some steps each, are one kind of step.
        self.comes_back = comes_back
        self.patience = 0
        # Some since the last one were not noted.
        self.is_apart = False

    def interval(self) -> float:
        """Return the mean time between two ticks; 0 before there are two."""
        return (self.last - self.first) / (self.ticks - 1) if self.ticks > 1 else 0.0

    def rests(self, now: int) -> bool:
        """Tell whether it is silent for much longer than between its ticks."""
        quiet = LATE * self.interval() + SECOND if self.ticks > 1 else QUIET_NS
        return now - self.last > max(quiet, self.patience)

    def tick(self, moment: int) -> int:
        """Note a tick, and return the time since the one before."""
        took = moment - self.last
        if self.ticks > 1 and self.rests(moment):
            if self.comes_back and took < QUIET_NS:
                self.patience = AGAIN * took
            else:
                # Its interval leaves out its rests.
                self.first, self.ticks = moment, 0
        self.last = moment
        self.ticks += 1
        return took

    def tick_all(self, moments: list[int]) -> list[int]:
        """Note ticks, and return the time before each, except across a gap."""
        if self.is_apart and moments:
            self.is_apart = False
            # Its interval leaves out the time in which ticks were only counted.
            self.first += moments[0] - self.last
            self.last, moments = moments[0], moments[1:]
        took = list(map(sub, moments, [self.last, *moments[:-1]]))
        # No rest is shorter.
        if max(took, default=0) > SECOND:
            return list(map(self.tick, moments))
        self.last = moments[-1] if moments else self.last
        self.ticks += len(moments)
        return took


class _Source:
    """What ticked under one name."""

    def __init__(self, *, is_fastest: bool) -> None:
        # Whether those that make a step may skip turns of the loop: the fastest skips none.
        self.is_fastest = is_fastest
        self.others: Container[int] = ()
        # Moments and keys alternate: a tuple would be one more object for the job's garbage
        # collector to count. Twice as long as it gets, so that pairs stay pairs.
        self.ticks: deque[int] = deque(maxlen=4 * CAPACITY)
        self.listeners = 0
        self.lost = 0
        # For how many each tick stands.
        self.weight = 1.0
        self._last: int | None = None
        self._keys: dict[int, _Key] = {}
        self._chosen: int | None = None
        # How often another one was chosen: its steps are not the same.
        self.unit = 0

    def counts(self, now: int) -> bool:
        """Tell whether it has ticked lately."""
        if self._last is None:
            return False
        quiet = now - self._last
        chosen = None if self._chosen is None else self._keys.get(self._chosen)
        soon = SECOND + QUIET_STEPS * chosen.interval() if chosen is not None else QUIET_NS
        return quiet <= min(QUIET_NS, soon)

    def put(self, ticks: Iterable[int], weight: float = 1.0) -> None:
        """Add ticks that were noted elsewhere, and for how many each of them stands."""
        self.ticks.extend(ticks)
        self.weight = weight

    def take(self, now: int, batches: _Key | None) -> tuple[list[int], int]:
        """Return how long the steps since the last call took, and how many ended."""
        number = len(self.ticks) // 2
        if number > CAPACITY:
            self.lost += 1
            self.ticks.clear()
            self._keys.clear()
            return [], 0
        ticks = drain(self.ticks, 2 * number)
        moments, names = ticks[::2], ticks[1::2]
        took = (
            self._note_rounds(moments, names)
            if APART in moments
            else self._note_all(moments, names)
        )
        chosen = self._choose(now, batches)
        if chosen is None:
            return [], 0
        ended = took.get(chosen, [])
        return ended, len(ended) if self.weight == 1 else round(self.weight * names.count(chosen))

    def last_end(self) -> int:
        """Return when the last of the steps ended that were taken."""
        chosen = None if self._chosen is None else self._keys.get(self._chosen)
        return 0 if chosen is None else chosen.last

    def _note_rounds(self, moments: list[int], names: list[int]) -> dict[int, list[int]]:
        """Note the ticks of each round separately."""
        took: dict[int, list[int]] = {}
        begin = 0
        for end in (*(n for n, moment in enumerate(moments) if moment == APART), len(moments)):
            for name, its in self._note_all(moments[begin:end], names[begin:end]).items():
                took.setdefault(name, []).extend(its)
            if end < len(moments):
                for key in self._keys.values():
                    key.is_apart = True
            begin = end + 1
        return took

    def _note_all(self, moments: list[int], names: list[int]) -> dict[int, list[int]]:
        took: dict[int, list[int]] = {}
        # As they came: of two that are alike the first counts.
        some = dict.fromkeys(names)
        if len(some) > FEW or len({*some, *self._keys}) > MOST_KEYS:
            for moment, name in zip(moments, names):
                self._note(moment, name, took)
            return took
        if moments:
            self._last = moments[-1]
        for name in some:
            its = list(compress(moments, map(name.__eq__, names))) if len(some) > 1 else moments
            if name not in self._keys:
                self._keys[name] = _Key(its[0], comes_back=self.is_fastest)
                its = its[1:]
            took[name] = self._keys[name].tick_all(its)
        return took

    def _note(self, moment: int, name: int, took: dict[int, list[int]]) -> None:
        self._last = moment
        key = self._keys.get(name)
        if key is not None:
            took.setdefault(name, []).append(key.tick(moment))
        elif len(self._keys) < MOST_KEYS or self._forget(moment):
            self._keys[name] = _Key(moment, comes_back=self.is_fastest)

    def _forget(self, now: int) -> bool:
        """Forget keys that rest; False when there are none."""
        gone = [name for name, key in self._keys.items() if key.rests(now)]
        for name in gone:
            del self._keys[name]
        return bool(gone)

    def _choose(self, now: int, batches: _Key | None) -> int | None:
        paces = {
            name: log(key.interval())
            for name, key in self._keys.items()
            if name not in self.others and key.interval() and not key.rests(now)
        }
        if not paces:
            return self._chosen
        if not self.is_fastest:
            wanted = max(paces.values())
        elif batches is None:
            wanted = min(paces.values())
        elif batches.rests(now) or not batches.interval():
            # They say nothing for now.
            wanted = paces.get(self._chosen or 0, min(paces.values()))
        else:
            wanted = log(batches.interval())
        off = {name: abs(pace - wanted) for name, pace in paces.items()}
        nearest = min(off, key=off.__getitem__)
        current = None if self._chosen is None else off.get(self._chosen)
        if current is None or current > off[nearest] + NEARER:
            self.unit += self._chosen is not None
            self._chosen = nearest
        return self._chosen


class Steps:
    """The steps of the job: ticks come on any thread, and are counted on the agent's."""

    def __init__(self, main: int | None = None) -> None:
        # A tick is a moment between two steps.
        self.main_call = MainThreadCall(main)
        self._sources: dict[str, _Source] = {}
        # When loaders gave batches, as if all of a second had come at its end.
        self._loaded: _Key | None = None
        self._last_second = monotonic_ns()
        self._best: str | None = None
        self._total = 0
        # Whether somebody measures a change: only then the order of steps is kept.
        self.is_watched = False
        self._ended: list[int] = []

    def listen(self, source: str) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Return the function that ticks, for the job's threads, and the one that ends it."""
        found, stop = self._source(source)
        extend = found.ticks.extend
        clock = monotonic_ns
        pending, run_pending = self.main_call.pending, self.main_call.run_pending

        def tick(key: int) -> None:
            extend((clock(), key))
            if pending:
                run_pending()

        return tick, stop

    def feed(self, source: str) -> tuple[Callable[..., None], Callable[[], None]]:
        """Return the function that takes ticks noted elsewhere, and the one that ends it.

        It takes moments and keys in turn, and for how many each stands; on the agent's thread.
        """
        found, stop = self._source(source)
        return found.put, stop

    def choose_among(self, source: str, others: Container[int], *, is_fastest: bool) -> None:
        """Let the fastest of a source count, or the slowest, and none of these others."""
        self._sources[source].others = others
        self._sources[source].is_fastest = is_fastest

    def _source(self, source: str) -> tuple[_Source, Callable[[], None]]:
        if source not in STEP_SOURCES:
            raise ValueError(source)
        found = self._sources.setdefault(source, _Source(is_fastest=source == "optimizer"))
        found.listeners += 1

        def stop() -> None:
            found.listeners -= 1
            if not found.listeners:
                self._sources.pop(source, None)

        return found, stop

    def batches(self, now: int, number: int) -> None:
        """Note how many batches loaders gave since the last call; on the agent's thread."""
        if not number:
            return
        if self._loaded is None:
            self._loaded = _Key(now, comes_back=True)
        else:
            self._loaded.tick(now)
            self._loaded.ticks += number - 1

    def second(self, now: int) -> tuple[list[Any] | None, dict[str, int | None]]:
        """Return the record and the figure of the time since the last call."""
        took = {
            name: source.take(now, self._loaded) for name, source in list(self._sources.items())
        }
        self._best = next(
            (name for name in STEP_SOURCES if name in took and self._sources[name].counts(now)),
            self._best,
        )
        span, self._last_second = now - self._last_second, now
        if self._best is None:
            return None, {}
        ended, number = took.get(self._best, ([], 0))
        self._total += number
        self._ended = ended if self.is_watched else []
        record = None
        if ended:
            record = ["steps", now, self._best, span, number, _evenly(sorted(ended))]
            if unit := self._sources[self._best].unit:
                record.append(unit)
        return record, {STEPS: self._total}

    def pace(self, now: int) -> list[Any] | None:
        """Return the record of the steps of the last call, one after another; ``None``: of none."""
        ended, self._ended = self._ended, []
        source = self._sources.get(self._best or "")
        if not ended or source is None:
            return None
        each = -(-len(ended) // MOST_PACED)
        # The oldest that do not fill a sum are left out.
        whole = ended[len(ended) % each :]
        sums = (
            whole if each == 1 else [sum(whole[n : n + each]) for n in range(0, len(whole), each)]
        )
        return ["pace", now, self._best, source.last_end(), each, sums]

    def lost(self) -> int:
        """Return how often ticks found no room."""
        return sum(source.lost for source in list(self._sources.values()))


def _evenly(durations: list[int]) -> list[int]:
    """Return at most as many as a record takes, the shortest and the longest among them."""
    number = len(durations)
    if number <= MOST_DURATIONS:
        return durations
    return [durations[i * (number - 1) // (MOST_DURATIONS - 1)] for i in range(MOST_DURATIONS)]
