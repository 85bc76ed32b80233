"""Steps by the turns of the job's own loop, for a job in which nothing else counts them.

The loops of a job turn at different rates: epochs, steps, what a step repeats. Where a trace says
how long a step takes, or what repeats, the loop that agrees with it counts. Otherwise it is the
outermost function in which a loop turned some times in the first seconds, and there the loop that
turns most often, as long as it seldom begins anew: what a step repeats does so all the time. It
stays chosen, so that epochs, which turn later, do not take its place.

Between two looks a loop may have begun anew more than once. The loop around it knows how often.

Some loops cannot be read: that over a loader, whose batches an agent counts, and that of a program
that is compiled whole, whose callbacks it counts. Batches count where no loop turns as they come,
and a turn of the one that is read has ten of them or more; callbacks where nothing else does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from whyidle.agents import wire
from whyidle.monitor.attach.stack_reader.loop_counters import Count, Loop
from whyidle.monitor.link.records import Steps
from whyidle.monitor.recording.stats.step_times import SECOND
from whyidle.monitor.runs.training import LOOP

# A loop has turned so often before it counts, and began anew in no more than this share of turns.
LEAST_TURNS: Final = 3
MOST_RESTARTS: Final = 0.1
# Nor in more than this share of the looks between which it moved.
OFTEN: Final = 0.25
# Before so long nothing is chosen: an outer loop has had its turns.
SETTLED_NS: Final = 6 * SECOND
# By so many growths of a number it is known whether they are all multiples of something.
LEAST_GROWTHS: Final = 5
# How far back its rate reaches; a loop that has not been seen for so long has ended.
REACH_NS: Final = 20 * SECOND
# So much a trace and a loop may differ about a step: a profiler slows it.
AGREES: Final = 2.0
# Loops whose rates differ by less turn together.
ALIKE: Final = 1.1
MOST_LOOPS: Final = 500
# Counters that an agent reads inside, as if they were loops within all others.
BATCHES: Final = Loop(MOST_LOOPS, 0, (0,), is_iterator=False)
CALLBACKS: Final = Loop(MOST_LOOPS, 0, (1,), is_iterator=False)
INSIDE: Final = {wire.MOST_BATCHES: BATCHES, wire.CALLBACKS: CALLBACKS}


class Told(NamedTuple):
    """What is known of a process's steps beside its loops."""

    # What a trace says of a step, or of what repeats.
    step_s: float | None = None
    # When an agent told totals last, and what they were, by the name of the gauge.
    at_ns: int = 0
    totals: Mapping[str, int] = {}


@dataclass
class _Turned:
    """One counter since it was first seen."""

    value: int
    lowest: int
    highest: int
    turns: int = 0
    restarts: int = 0
    # Looks between which the loop around it turned, and in how many of them it fell.
    rounds: int = 0
    falls: int = 0
    # What all growths are multiples of, and how many were seen.
    unit: int = 0
    grew: int = 0
    at_ns: int = 0
    # When, and how many turns, restarts and growths until then.
    seen: deque[tuple[int, int, int, int]] = field(default_factory=deque)

    def look(self, value: int, now_ns: int, around: int = 0) -> None:
        """Take in where it stands now; ``around``: turns of the loop around it since the last."""
        grown = value - self.value
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        if around:
            self.rounds, self.falls = self.rounds + 1, self.falls + (grown < 0)
        # It went to its end and began anew: at least once where it now stands before.
        is_exact = around > 0 and self.is_nested
        if restarts := around if is_exact else int(grown < 0):
            self.restarts += restarts
            # What it holds is one more than what lies between its ends.
            grown = max(0, grown + restarts * (self.highest - self.lowest + is_exact))
        if grown:
            self.unit, self.grew = math.gcd(self.unit, grown), self.grew + 1
        self.turns += grown
        self.value, self.at_ns = value, now_ns
        self.seen.append((now_ns, self.turns, self.restarts, self.grew))
        while self.seen[0][0] < now_ns - REACH_NS:
            self.seen.popleft()

    @property
    def rate(self) -> float:
        """Its turns a second."""
        (since, turned, *_), (until, turns, *_) = self.seen[0], self.seen[-1]
        return (turns - turned) * SECOND / max(1, until - since)

    @property
    def is_nested(self) -> bool:
        """Whether it begins anew with each turn of the loop around it.

        It then falls as often as not; one that lasts, as an iterator in a variable does, seldom.
        """
        return self.rounds >= LEAST_TURNS and self.falls >= OFTEN * self.rounds

    @property
    def is_counted(self) -> bool:
        """Whether its turns are known however often it begins anew, and they are no few each."""
        (_, turned, restarted, _), (_, turns, restarts, _) = self.seen[0], self.seen[-1]
        few = restarts - restarted > MOST_RESTARTS * (turns - turned)
        return self.is_nested and turns - turned >= LEAST_TURNS and not few

    @property
    def is_restless(self) -> bool:
        """Whether it begins anew so often that it is a part of something that repeats."""
        (_, turned, restarted, grew), (_, turns, restarts, grows) = self.seen[0], self.seen[-1]
        # One that runs through several times between two looks is seen at any place of it.
        looks = OFTEN * (grows - grew)
        return restarts - restarted > min(MOST_RESTARTS * (turns - turned), looks)

    @property
    def is_steady(self) -> bool:
        """Whether it turns, and does little else."""
        turned = self.seen[-1][1] - self.seen[0][1]
        return turned >= LEAST_TURNS and not self.is_restless

    @property
    def counts_by_one(self) -> bool:
        """Whether a number that grows may be one of turns: it never falls."""
        return self.unit == 1 and self.grew >= LEAST_GROWTHS and not self.restarts


