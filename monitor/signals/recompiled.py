"""What is compiled: programs that are alive, and functions that are compiled again and again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import functions
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import AGAIN, LEAST_POINTS, NEARLY_ALL
from whyidle.monitor.core.finding import MOST_LOST
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.sampling import SURE
from whyidle.monitor.signals.window import Window

# The recorder's own event for so many compilations of one function, from one line, in a minute.
STORM: Final = "retrace_storm"
# The compiler of PyTorch makes a dimension that changed a variable with its second program, and
# after the eighth of one function leaves it to Python for good (`recompile_limit`).
LEAST_TIMES_OF: Final = {"torch": 5}
# The first run of what was compiled takes longer: of 12 shapes of one step on a CPU 1.5 times as
# long as the second (new pages, a program that is in no cache), and the search for a program and
# the way into it a tenth of what is left.
AFTER_THE_FIRST: Final = 0.57
# TensorFlow optimizes and places a graph in its first run, which the agent does not see: that took
# 0.50 to 0.75 of what tracing it took (perceptrons of 2 and 20 layers, a convolutional and a
# recurrent network on a CPU), and four times as much where XLA compiles it.
OPTIMIZED, OPTIMIZED_MOST, OPTIMIZED_BY_XLA = 0.5, 0.75, 4.0


@dataclass(frozen=True, slots=True)
class Recompiled:
    """One function that is compiled again and again."""

    function: Compiled
    # Of the steady time.
    share: Measure
    # Whether it was only a few times so far, which may lie together by chance.
    is_few: bool = False


def compiled_again(job: Recorded) -> list[Recompiled]:
    """Return them, the most costly first; none where compiling is over."""
    share = job.mean(m.JOB_COMPILE)
    whole = sum(one.ns for one in job.compiled)
    if share is None or not whole:
        return []
    storms = {(e.get("function"), e.get("file"), e.get("line")) for e in job.events.get(STORM, ())}
    fresh = [(one, one.count - one.cached) for one in job.compiled]
    again = [
        one
        for one, times in fresh
        if times >= LEAST_TIMES_OF.get(one.framework, LEAST_POINTS)
        or (one.function, one.file, one.line) in storms
    ]
    is_few = not again and share.value >= NEARLY_ALL
    if is_few:
        of_jax = ((one, times) for one, times in fresh if one.framework == "jax" and one.reason)
        again = [one for one, times in of_jax if times >= AGAIN]
    # The whole recording shows which functions compile, its steady part how much.
    return [Recompiled(one, share.times(one.ns / whole), is_few) for one in again]


def taken(window: Window, again: list[Recompiled], *, grown: float) -> tuple[float, float]:
    """Return the least and the most of the time that compiling and first runs take in the long run.

    ``grown``: a run takes so many times as long at most once all fit a program that is there.
    """
    job, host, pace = window.job, window.host, window.per_step(m.PROCESS_COMPILES)
    lost = min(1.0, sum(one.share.value for one in again))
    first = 1.0 if pace is None else min(1.0, pace.value)
    is_tensorflow = again[0].function.framework == "tensorflow"
    least, other = lost, 1.0
    if is_tensorflow:
        # One takes as long as another: where each step has one nothing is by chance.
        other = 1.0 if pace is None else 1 - first
    elif host is not None and (sampled := host.share(HostClass.COMPILE)):
        # What is compiled within another function counts in both; samples count a moment once.
        least = min(lost, max(0.0, sampled - host.error(sampled)))
    # How many compilations fell into this window is chance; so is what they are to the rest.
    number, rate = (
        sum(x.function.count - x.function.cached for x in again),
        job.mean(m.PROCESS_COMPILES),
    )
    number = number if rate is None else min(number, round(rate.value * job.seconds))
    factor = 1 + SURE * math.sqrt(other / max(1, number))
    least, lost = (min(MOST_LOST, share) / (1 - min(MOST_LOST, share)) for share in (least, lost))
    low, high = (odds / (1 + odds) for odds in (least / factor, lost * factor))
    if is_tensorflow:
        # The tracing, and what the first run of each graph takes besides.
        most = OPTIMIZED_BY_XLA if window.fact("jit_compile") else OPTIMIZED_MOST
        low, high = low * (1 + OPTIMIZED), high * (1 + most)
    else:
        # A run is no longer than its compilation, so that all first runs take no more than that
        # does. What is left may grow.
        least, most = (
            share + (1 - AFTER_THE_FIRST) * min(share, first * (1 - share)) for share in (low, high)
        )
        low, high = 1 - grown * (1 - least) if grown > 1 else low, max(least, most)
    if again[0].is_few:
        # At least what they are of all that was recorded.
        spent = sum(one.function.ns for one in again) / 1e9 / (job.seconds + job.warm_s)
        low = min(low, spent)
    return low, high


def alive(window: Window) -> Iterator[Compiled]:
    """Yield the compiled programs that are alive, by the functions of their names.

    These are looked for in the files that the main thread was found in.
    """
    named = window.fact("executables_by_name") or {}
    largest = window.fact("largest_executables") or ()
    names = dict.fromkeys((*named, *(str(program.get("name")) for program in largest)))
    files = dict.fromkeys(line.file for line in window.job.lines)
    for name in (each.removeprefix("jit_") for each in names):
        for file in files:
            for function in functions(file, name):
                yield Compiled("jax", name, 1, 0, 0, None, file, function.lineno)
