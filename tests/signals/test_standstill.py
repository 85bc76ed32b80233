"""Where a job stands, out of what a recording kept: at one line, and nothing ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.runs.summary import STACKS
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.signals.portable import dump, load
from whyidle.monitor.signals.standstill import Standstill
from whyidle.monitor.store import NewRun, Writer

START_MS = 1_700_000_000_000
LOOP = [CodeLine("/job/train.py", line, "train") for line in range(10, 20)]
WAIT = CodeLine("/usr/lib/python3.11/threading.py", 320, "wait")
# The line at which a rank is found at a second; ``None``: in every line of the loop.
At = Callable[[int], int | None]


def samples(line: int | None) -> StackSamples:
    found = StackSamples()
    for n, each in enumerate(LOOP):
        count = 20 if line is None else 200 * (n == line)
        found.samples += count
        if count:
            found.count(Chain((each,), WAIT), count, count, count if line is not None else 0)
    return found


def record(
    folder: Path,
    *ranks: At,
    seconds: int = 300,
    job: Callable[[int], Mapping[Metric, float]] = lambda _: {m.JOB_CPU: 0.01},
    last: float | None = None,
    silent: int = 0,
) -> Standstill | None:
    """Record ranks that stand; what is kept of them ends some seconds before the recording."""
    path = folder / DATABASE
    entries = [
        {
            "pid": 7 + n, "start_ticks": 70, "rank": n if len(ranks) > 1 else None,
            "method": "run", "inside": True, "stops_ms": [], "refused": None,
            "next_step": None, "frameworks": {}, "counted": None,
        }
        for n in range(len(ranks))
    ]  # fmt: skip
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"processes": entries}))
        who = [writer.add_process(run, pid=7 + n, start_ticks=70) for n in range(len(ranks))]
        for second in range(seconds):
            row = {Scope.JOB: {run: Reading(dict(job(second)))}}
            writer.append(run, Tick(START_MS + 1000 * second, row))
            for own, at in zip(who, ranks, strict=True):
                if second % 10 == 9 and second < seconds - silent:
                    data = samples(at(second)).packed(1 << 14) | {"seconds": 10.0}
                    ts = START_MS + 1000 * second
                    writer.event(
                        run, STACKS, "-", ts_ms=ts, scope=Scope.PROCESS, subject=own, data=data
                    )
    window = of_run(path, "last", last)
    kept = dump(window)
    assert dump(load(kept))["job"]["standstill"] == kept["job"]["standstill"]
    return window.job.standstill


def hangs(second: int) -> int | None:
    return 3 if second >= 120 else None


def steps(second: int) -> Mapping[Metric, float]:
    rate = 10.0 if second < 128 else 0.0
    found = {m.JOB_CPU: 1.0 if second < 120 else 0.01, m.JOB_STEPS: rate}
    return found | ({m.JOB_STEP_P95: 0.12} if second < 128 else {})


def test_it_is_known_since_when_and_that_it_worked_before(tmp_path: Path) -> None:
    still = record(tmp_path, hangs, job=steps)
    assert still is not None
    assert still.seconds == pytest.approx(180, abs=4)
    assert still.stepped
    assert still.step_s == pytest.approx(0.12)
    # Of that time alone, not of the recording.
    assert still.means[m.JOB_CPU] == pytest.approx(0.01, abs=0.01)
    (stand,) = still.stands
    assert stand.line == LOOP[3]
    assert stand.waits == 1.0


def test_it_reaches_back_beyond_what_is_looked_at(tmp_path: Path) -> None:
    still = record(tmp_path, hangs, job=steps, last=30)
    assert still is not None
    assert still.seconds == pytest.approx(180, abs=4)


def test_a_loop_that_turns_does_not_stand(tmp_path: Path) -> None:
    assert record(tmp_path, lambda _: None) is None


def test_a_call_that_holds_the_whole_training_does_not_stand(tmp_path: Path) -> None:
    assert record(tmp_path, lambda _: 3, job=lambda _: {m.JOB_STEPS: 10.0}) is None


def test_a_line_that_it_was_at_while_it_made_steps_counts_from_the_last_one(tmp_path: Path) -> None:
    # Its steps sleep at the line at which it then waits for ever.
    still = record(tmp_path, lambda _: 3, job=steps)
    assert still is not None
    assert still.seconds == pytest.approx(180, abs=4)
    assert still.stands[0].seconds < 185


def test_another_line_each_minute_is_a_job_that_goes_on(tmp_path: Path) -> None:
    still = record(tmp_path, lambda second: second // 60 % 2)
    assert still is not None
    assert still.seconds < 65


def test_of_several_ranks_all_must_stand(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert record(tmp_path / "one", hangs, lambda _: None, job=steps) is None
    still = record(tmp_path, hangs, lambda second: 5 if second >= 150 else None, job=steps)
    assert still is not None
    assert [stand.line for stand in still.stands] == [LOOP[3], LOOP[5]]
    assert still.seconds == pytest.approx(150, abs=2)


def test_old_samples_say_nothing_of_now(tmp_path: Path) -> None:
    # Such as those of a job that is stopped by a signal, or could no longer be read.
    assert record(tmp_path, hangs, job=steps, silent=100) is None