class Turns:
    """Takes the counters of one process."""

    def __init__(self) -> None:
        self._step_s: float | None = None
        self._loops: dict[Loop, _Turned] = {}
        self._chosen: Loop | None = None
        # Until when, and up to which turn, steps were told.
        self._until: tuple[int, int] = 0, 0
        # How often another loop was chosen.
        self._unit = 0
        self._began = 0

    def tell(self, told: Told) -> None:
        """Take in what others know."""
        self._step_s = told.step_s
        for name, loop in INSIDE.items():
            if (total := told.totals.get(name)) is None:
                continue
            self._began = self._began or told.at_ns
            known = self._loops.setdefault(loop, _Turned(total, total, total))
            # Only where it grew: one that stands still for long gives way.
            if not known.seen or total != known.value:
                known.look(total, told.at_ns)

    def look(self, found: Mapping[Loop, Count], now_ns: int) -> None:
        """Take in where all counters stand."""
        self._began = self._began or now_ns
        turned: dict[Loop, int] = {}
        for loop, around in _nested(found):
            now = found[loop].value
            if loop not in self._loops:
                if len(self._loops) >= MOST_LOOPS:
                    continue
                self._loops[loop] = _Turned(now, now, now)
            mine = self._loops[loop]
            before = mine.turns
            mine.look(now, now_ns, turned.get(around, 0) if around else 0)
            turned[loop] = mine.turns - before
        late = (x for x, t in self._loops.items() if t.at_ns < now_ns - REACH_NS)
        for loop in [x for x in late if x not in INSIDE.values()]:
            del self._loops[loop]
        if self._chosen not in self._loops:
            self._chosen = None

    def take(self, now_ns: int) -> Steps | None:
        """Return the steps since the last call."""
        chosen = self._choose(now_ns)
        if chosen is None:
            return None
        turned = self._loops[chosen]
        if chosen != self._chosen:
            # Not what it turned before it was chosen: another may have counted then.
            self._chosen, self._until = chosen, (turned.at_ns, turned.turns)
            self._unit += 1
            return None
        since, before = self._until
        count, span = turned.turns - before, turned.at_ns - since
        if count <= 0 or span <= 0:
            return None
        self._until = turned.at_ns, turned.turns
        return Steps(turned.at_ns, LOOP, span, count, [span // count], self._unit)

    def _choose(self, now_ns: int) -> Loop | None:
        lately = {x: t for x, t in self._loops.items() if t.at_ns >= now_ns - REACH_NS}
        steady = {x: t.rate for x, t in lately.items() if t.is_steady}
        if self._step_s:
            known = steady | {x: t.rate for x, t in lately.items() if t.is_counted}
            agrees = {x: abs(math.log(rate * self._step_s)) for x, rate in known.items()}
            least = min(agrees.values(), default=math.inf)
            if least <= math.log(AGREES):
                return self._kept([x for x in agrees if agrees[x] <= least + math.log(ALIKE)])
        mine = None if self._chosen is None else lately.get(self._chosen)
        stays = mine is not None and (mine.is_counted or not mine.is_restless)
        if (stays and self._chosen != CALLBACKS) or now_ns - self._began < SETTLED_NS:
            return self._chosen if stays else None
        read = self._read({x: r for x, r in steady.items() if x not in INSIDE.values()})
        came, turns = steady.get(BATCHES), steady[read] if read else 0.0
        if came and turns <= MOST_RESTARTS * came:
            # As many batches to a turn are no part of a step: it is a pass over the data.
            near = [x for x, r in steady.items() if came / ALIKE <= r <= came * ALIKE]
            alike = [x for x in near if x.is_iterator]
            return self._kept(alike) if alike else BATCHES
        return read if read or CALLBACKS not in steady else CALLBACKS

    def _read(self, steady: Mapping[Loop, float]) -> Loop | None:
        iterators = {x: r for x, r in steady.items() if x.is_iterator}
        some = iterators or {x: r for x, r in steady.items() if self._loops[x].counts_by_one}
        if not some:
            return None
        outermost = min(x.depth for x in some)
        its = {x: r for x, r in some.items() if x.depth == outermost}
        # Of numbers that grow the slowest: the others are of samples, or of tokens.
        wanted = max(its.values()) if iterators else min(its.values())
        return self._kept([x for x in its if wanted / ALIKE <= its[x] <= wanted * ALIKE])

    def _kept(self, alike: list[Loop]) -> Loop:
        """Of those that turn alike the one that was chosen stays."""
        return self._chosen if self._chosen in alike else min(alike)


def _nested(found: Iterable[Loop]) -> Iterator[tuple[Loop, Loop | None]]:
    """Yield all counters from the outermost in, iterators with the loop that is around them."""
    # Iterators that feed each other, and those in a zip, lie under the same slot.
    latest: list[Loop] = []
    for loop in sorted(found):
        while latest and (loop.depth, loop.slots[0]) == (latest[-1].depth, latest[-1].slots[0]):
            latest.pop()
        yield loop, latest[-1] if latest and loop.is_iterator else None
        if loop.is_iterator:
            latest.append(loop)
