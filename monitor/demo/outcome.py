"""What a fix has brought: both runs read back, and what was said of it beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from whyidle.monitor import compare
from whyidle.monitor.compare.bootstrap import Interval
from whyidle.monitor.compare.result import Fault
from whyidle.monitor.demo.pairs import Pair
from whyidle.monitor.demo.watched import Watched
from whyidle.monitor.diagnose import as_json, diagnose
from whyidle.monitor.finding import Gain
from whyidle.monitor.signals.window import Window

# Findings worth a person's time; what is less stays unmentioned.
MATTERS: Final = ("high", "medium")
# The step of a small job on a shared machine is known to a few percent.
CLOSE: Final = 0.03
NOT_PRINTED: Final = "the program printed no such number"
NO_TIME: Final = "this fault costs no time yet, so none was predicted"
NOT_FOUND: Final = "the fault was not found before the fix"

Told = Mapping[str, Any]


@dataclass(frozen=True)
class Half:
    """One side: what the program printed, and what the monitor says of it."""

    watched: Watched
    window: Window

    @cached_property
    def diagnosis(self) -> Told:
        """What ``monitor diagnose --json`` says of it."""
        return as_json(diagnose(self.window))

    @property
    def findings(self) -> list[Told]:
        """The findings, the most important first."""
        return list(self.diagnosis["findings"])

    @property
    def top(self) -> str | None:
        """The rule that stands first."""
        return next((each["rule"] for each in self.findings), None)

    def of(self, rule: str) -> Told | None:
        """Return what one rule found."""
        return next((each for each in self.findings if each["rule"] == rule), None)


def faster(before: Told, after: Told) -> float | None:
    """Return the speed-up: by samples, where both told, because a fix may change the batch."""
    if before.get("samples_per_s") and after.get("samples_per_s"):
        return float(after["samples_per_s"] / before["samples_per_s"])
    if before.get("step_ms") and after.get("step_ms"):
        return float(before["step_ms"] / after["step_ms"])
    return None


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
        found = [faster(printed(before), printed(after)) for before, after in both]
        return [each for each in found if each is not None]

    @property
    def speedup(self) -> float | None:
        """The middle one of them."""
        return statistics.median(self.speedups) if self.speedups else None

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
        counts = [len(pace.stretches) for pace in paces if pace is not None]
        what = "stretches of steps" if paces[0].by == "counted" else "steps of the traces"
        return f"95% interval, resampled from {counts[0]} and {counts[-1]} {what}"

    @property
    def predicted(self) -> tuple[float, float] | None:
        """What the findings promised, all fixes of the pair together."""
        told = [found for rule in self.pair.faults if (found := self.before.of(rule))]
        timed = [each for each in told if each["speedup"]]
        if len(timed) == 1:
            return timed[0]["speedup"][0], timed[0]["speedup"][1]
        # Those of one slice give it back only once.
        shares = [each["lost_share"] for each in timed if not each["behind"]]
        if not shares:
            return None
        # What one gives back the other may have counted as well: at least the larger comes back.
        least, most = max(low for low, _ in shares), sum(high for _, high in shares)
        return Gain.between(least, most).speedup

    @property
    def is_as_predicted(self) -> bool | None:
        """Whether the measured speed-up lies in the range; ``None`` where one is not known."""
        if self.speedup is None or self.predicted is None:
            return None
        low, high = self.predicted
        return (1 - CLOSE) * low <= self.speedup <= (1 + CLOSE) * high

    @property
    def gone(self) -> list[str]:
        """Rules whose finding was worth a person's time, and is not any more."""
        faults = self.comparison.faults
        found = (*faults.gone, *faults.kept)
        return _rules(f for f in found if f.a in MATTERS and f.b not in MATTERS)

    @property
    def left(self) -> list[str]:
        """Rules that find it on both sides."""
        return _rules(f for f in self.comparison.faults.kept if f.a in MATTERS and f.b in MATTERS)

    @property
    def new(self) -> list[str]:
        """Rules that find something only after."""
        faults = self.comparison.faults
        found = (*faults.new, *faults.kept)
        return _rules(f for f in found if f.b in MATTERS and f.a not in MATTERS)

    @property
    def not_judged(self) -> list[str]:
        """Rules that found something before, and could not judge after."""
        return _rules(f for f in self.comparison.faults.unknown if f.a in MATTERS)

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
        return found

    @property
    def why_no_interval(self) -> str:
        """Say why nobody knows how far chance moves the speed-up."""
        steps = self.comparison.steps
        if steps is None:
            return self.comparison.why_no_steps or "no step could be told apart"
        return steps.speedup.why_no_bounds or "it is not known"

    def as_json(self) -> dict[str, Any]:
        """Return the answer of ``monitor demo --json``."""
        measured, predicted = self.measured, self.predicted
        steps = self.comparison.steps
        sides = (None, None) if steps is None else (steps.a, steps.b)
        return {
            "fault": self.pair.name,
            "framework": self.pair.framework,
            "faults": list(self.pair.faults),
            "before": _told(self.before, sides[0]),
            "after": _told(self.after, sides[1]),
            "predicted": None if predicted is None else [round(n, 3) for n in predicted],
            "measured": [None if n is None else round(n, 3) for n in measured],
            "measured_over": self.measured_over,
            "as_predicted": self.is_as_predicted,
            "findings_gone": self.gone,
            "findings_left": self.left,
            "findings_new": self.new,
            "findings_not_judged": self.not_judged,
            "unknown": self.unknown,
        }


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


def printed(watched: Watched) -> dict[str, Any]:
    """Return what a program said of its pace."""
    return {"step_ms": watched.step_ms, "samples_per_s": watched.samples_per_s}


def _rules(faults: Iterable[Fault]) -> list[str]:
    return [each.rule for each in faults]


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    """Return the ends of an interval over its middle."""
    if interval is None or interval.low is None or interval.high is None or not interval.middle:
        return None, None
    return interval.low / interval.middle, interval.high / interval.middle


def _told(side: Half, seen: Interval | None) -> dict[str, Any]:
    """Return one side: the time of a step as the program printed it, and how sure it is."""
    watched, ends = side.watched, _ends(seen)
    middle = None if watched.step_ms is None else watched.step_ms * 1e6
    step = [None if middle is None or end is None else round(middle * end) for end in ends]
    unknown = {}
    if middle is None:
        unknown["step_ns"] = NOT_PRINTED
    elif None in ends:
        unknown["step_ns"] = (seen and seen.why_no_bounds) or "only the middle step is known"
    return {
        "run": watched.run,
        "script": str(watched.script),
        "step_ns": [step[0], None if middle is None else round(middle), step[1]],
        "samples_per_s": watched.samples_per_s,
        "top": side.top,
        "findings": [
            {name: each[name] for name in ("rule", "severity", "title", "lost_share", "speedup")}
            for each in side.findings
        ],
        "budget": side.diagnosis["budget"],
        "budget_source": side.diagnosis["budget_source"],
        "unknown": unknown,
    }
