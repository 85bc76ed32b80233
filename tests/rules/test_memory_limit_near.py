"""The rule memory_limit_near."""

from __future__ import annotations

from tests.rules.windows import cannot_judge, found, judge, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.signals.recorded import Trend

NAME = "memory_limit_near"
FIXES: dict[str, tuple[str, str]] = {}
GIB = float(1 << 30)
NEAR: dict[Metric, float] = {m.JOB_MEMORY_LIMIT: 32 * GIB, m.JOB_MEMORY_USED: 31 * GIB}


def test_hardly_anything_is_left() -> None:
    finding = found(NAME, window(means=NEAR))
    assert (finding.gain, finding.severity) == (None, Severity.LOW)
    assert finding.fixes is not None
    assert "--mem=40G" in finding.fixes["pytorch"].text


def test_the_newest_use_counts() -> None:
    assert judge(NAME, window(means=NEAR, lasts={m.JOB_MEMORY_USED: 12 * GIB})) is None


def test_processes_that_were_killed() -> None:
    means = {m.JOB_MEMORY_LIMIT: 32 * GIB, m.JOB_MEMORY_USED: 9 * GIB}
    finding = found(NAME, window(means=means, lasts={m.JOB_OOM_KILLS: 2.0}))
    assert finding.severity is Severity.HIGH
    assert finding.evidence[0].value == 2
    # Without a limit it may have been somebody else's.
    assert found(NAME, window(lasts={m.JOB_OOM_KILLS: 1.0})).severity is Severity.LOW


def test_room_that_is_left_and_memory_that_grows_are_no_matter_of_it() -> None:
    room = NEAR | {m.JOB_MEMORY_USED: 20 * GIB, m.JOB_OOM_KILLS: 0.0}
    assert judge(NAME, window(means=room)) is None
    grows = {m.JOB_RSS: Trend(20 * GIB, 31 * GIB, 1e8, 1.0)}
    assert judge(NAME, window(means=NEAR, trends=grows)) is None
    assert judge(NAME, window(means=NEAR | {m.JOB_MEMORY_STALL: 0.3})) is None


def test_no_limit_is_not_judged() -> None:
    assert cannot_judge(NAME, window())
