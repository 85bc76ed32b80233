"""Stack samples of the main thread within the steps: without start-up, and with their error.

A recording of a minute still holds the seconds in which the job imported its libraries and built
its model. They are no part of a step, and make every share of one look smaller than it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from whyidle.monitor.code.once import run_once
from whyidle.monitor.core.finding import SourceLine
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.libraries.frames import kind_of, plays
from whyidle.monitor.libraries.table import Kind, Role
from whyidle.monitor.runs.stacks import summed
from whyidle.monitor.signals.recorded import Recorded

# By chance nineteen of twenty such counts miss by less than twice their standard error.
SURE: Final = 2.0
# Where the number of samples is not known: as many as ten seconds have.
FEW: Final = 1 / 50


def error_of(share: float, samples: float, *, is_rare: bool = False) -> float:
    """Return by how much a share of so many samples may be wrong by chance.

    ``is_rare``: what was seen in none of them, or in all, may still be otherwise.
    """
    if not samples:
        return 1.0
    share = min(1.0, share)
    return SURE * math.sqrt(max(share * (1 - share), is_rare / samples) / samples)


@dataclass(frozen=True, slots=True)
class StepSamples:
    """Where the main thread was found in the steps, by its own lines and by anybody's."""

    lines: tuple[SourceLine, ...]
    leaves: tuple[SourceLine, ...]
    # The share of one sample.
    one: float
    # Start-up that was left out by its lines, and is still among the leaves, not known where.
    hidden: float = 0.0

    def error(self, share: float) -> float:
        """Return by how much a share may be wrong by chance."""
        return error_of(share, 1 / self.one)

    def at_leaves(self, does: Callable[[SourceLine], bool]) -> float:
        """Return the share of the leaves that do something; of it only what is no start-up."""
        mine = {(line.file, line.line) for line in self.lines}
        own = others = 0.0
        for leaf in self.leaves:
            if not does(leaf):
                continue
            if (leaf.file, leaf.line) in mine:
                own += leaf.share
            else:
                others += leaf.share
        return min(1.0, own + max(0.0, others - self.hidden))


def step_samples(job: Recorded) -> StepSamples:
    """Return the samples of the steps; all of them where no start-up was seen."""
    out = start_up(job.lines, by_time=bool(job.warm_s))
    taken = sum(line.share for line in out)
    left = 1.0 - taken
    one = min([FEW, *(line.share for line in (*job.lines, *job.leaves))])
    if job.looks:
        one = 1 / job.looks
    if not out or left <= 0:
        return StepSamples(tuple(job.lines), tuple(job.leaves), one)
    places = {(line.file, line.line) for line in out}
    lines, leaves = (
        tuple(
            replace(line, share=min(1.0, line.share / left))
            for line in some
            if (line.file, line.line) not in places
        )
        for some in (job.lines, job.leaves)
    )
    known = sum(leaf.share for leaf in job.leaves if (leaf.file, leaf.line) in places)
    return StepSamples(lines, leaves, min(1.0, one / left), max(0.0, taken - known) / left)


def start_up(lines: Iterable[SourceLine], *, by_time: bool = False) -> frozenset[SourceLine]:
    """Return the lines that run once, and before the steps; ``by_time``: these are known already.

    A line that runs once may also hold the whole training (``trainer.fit(model)``). So it must be
    an import, or stand before the last loop, in which the main thread was found more.
    """
    once = [(line, at) for line in lines if (at := run_once(line.file).get(line.line)) is not None]
    imports = {line for line, at in once if at.imports}
    if by_time:
        return frozenset(imports)
    before: set[SourceLine] = set()
    for scope in {(line.file, at.scope) for line, at in once}:
        mine = [(x, at) for x, at in once if (x.file, at.scope) == scope and not at.imports]
        loops = summed((at.loop, x.share) for x, at in mine if at.loop is not None)
        last = max(loops, default=0)
        some = [x for x, at in mine if at.loop is None and x.line < last]
        if some and loops[last] > sum(x.share for x in some):
            before.update(some)
    return frozenset(imports | before)


def share_of_lines(
    job: Recorded, places: Iterable[tuple[str, int]], *, arrays: bool = False
) -> Measure | None:
    """Return how much of the main thread's time goes to these lines; ``None``: not sampled.

    Only samples count that found it at the line itself, or in helpers of a tensor: a line may also
    call a whole model. ``arrays``: what is made of large values on the host counts, too.
    """
    if not job.lines:
        return None
    seen, wanted = step_samples(job), set(places)
    own = sum(line.share for line in seen.lines if (line.file, line.line) in wanted)
    at = seen.at_leaves(
        lambda leaf: (
            (leaf.file, leaf.line) in wanted
            or plays(Role.TENSOR, leaf)
            or (arrays and kind_of(leaf.file) is Kind.ARRAYS)
        )
    )
    return job.sampled(min(own, at))
