"""The machine around both: whether other programs left each of them the same cores."""

from __future__ import annotations

from typing import Final

from whyidle.monitor.compare.sides import Side
from whyidle.monitor.core import metrics as m
from whyidle.monitor.diagnosis.ranking import Finding
from whyidle.monitor.signals.window import Window

# Of the time; a smaller difference slows nothing down that could be measured.
NOTABLE_WAIT: Final = 0.05
# Of the cores of the machine: who else took so much more of them was a change of its own.
NOTABLE_USE: Final = 0.1
# The rule that finds the machine's other programs as well as the job's own fault.
STARVED: Final = "cpu_starved"
NOT_THE_SAME: Final = "the machine was not the same for both"


def waits(a: Side, b: Side) -> tuple[float, float] | None:
    """Return how long both main threads waited for a core, where one had to and the other less."""
    one, two = (side.window.job.means.get(m.JOB_MAIN_THREAD_WAIT) for side in (a, b))
    if one is None or two is None or abs(one - two) < NOTABLE_WAIT:
        return None
    return one, two


def is_of_neighbours(finding: Finding, a: Window, b: Window) -> bool:
    """Tell whether what one side alone has may be due to other programs, and not to the change."""
    if finding.rule.id != STARVED:
        return False
    one, two = _others(a), _others(b)
    alike = one is not None and two is not None and abs(one - two) < NOTABLE_USE
    # What other programs take is shown without a saving.
    return not alike or finding.found.gain is None


def _others(window: Window) -> float | None:
    """Return which share of the machine's cores other programs took."""
    means = window.job.means
    busy, cores, own = (means.get(x) for x in (m.HOST_CPU, m.HOST_CORES, m.JOB_CPU))
    if busy is None or not cores or own is None:
        return None
    return max(0.0, busy - own / cores)
