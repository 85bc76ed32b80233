"""What is compiled: programs that are alive, and functions that are compiled again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.code.source import functions
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.runs.aggregates import Compiled
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.window import Window

# The recorder's own event for so many compilations of one function, from one line, in a minute.
STORM: Final = "retrace_storm"
# So often is no warming up any more, also where it took longer than that minute. The compiler of
# PyTorch makes a dimension that changed a variable with its second program, and after the eighth of
# one function leaves it to Python for good (`recompile_limit`).
LEAST_TIMES: Final = 10
LEAST_TIMES_OF: Final = {"torch": 5}
# Where nearly all of the time goes into compiling, a few are enough of JAX's, which never gives up:
# once, again, and once more with something else that has changed.
LEAST_LONG: Final = 3
MOSTLY: Final = 0.75


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
        if times >= LEAST_TIMES_OF.get(one.framework, LEAST_TIMES)
        or (one.function, one.file, one.line) in storms
    ]
    is_few = not again and share.value >= MOSTLY
    if is_few:
        of_jax = ((one, times) for one, times in fresh if one.framework == "jax" and one.reason)
        again = [one for one, times in of_jax if times >= LEAST_LONG]
    # The whole recording shows which functions compile, its steady part how much.
    return [Recompiled(one, share.times(one.ns / whole), is_few) for one in again]


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
