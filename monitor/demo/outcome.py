"""What a fix has brought: both runs read back, and what was said of it beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from whyidle.monitor import compare
from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.crowd import STARVED
from whyidle.monitor.compare.pace import ALIKE, settled
from whyidle.monitor.compare.result import Fault
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.contracts.diagnosis import DiagnosisJson, FindingJson
from whyidle.monitor.core.finding import Gain
from whyidle.monitor.demo.pairs import Pair
from whyidle.monitor.demo.printed import faster, is_inside
from whyidle.monitor.demo.watched import Watched
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.signals.window import Window

# Findings worth a person's time; what is less stays unmentioned.
MATTERS: Final = ("high", "medium")
NOT_PRINTED: Final = "the program printed no such number"
NO_TIME: Final = "this fault costs no time yet, so none was predicted"
NOT_FOUND: Final = "the fault was not found before the fix"
NO_WAITS: Final = "how long the main thread waited for a core was not recorded on both sides"


@dataclass(frozen=True)
class Half:
    """One side: what the program printed, and what the monitor says of it."""

    watched: Watched
    window: Window

    @cached_property
    def diagnosis(self) -> DiagnosisJson:
        """What ``monitor diagnose --json`` says of it."""
        return as_json(diagnose(self.window))

    @property
    def findings(self) -> list[FindingJson]:
        """The findings, the most important first."""
        return self.diagnosis.findings

    @property
    def waited(self) -> float | None:
        """The share of the time in which its main thread waited for a core."""
        return self.window.job.means.get(m.JOB_MAIN_THREAD_WAIT)

    @property
    def batch(self) -> float | None:
        """The samples of a step, by what the program printed."""
        step_ms, pace = self.watched.step_ms, self.watched.samples_per_s
        return step_ms * pace / 1000 if step_ms and pace else None

    def of(self, rule: str) -> FindingJson | None:
        """Return what one rule found."""
        return next((each for each in self.findings if each.rule == rule), None)


@dataclass(frozen=True)
class Outcome:
    """A pair that was run."""

    pair: Pair
    before: Half
    after: Half
    comparison: compare.Comparison
    # Both sides run again, in turns.
    rounds: tuple[tuple[Watched, Watched], ...] = ()

    @property
    def speedups(self) -> list[float]:
        """How many times faster the job became in each round, by what the programs printed."""
        both = [(self.before.watched, self.after.watched), *self.rounds]
        found = [faster(_pace(before), _pace(after)) for before, after in both]
        return [each for each in found if each is not None]

    @property
    def speedup(self) -> float | None:
        """The middle one of them."""
        return statistics.median(self.speedups) if self.speedups else None

    @property
    def work(self) -> tuple[Literal["step", "sample"], float, float] | None:
        """A piece of work that is the same on both sides, and its time on each, in ns."""
        sides = (self.before, self.after)
        steps = [each.watched.step_ms for each in sides]
        paces = [each.watched.samples_per_s for each in sides]
        one, two = (each.batch for each in sides)
        if steps[0] and steps[1] and not (one and two and abs(one / two - 1) >= ALIKE):
            return "step", steps[0] * 1e6, steps[1] * 1e6
        if paces[0] and paces[1]:
            return "sample", 1e9 / paces[0], 1e9 / paces[1]
        return None

    @property
    def measured(self) -> tuple[float | None, float | None, float | None]:
        """The speed-up between the ends of its interval, each where it is known.

        The middle is of the whole runs. How far chance moves it several rounds show; of one round
        only the steps that were seen do, and they are not all.
        """
        middle, steps = self.speedup, self.comparison.steps
        if len(self.speedups) > 1:
            return min(self.speedups), middle, max(self.speedups)
        ends = (None, None) if steps is None else _ends(steps.speedup)
        if middle is None or ends[0] is None or ends[1] is None:
            return None, middle, None
        return middle * ends[0], middle, middle * ends[1]

    @property
    def measured_over(self) -> str | None:
        """Say what the interval is of."""
        if len(self.speedups) > 1:
            return f"the least and the most of {len(self.speedups)} rounds"
        if None in self.measured or self.comparison.a.pace is None:
            return None
        paces = (self.comparison.a.pace, self.comparison.b.pace)
        counts = [len(settled(pace)) for pace in paces if pace is not None]
        what = "stretches of steps" if paces[0].by == "counted" else "steps of the traces"
        return f"95% interval, resampled from {counts[0]} and {counts[-1]} {what}"

    @property
    def predicted(self) -> tuple[float, float] | None:
        """What the findings promised, all fixes of the pair together."""
        return promised([f for rule in self.pair.faults if (f := self.before.of(rule))])

    @property
    def is_as_predicted(self) -> bool | None:
        """Whether the measured speed-up lies in the range; ``None`` where one is not known."""
        if self.speedup is None or self.predicted is None:
            return None
        return is_inside(self.predicted, self.speedup)

    @property
    def gone(self) -> list[str]:
        """Rules whose finding was worth a person's time, and is not any more."""
        faults = self.comparison.faults
        found = (*faults.gone, *faults.kept)
        return self._rules(f for f in found if f.a in MATTERS and f.b not in MATTERS)

    @property
    def left(self) -> list[str]:
        """Rules that find it on both sides."""
        kept = self.comparison.faults.kept
        return self._rules(f for f in kept if f.a in MATTERS and f.b in MATTERS)

    @property
    def new(self) -> list[str]:
        """Rules that find something only after."""
        faults = self.comparison.faults
        found = (*faults.new, *faults.kept)
        return self._rules(f for f in found if f.b in MATTERS and f.a not in MATTERS)

    @property
    def not_judged(self) -> list[str]:
        """Rules that found something before, and could not judge after."""
        return self._rules(f for f in self.comparison.faults.unknown if f.a in MATTERS)

    def top(self, side: Half) -> str | None:
        """Return the rule that stands first on one side, whatever else the machine does."""
        return next((each.rule for each in side.findings if self._is_ours(each.rule)), None)

    @property
    def waits(self) -> str | None:
        """Say how much the cores were taken, where that was found on a side."""
        found = [each for half in (self.before, self.after) if (each := half.of(STARVED))]
        if self._is_ours(STARVED) or not any(each.severity in MATTERS for each in found):
            return None
        # What costs the job a time to win back are its own threads, or its limit.
        is_own = any(each.lost_share for each in found)
        what = "the main thread waited for a core" if is_own else "other programs took cores"
        before, after = (_percent(half.waited) for half in (self.before, self.after))
        return f"{what}: before {before}, after {after} of the time"

    def _is_ours(self, rule: str) -> bool:
        """Tell whether a fix can bring it or take it away; what the neighbours do it cannot."""
        return rule != STARVED or rule in self.pair.faults

    def _rules(self, faults: Iterable[Fault]) -> list[str]:
        return [each.rule for each in faults if self._is_ours(each.rule)]

    @property
    def unknown(self) -> dict[str, str]:
        """Why something is not known."""
        found = {}
        if self.speedup is None:
            found["measured"] = NOT_PRINTED
        elif None in self.measured:
            found["measured"] = self.why_no_interval
        if self.predicted is None:
            is_found = any(self.before.of(rule) for rule in self.pair.faults)
            found["predicted"] = NO_TIME if is_found else NOT_FOUND
        if None in (self.before.waited, self.after.waited):
            found["waited_for_core"] = NO_WAITS
        return found

    @property
    def why_no_interval(self) -> str:
        """Say why it is not known how far chance moves the speed-up."""
        steps = self.comparison.steps
        if steps is None:
            return self.comparison.why_no_steps or "no step could be told apart"
        return steps.speedup.why_no_bounds or "it is not known"


