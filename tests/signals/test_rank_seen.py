"""The ranks of a job, out of what a recording kept: each once, as its framework numbers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.core.metrics import JOB_STEPS, PROCESS_GC_PAUSE, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.runs.summary import STACKS
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.signals.recorded import RankSeen
from whyidle.monitor.store import NewRun, Writer

START_MS = 1_700_000_000_000
LINE = CodeLine("/job/train.py", 10, "train")
SETS_UP = CodeLine("/job/train.py", 4, "<module>")
WAIT = CodeLine("/v/site-packages/torch/autograd/graph.py", 5, "_engine_run_backward")


def entry(
    pid: int, rank: int | None, *, steps: int | None = None, start: int = 70
) -> dict[str, Any]:
    return {
        "pid": pid, "start_ticks": start, "rank": rank, "method": "run", "inside": True,
        "stops_ms": [], "refused": None, "next_step": None, "frameworks": {},
        "counted": None if steps is None else {"steps": steps},
    }  # fmt: skip


def seen(
    folder: Path, *entries: dict[str, Any], seconds: int = 20, first_step_s: int | None = None
) -> tuple[RankSeen, ...]:
    """Record ranks; until its first step a job is found where it sets up."""
    path = folder / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"processes": list(entries)}))
        who = [writer.add_process(run, pid=e["pid"], start_ticks=e["start_ticks"]) for e in entries]
        for second in range(seconds):
            at = START_MS + 1000 * second
            rows = {
                Scope.JOB: {run: steps_at(second, first_step_s)},
                Scope.PROCESS: {own: Reading({PROCESS_GC_PAUSE: 0.01 * own}) for own in who},
            }
            writer.append(run, Tick(at, rows))
            for own in who if second % 10 == 9 else ():
                samples = StackSamples()
                samples.samples, samples.looks = 100, 10
                early = min(100, max(0, 10 * ((first_step_s or 0) - second + 9)))
                for line, count in ((SETS_UP, early), (LINE, 100 - early)):
                    if count:
                        samples.count(Chain((line,), WAIT), count, count, 50, when=(1 << 10) - 1)
                data = samples.packed(1 << 14) | {"seconds": 10.0}
                writer.event(
                    run, STACKS, "-", ts_ms=at, scope=Scope.PROCESS, subject=own, data=data
                )
    return of_run(path, "last").job.ranks_seen


def steps_at(second: int, first: int | None) -> Reading:
    return Reading({} if first is None else {JOB_STEPS: 9.0 if second >= first else 0.0})


@pytest.mark.parametrize(("seconds", "found"), [(40, {10}), (20, {4, 10})])
def test_what_a_rank_does_before_the_first_step_is_no_lateness(
    seconds: int, found: set[int], tmp_path: Path
) -> None:
    ranks = seen(
        tmp_path, entry(7, 0, steps=90), entry(8, 1, steps=90), seconds=seconds, first_step_s=15
    )
    for rank in ranks:
        # Of a short recording there is nothing else.
        assert {line.line for line in rank.stacks.lines()} == found


def test_each_rank_is_there_once_with_its_samples_and_means(tmp_path: Path) -> None:
    one, two = seen(tmp_path, entry(8, 1, steps=90), entry(7, 0, steps=90))
    assert [(one.rank, one.pid, one.steps), (two.rank, two.pid, two.steps)] == [
        (0, 7, 90), (1, 8, 90),
    ]  # fmt: skip
    assert one.stacks.samples == two.stacks.samples == 200
    assert one.stacks.looks == 20
    assert two.means[PROCESS_GC_PAUSE] == pytest.approx(0.01)


def test_a_loaders_worker_with_its_parents_number_is_no_rank_of_its_own(tmp_path: Path) -> None:
    found = seen(
        tmp_path, entry(5, None), entry(7, 0, steps=90), entry(9, 0, start=80),
        entry(10, 1, start=60), entry(8, 1, steps=90),
    )  # fmt: skip
    # Also where a worker seems to be the elder one.
    assert [(each.rank, each.pid) for each in found] == [(0, 7), (1, 8)]


@pytest.mark.parametrize("rank", [0, None])
def test_a_job_of_one_has_none(rank: int | None, tmp_path: Path) -> None:
    assert seen(tmp_path, entry(7, rank, steps=90), entry(8, None)) == ()
