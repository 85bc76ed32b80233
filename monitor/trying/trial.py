"""One try from its first block to the last: in turns with the change and without it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from whyidle.monitor.core.errors import Problem, UsageProblem
from whyidle.monitor.trying import guard
from whyidle.monitor.trying.blocks import FEWEST_STEPS, SECOND, Block, Measured, Plan, measure, plan
from whyidle.monitor.trying.knobs import Knob
from whyidle.monitor.trying.line import Line
from whyidle.monitor.trying.sequential import Estimate, Looks
from whyidle.monitor.trying.switches import Switch

# The job is first watched for so many steps, or so long; without a step for so long it has none
# that are known.
WATCHED_STEPS: Final = 20
WATCHED_S: Final = 10.0
NO_STEP_S: Final = 30.0
# The collector comes seldom: where it is what a knob is about, it is awaited for so long.
PAUSES_S: Final = 20.0
# No step has ended for so many of their lengths, and so long: the job does something else.
STANDS: Final = 20
STANDS_S: Final = 3.0
MOST_REST_S: Final = 600.0
# Pairs that a phase has spoilt are made again; so often.
MOST_SPOILT: Final = 10
YOU: Final = "you stopped it"


class _Stopped(Exception):  # noqa: N818  an end
    """Why a try ends before its plan does."""


@dataclass(slots=True)
class Outcome:
    """What a try has found, and how it ended."""

    plan: Plan
    estimate: Estimate | None
    measured: Measured
    seconds: float
    # Why it ended before its plan did.
    stopped: str | None = None
    is_kept: bool = False
    # Not on us: the job has set it itself since.
    is_left: bool = False


@dataclass
class Trial:
    """Runs one try."""

    line: Line
    knob: Knob
    switch: Switch
    seconds: float | None
    seed: int
    memory: guard.MemoryGuard
    # Called before the first change, with what was before.
    begun: Callable[[], None]
    tell: Callable[[str], None]
    # Called after each pair, with what all of them say by then.
    paired: Callable[[Plan, Measured, Estimate | None], None] = lambda *_: None
    _on: bool = False
    _step_ns: float = 0.0
    _pairs: list[tuple[Block, Block]] = field(default_factory=list)

    def run(self, *, keep: bool) -> Outcome:
        """Measure, and leave the job as it was, unless it is to be kept."""
        chosen = self._look_on()
        looks = Looks(chosen.pairs)
        began = time.monotonic()
        estimate: Estimate | None = None
        stopped: str | None = None
        try:
            try:
                estimate = self._measure(chosen, looks)
            except KeyboardInterrupt:
                stopped = YOU
            except _Stopped as why:
                stopped = str(why)
            found = self._measured()
            estimate = estimate or looks.now(found.ratios)
            kept = keep and stopped is None and (estimate is None or estimate.verdict != "slower")
            if kept:
                self._turn(on=True)
                self.switch.keep()
                self._on = False
        finally:
            self._turn(on=False)
        return Outcome(
            chosen,
            estimate,
            found,
            time.monotonic() - began,
            stopped,
            is_kept=kept,
            is_left=self.switch.is_left,
        )

    # Inside --------------------------------------------------------------------------------------
    def _look_on(self) -> Plan:
        """Watch the job until its steps are known, and make the plan."""
        began = time.monotonic()
        timeline, line = self.line.timeline, self.line
        line.ask("watch", on=True)
        while True:
            line.wait(0.5)
            took = time.monotonic() - began
            steps = sum(step.number for step in timeline.steps)
            enough = steps >= WATCHED_STEPS or (took > WATCHED_S and steps >= FEWEST_STEPS)
            pauses = timeline.between_pauses_s()
            if enough and (not self.knob.is_about_gc or pauses is not None or took > PAUSES_S):
                break
            if not steps and took > NO_STEP_S:
                raise _no_steps(line)
            if took > 2 * NO_STEP_S and steps < FEWEST_STEPS:
                raise _no_steps(line)
        step_ns = timeline.middle_ns()
        assert step_ns is not None  # noqa: S101  there are enough
        self._step_ns = step_ns
        return plan(
            step_ns / SECOND,
            self.knob.settle_s,
            self.seconds,
            self.seed,
            pauses if self.knob.is_about_gc else None,
        )

    def _measure(self, chosen: Plan, looks: Looks) -> Estimate | None:
        """Return the interval of the look that was enough, or the last."""
        spoilt = 0
        for on_first in chosen.orders():
            pair = self._pair(chosen, on_first=on_first)
            if pair is None:
                spoilt += 1
                if spoilt > MOST_SPOILT:
                    raise _Stopped("the job paused too often")
                continue
            self._pairs.append(pair)
            found = self._measured()
            ratios = found.ratios
            self.paired(chosen, found, looks.now(ratios))
            self.tell(f"{len(ratios)} of at most {chosen.pairs} pairs")
            if guard.is_much_slower(ratios):
                raise _Stopped(f"the job became more than {guard.SLOWER:.0%} slower")
            estimate = looks.at(ratios)
            if len(ratios) >= chosen.pairs or (estimate is not None and estimate.is_enough):
                return estimate
        return None

    def _pair(self, chosen: Plan, *, on_first: bool) -> tuple[Block, Block] | None:
        """Return two neighbouring blocks; ``None`` where the job stood still in one."""
        blocks: list[Block] = []
        for on in (on_first, not on_first):
            turned = self._turn(on=on) or time.monotonic_ns()
            began = turned + round(chosen.settle_s * SECOND)
            if not self._stay(chosen.settle_s + chosen.block_s):
                return None
            # The step that runs when the knob is turned next is of both settings.
            ended = time.monotonic_ns() - round(self._step_ns)
            blocks.append(Block(on, began, ended, turned))
        self.line.flush()
        return blocks[0], blocks[1]

    def _measured(self) -> Measured:
        """Return what all pairs say by now: the step on an edge may have ended since."""
        timeline = self.line.timeline
        for pair in self._pairs[-2:]:
            for block in pair:
                timeline.fill(block)
        return measure(self._pairs, timeline)

    def _turn(self, *, on: bool) -> int | None:
        """Turn the knob, if it is not there yet; return when that was."""
        if on is self._on:
            return None
        if not on:
            turned = self.switch.off()
            self._on = False
            return turned
        # Before: whatever comes in between, it is turned back at the end.
        self._on = True
        turned = self.switch.on()
        self.begun()
        return turned

    def _stay(self, seconds: float) -> bool:
        """Let a block pass; ``False`` where no step ended for long: then it is off, and waits."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.line.wait(min(left, 0.5))
            if self._on and self.memory.is_near():
                raise _Stopped("memory is near its limit")
            if self._stands():
                self._turn(on=False)
                self._rest()
                return False
        return True

    def _stands(self) -> bool:
        steps = self.line.timeline.steps
        # The agent tells of steps once a second.
        longest = max(STANDS * self._step_ns, STANDS_S * SECOND)
        return not steps or time.monotonic_ns() - steps[-1].ended_ns > longest

    def _rest(self) -> None:
        until = time.monotonic() + MOST_REST_S
        while self._stands():
            if time.monotonic() > until:
                raise Problem(
                    f"No step has ended for {MOST_REST_S / 60:.0f} minutes: the job does something"
                    " else now. It is as it was.",
                    "Try it again when it trains.",
                )
            self.line.wait(0.5)


def _no_steps(line: Line) -> UsageProblem:
    pid = line.link.key.pid
    if line.is_losing:
        return UsageProblem(
            f"The steps of process {pid} come faster than they are counted: so nothing says whether"
            " it got faster.",
            "Mark each hundredth of them with whyidle.step(), and start it again.",
        )
    return UsageProblem(
        f"No steps of process {pid} are known: without them nothing says whether it got faster.",
        "Mark the end of each with whyidle.step() in its loop, and start it again.",
    )