def promised(findings: Iterable[FindingJson]) -> tuple[float, float] | None:
    """Return the speed-up that findings promise, all their fixes together."""
    timed = [each for each in findings if each.speedup]
    if len(timed) == 1 and timed[0].speedup:
        low, high = timed[0].speedup
        return low, high
    # Those of one slice give it back only once.
    shares = [each.lost_share for each in timed if each.lost_share and not each.behind]
    if not shares:
        return None
    # What one gives back the other may have counted as well: at least the larger comes back.
    least, most = max(low for low, _ in shares), sum(high for _, high in shares)
    return Gain.between(least, most).speedup


def of_runs(store: Path, pair: Pair, rounds: Sequence[tuple[Watched, Watched]]) -> Outcome:
    """Read the first round back and compare it; of the others only the pace counts."""
    before, after = rounds[0]
    sides = [compare.of_run(store, str(watched.run)) for watched in (before, after)]
    return Outcome(
        pair,
        Half(before, sides[0].window),
        Half(after, sides[1].window),
        compare.compare(sides[0], sides[1]),
        tuple(rounds[1:]),
    )


def _pace(watched: Watched) -> dict[str, float | None]:
    """Return what a program said of its pace."""
    return {"step_ms": watched.step_ms, "samples_per_s": watched.samples_per_s}


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    """Return the ends of an interval over its middle."""
    if interval is None or interval.low is None or interval.high is None or not interval.middle:
        return None, None
    return interval.low / interval.middle, interval.high / interval.middle


def _percent(part: float | None) -> str:
    return "not known" if part is None else f"{part:.0%}"
