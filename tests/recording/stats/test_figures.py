"""From the processes of a job to the whole of it."""

from __future__ import annotations

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.reading import FIRST, Reading
from whyidle.monitor.recording.stats.figures import NONE_INSIDE, SOME_SILENT, put_job

LAUNCHER = Reading(unknown={m.PROCESS_STEPS: "no framework", m.PROCESS_STEP_P50: "no framework"})


def rank(p50: float, **more: float) -> Reading:
    values = {m.PROCESS_STEPS: 1 / p50, m.PROCESS_STEP_P50: p50, m.PROCESS_STEP_P95: 2 * p50}
    named = {metric.name: metric for metric in m.METRICS if metric.scope is m.Scope.PROCESS}
    return Reading(values | {named[name]: value for name, value in more.items()})


def job(*inside: Reading) -> Reading:
    found = Reading()
    put_job(found, inside, len(inside))
    return found


def test_the_slowest_process_sets_the_pace() -> None:
    uneven = rank(0.1)
    uneven.values[m.PROCESS_STEP_P95] = 9.0
    found = job(uneven, rank(0.3), rank(0.2), LAUNCHER)
    assert found.values[m.JOB_STEPS] == 1 / 0.3
    assert found.values[m.JOB_STEP_P50] == 0.3
    assert found.values[m.JOB_STEP_P95] == 0.6
    assert found.values[m.JOB_AGENTS] == 4


def test_the_worst_waits_and_the_sums_of_what_adds_up() -> None:
    found = job(
        rank(0.1, loader_wait=0.2, sync_wait=0.1, compile=0.0, samples=100, compiles=1),
        rank(0.1, loader_wait=0.6, sync_wait=0.3, compile=0.5, samples=120, compiles=2),
    )
    assert found.values[m.JOB_LOADER_WAIT] == 0.6
    assert found.values[m.JOB_SYNC_WAIT] == 0.3
    assert found.values[m.JOB_COMPILE] == 0.5
    assert found.values[m.JOB_SAMPLES] == 220
    assert found.values[m.JOB_COMPILES] == 3


def test_a_sum_of_which_a_part_is_not_known_is_not_known() -> None:
    found = job(rank(0.1, samples=100), rank(0.1))
    assert m.JOB_SAMPLES not in found.values
    assert found.unknown[m.JOB_SAMPLES] == SOME_SILENT
    assert job(rank(0.1, samples=100), LAUNCHER).values[m.JOB_SAMPLES] == 100


def test_unknown_has_the_reason_of_the_first_that_stands_for_the_job() -> None:
    first = Reading(unknown={m.PROCESS_STEPS: "no step yet"})
    assert job(first, LAUNCHER).unknown[m.JOB_STEPS] == "no step yet"
    assert job().unknown[m.JOB_STEPS] == NONE_INSIDE
    assert job(Reading()).unknown[m.JOB_STEPS] == FIRST
