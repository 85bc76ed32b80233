"""The stacks of one process since the last record, counted as an agent counts them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whyidle.agents.wire import LONGEST_FILE, MOST_PLACES
from whyidle.monitor.attach.stack_reader.code_objects import Place
from whyidle.monitor.attach.stack_reader.reader import Stack, StackReader
from whyidle.monitor.link.records import Frame, StackCount, Stacks

# With the phase that the job marks.
_Chain = tuple[Place, Place | None, tuple[Place, ...], str | None]
# Of so many samples half must make sense.
_JUDGED_AFTER = 200


@dataclass
class StackCounts:
    """What one reader has seen since the last record."""

    reader: StackReader
    hz: float
    due: float = 0.0
    counts: dict[_Chain, list[int]] = field(default_factory=dict)
    # Where other threads were that had Python's lock when the main thread wanted it.
    holders: dict[_Chain, list[int]] = field(default_factory=dict)
    samples: int = 0
    torn_before: int = 0
    began_ns: int = 0
    # What a thread that waited read from, in words.
    words: Callable[[str], str] = str
    reads: dict[str, int] = field(default_factory=dict)

    def plan(self, now: float, slower: float) -> None:
        """Say when the next sample is due: never in step with what the job repeats."""
        self.due = now + slower / self.hz * random.uniform(0.5, 1.5)  # noqa: S311  no secret

    def add(self, stack: Stack, phase: str | None = None) -> None:
        """Count one sample."""
        self.samples += 1
        if stack.holder is not None:
            _count(self.holders, (*stack.holder, None), (1,))
        known, waited = stack.waits is not None, bool(stack.waits)
        states = known, waited, stack.wants_lock, stack.blocked
        _count(self.counts, (*stack[:3], phase), (1, *states))
        if stack.file is not None:
            place = self.words(stack.file)[-LONGEST_FILE:]
            if place in self.reads or len(self.reads) < MOST_PLACES:
                self.reads[place] = self.reads.get(place, 0) + 1

    @property
    def makes_sense(self) -> bool:
        """Tell whether this reader understands what it reads."""
        tried = self.reader.taken + self.reader.torn
        return tried < _JUDGED_AFTER or self.reader.taken > self.reader.torn

    def record(self, now_ns: int) -> tuple[Stacks, int]:
        """Return the record of what was seen, and how many samples were torn; begin anew."""
        found = Stacks(
            now_ns,
            now_ns - self.began_ns,
            self.samples,
            [_record(chain, n) for chain, n in self.counts.items()],
            [_record(chain, n) for chain, n in self.holders.items()],
            dict(self.reads),
        )
        torn = self.reader.torn - self.torn_before
        self.counts, self.holders, self.samples, self.reads = {}, {}, 0, {}
        self.began_ns, self.torn_before = now_ns, self.reader.torn
        return found, torn


def _count(counts: dict[_Chain, list[int]], chain: _Chain, more: Sequence[int]) -> None:
    if chain in counts or len(counts) < MOST_PLACES:
        before = counts.get(chain, [0] * len(more))
        counts[chain] = [a + b for a, b in zip(before, more, strict=True)]


def _record(chain: _Chain, counts: list[int]) -> StackCount:
    leaf, called, users, phase = chain
    count, known, waited, locked, blocked = (*counts, 0, 0, 0, 0)[:5]
    frames = [Frame(*place) for place in users]
    at = called and Frame(*called)
    return StackCount(count, Frame(*leaf), frames, at, known, waited, locked, blocked, phase)
