"""Blocks of steps, with the change and without, and what a pair of neighbours says.

What is long and rare (a checkpoint, a validation) falls into few blocks and says nothing of the
change: such a step is left out, unless the garbage collector was what took so long.
"""

from __future__ import annotations

import bisect
import math
import random
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from whyidle.monitor.core.errors import UsageProblem
from whyidle.monitor.trying.sequential import FEWEST

SECOND: Final = 1_000_000_000
# A block has at least so many steps, and lasts so long: turning the knob wakes the agent, which
# must stay little of it.
STEPS: Final = 10
LEAST_S: Final = 0.8
# Of the collector's pauses a block has several, or chance decides which block has one.
PAUSES: Final = 3
# Right after the knob is turned.
SETTLE_STEPS: Final = 2
# More pairs say little more: the blocks become longer instead, up to this.
MOST_PAIRS: Final = 40
LONGEST_S: Final = 5.0
# Unless told otherwise a try takes so long, and longer where that gives too few pairs, up to:
SECONDS: Final = 60.0
MOST_SECONDS: Final = 600.0
# So many are put into order at once: as many begin with the change as without it.
AT_ONCE: Final = 4
# A step is a phase if it takes so many times the middle one, and few do: of all, and in a block.
# What comes several times in each, such as a core that others take for moments, is no phase.
PHASE: Final = 10
FEW: Final = 0.02
FEWEST_PHASES: Final = 2
MOST_IN_A_BLOCK: Final = 3
# Fewer steps than this say nothing of a block.
FEWEST_STEPS: Final = 3


class Step(NamedTuple):
    """Steps that ended one after another, most often one; on our clock."""

    began_ns: int
    ended_ns: int
    number: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a try goes, fixed before its first block."""

    block_s: float
    settle_s: float
    pairs: int
    seed: int

    @property
    def seconds(self) -> float:
        """How long it takes at most, without phases."""
        return 2 * self.pairs * (self.block_s + self.settle_s)

    def orders(self) -> list[bool]:
        """Return for each pair whether the block with the change comes first."""
        rng = random.Random(self.seed)  # noqa: S311  an order, no secret
        found: list[bool] = []
        while len(found) < 2 * self.pairs:
            some = [True, False] * (AT_ONCE // 2)
            rng.shuffle(some)
            found += some
        return found


def plan(
    step_s: float, settle_s: float, seconds: float | None, seed: int, pause_s: float | None = None
) -> Plan:
    """Return the plan for steps of this length; raises where the time is too short for one."""
    settle = max(settle_s, SETTLE_STEPS * step_s)
    block = max(LEAST_S, STEPS * step_s, PAUSES * (pause_s or 0.0))
    least = 2 * FEWEST * (block + settle)
    given = max(SECONDS, least) if seconds is None else seconds
    if least > min(given, MOST_SECONDS):
        enough = math.ceil(least)
        next_step = (
            f"Give it more: --for {enough}"
            if least <= MOST_SECONDS
            else "Try it in a shorter job, and compare two runs: monitor compare RUN RUN"
        )
        raise UsageProblem(
            f"{given:g} s are too short: a block of steps takes {block + settle:.1f} s here, and"
            f" {2 * FEWEST} of them are the least.",
            next_step,
        )
    pairs = min(MOST_PAIRS, int(given / (2 * (block + settle))))
    longer = given / (2 * pairs) - settle
    return Plan(min(longer, max(block, LONGEST_S)), settle, pairs, seed)


@dataclass(slots=True)
class Block:
    """One stretch of time with or without the change, after it has settled."""

    is_on: bool
    began_ns: int
    ended_ns: int
    # When the knob was turned: a step that had begun by then is of both settings.
    turned_ns: int = 0
    steps: list[Step] = field(default_factory=list)

    def step_s(self, phases: Collection[Step]) -> float | None:
        """Return the mean length of a step that is no phase; ``None``: of too few.

        A step on an edge counts by its part inside: an edge falls into a long step more often than
        into a short one, and without those the long ones would look rare.
        """
        fit = [(self._inside_ns(step), step) for step in self.steps if step not in phases]
        number = sum(step.number * ns / (step.ended_ns - step.began_ns) for ns, step in fit if ns)
        if number < FEWEST_STEPS:
            return None
        return sum(ns for ns, _ in fit) / number / SECOND

    def _inside_ns(self, step: Step) -> int:
        return max(0, min(step.ended_ns, self.ended_ns) - max(step.began_ns, self.began_ns))


class Timeline:
    """What the agent has told of steps and pauses, on our clock."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        # Begin and end of the long collections.
        self.pauses: list[tuple[int, int]] = []

    def add(self, end_ns: int, each: int, durations: Sequence[int]) -> None:
        """Take in one record of the pace."""
        new: list[Step] = []
        for ns in reversed(durations):
            new.append(Step(end_ns - ns, end_ns, each))
            end_ns -= ns
        self.steps += reversed(new)

    def fill(self, block: Block) -> Block:
        """Give a block the steps that lie in it, or partly.

        It keeps those that it has where they have been forgotten: another kind of step has begun.
        """
        if self.steps and self.steps[0].began_ns <= block.began_ns:
            first = bisect.bisect_right(self.steps, block.began_ns, key=lambda s: s.ended_ns)
            last = bisect.bisect_left(self.steps, block.ended_ns, key=lambda s: s.began_ns)
            block.steps = [s for s in self.steps[first:last] if s.began_ns >= block.turned_ns]
        return block

    def middle_ns(self, since_ns: int = 0) -> float | None:
        """Return the middle length of a step; ``None``: of too few."""
        found = [(s.ended_ns - s.began_ns) / s.number for s in self.steps if s.began_ns >= since_ns]
        return statistics.median(found) if len(found) >= FEWEST_STEPS else None

    def between_pauses_s(self) -> float | None:
        """Return the mean time from one long collection to the next; ``None``: of too few."""
        if len(self.pauses) < FEWEST_STEPS:
            return None
        return (self.pauses[-1][1] - self.pauses[0][1]) / (len(self.pauses) - 1) / SECOND


@dataclass(frozen=True, slots=True)
class Measured:
    """What the pairs say."""

    ratios: list[float]
    # What a step took in each pair, without and with it; ``None``: of too few.
    pairs_s: list[tuple[float | None, float | None]]
    step_s: tuple[float | None, float | None]
    steps: int
    phases: int


def measure(pairs: Iterable[tuple[Block, Block]], timeline: Timeline) -> Measured:
    """Return the logarithm of each pair that has steps enough on both sides."""
    pairs = list(pairs)
    blocks = [block for pair in pairs for block in pair]
    phases = _phases(blocks, timeline.pauses)
    ratios: list[float] = []
    pairs_s: list[tuple[float | None, float | None]] = []
    for pair in pairs:
        off, on = sorted(pair, key=lambda block: block.is_on)
        without, with_it = off.step_s(phases), on.step_s(phases)
        pairs_s.append((without, with_it))
        if without and with_it:
            ratios.append(math.log(without / with_it))
    # One on the edges of two blocks is one.
    number = sum(step.number for step in {step for block in blocks for step in block.steps})
    off_s, on_s = (_mean([b for b in blocks if b.is_on is on], phases) for on in (False, True))
    return Measured(ratios, pairs_s, (off_s, on_s), number, len(phases))


def _mean(blocks: Iterable[Block], phases: Collection[Step]) -> float | None:
    known = [value for block in blocks if (value := block.step_s(phases)) is not None]
    return statistics.fmean(known) if known else None


def _phases(blocks: Sequence[Block], pauses: list[tuple[int, int]]) -> set[Step]:
    """Return the steps that are long and few, and that no collection made so."""
    steps = {step for block in blocks for step in block.steps}
    if not steps:
        return set()
    bound = PHASE * statistics.median((s.ended_ns - s.began_ns) / s.number for s in steps)
    found = {
        s
        for s in steps
        if s.ended_ns - s.began_ns > bound * s.number and not _is_collecting(s, pauses)
    }
    in_blocks = [(block.is_on, sum(s in found for s in block.steps)) for block in blocks]
    # The change may be what they come of, or what ends them: each side by itself.
    often = max(
        statistics.fmean(number for is_on, number in in_blocks if is_on is side)
        for side in {is_on for is_on, _ in in_blocks}
    )
    is_few = len(found) <= FEW * len(steps) and often < MOST_IN_A_BLOCK
    return found if is_few or len(found) <= FEWEST_PHASES else set()


def _is_collecting(step: Step, pauses: list[tuple[int, int]]) -> bool:
    inside = sum(
        max(0, min(step.ended_ns, end) - max(step.began_ns, begin)) for begin, end in pauses
    )
    return 2 * inside > step.ended_ns - step.began_ns
