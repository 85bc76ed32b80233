"""The rule gc_pauses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.windows import (
    answer,
    cannot_judge,
    found,
    is_silent,
    judge,
    recorded,
    severity,
    traced,
    window,
)
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Need, NotChecked, Severity, SourceLine
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import diagnose, finding_json
from whyidle.monitor.signals.recorded import RankSeen
from whyidle.monitor.signals.window import Window

NAME = "gc_pauses"
_BEFORE = """
import gc
batches, seen = range(3), []
train = seen.append
"""
_AFTER = """
assert gc.get_freeze_count() > 0 and gc.get_threshold()[0] == 50_000 and seen == [0, 1, 2]
gc.unfreeze()
gc.set_threshold(700, 10, 10)
"""
# By framework: what stands before the fix's code, and what must hold after it.
FIXES = {
    "pytorch": (_BEFORE, _AFTER),
    "jax": (_BEFORE, _AFTER),
    "flux": (
        "batches, seen = 1:100, []; train(batch) = push!(seen, batch); before = Base.gc_num()",
        """
@assert seen == 1:100 && Base.gc_num().pause >= before.pause + 2
@assert Base.gc_num().full_sweep <= before.full_sweep + 1
""",
    ),
}
JULIA = {"julia": {"version": "1.10.4", "backend": "cpu"}}


def test_a_job_that_spends_its_time_in_the_collector() -> None:
    finding = found(NAME, window(means={m.JOB_GC_PAUSE: 0.4, m.PROCESS_GC_COLLECTIONS: 20.0}))
    assert finding.gain is not None
    assert finding.slice is Slice.IDLE_GC
    # Half of it comes back at least; at most all, and what the caches lost.
    assert finding.gain.low == pytest.approx(0.2)
    assert finding.gain.high == pytest.approx(0.4 + 0.1 * 0.4)
    assert [round(each.value, 3) for each in finding.evidence if isinstance(each.value, float)] == [
        0.4, 20.0, 0.02,
    ]  # fmt: skip


def test_short_collections_leave_the_caches_as_they_are() -> None:
    finding = found(NAME, window(means={m.JOB_GC_PAUSE: 0.04, m.PROCESS_GC_COLLECTIONS: 80.0}))
    assert finding.gain is not None
    assert finding.gain.high == pytest.approx(0.04)


def test_collections_of_young_objects_cool_no_caches() -> None:
    few = found(NAME, window(means={m.JOB_GC_PAUSE: 0.2, m.PROCESS_GC_COLLECTIONS: 10.0}))
    many = found(NAME, window(means={m.JOB_GC_PAUSE: 0.2, m.PROCESS_GC_COLLECTIONS: 900.0}))
    assert few.gain is not None
    assert many.gain is not None
    assert many.gain.high < few.gain.high


def test_a_loop_that_asks_for_each_collection(tmp_path) -> None:  # type: ignore[no-untyped-def]
    script = tmp_path / "train.py"
    script.write_text("import gc\n\n\ndef loop():\n    gc.collect()\n")
    lines = (SourceLine(str(script), 5, "loop", 0.7), SourceLine(str(script), 4, "loop", 0.1))
    finding = found(NAME, window(means={m.JOB_GC_PAUSE: 0.7}, lines=lines))
    assert [place.line for place in finding.where] == [5]
    assert finding.title is not None
    assert finding.gain is not None
    assert finding.gain.low > 0.6


def test_a_job_whose_collector_is_quiet() -> None:
    assert is_silent(NAME, window(means={m.JOB_GC_PAUSE: 0.002, m.PROCESS_GC_COLLECTIONS: 1.0}))


def test_nothing_measured_in_the_job() -> None:
    assert cannot_judge(NAME, window())
    assert cannot_judge(NAME, window(answer({Slice.COMPUTE: 1.0})))


def test_a_trace_alone_does_not_show_the_collector() -> None:
    assert cannot_judge(NAME, traced("h100_qwen05b"))


def _julia(full: float, script: str | None = None) -> Window:
    means = {m.JOB_GC_PAUSE: 0.6, m.PROCESS_GC_COLLECTIONS: 12.0, m.PROCESS_GC_FULL: full}
    facts = {"julia": {**JULIA["julia"], "script": script}}
    return window(means=means, facts=facts, inside=False)


def test_julias_collector_has_its_name_and_its_fix() -> None:
    finding = found(NAME, _julia(1.0))
    assert finding.title == "Julia's garbage collector stops the job"
    assert finding.where == ()
    # Nothing of ours is inside: it was read from outside.
    assert {each.source for each in finding.evidence} == {"procfs"}
    (shown,) = diagnose(_julia(1.0)).findings
    assert set(finding_json(diagnose(_julia(1.0)), shown).fixes) == {"flux"}


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("for batch in batches\n    train(batch)\n    GC.gc()\nend\n", [3]),
        (
            "function tidy()\n  Base.GC.gc(true); CUDA.reclaim()\nend\nforeach(_ -> tidy(), 1:9)",
            [2],
        ),
        ('# GC.gc() here?\nprintln("GC.gc()")\nGC.gc( false )\nGC.enable(true)\n', []),
    ],
)
def test_where_a_julia_program_asks_for_collections(
    tmp_path: Path, code: str, lines: list[int]
) -> None:
    script = tmp_path / "train.jl"
    script.write_text(code)
    finding = found(NAME, _julia(11.9, str(script)))
    assert [place.line for place in finding.where] == lines
    assert ("has Julia collect" in str(finding.title)) is bool(lines)
    # Collections that come by themselves are of the young objects: the line is seldom reached.
    assert found(NAME, _julia(1.0, str(script))).where == ()


def test_a_julia_that_hardly_collects_is_well() -> None:
    quiet = {m.JOB_GC_PAUSE: 0.005, m.PROCESS_GC_COLLECTIONS: 1.0, m.PROCESS_GC_FULL: 0.0}
    assert is_silent(NAME, window(means=quiet, facts=JULIA))


def test_a_julia_whose_collector_cannot_be_read_is_not_judged() -> None:
    verdict = judge(NAME, window(means={m.JOB_CPU: 1.0}, facts=JULIA))
    # No agent of ours would bring it.
    assert verdict == NotChecked(Need.IN_JULIA)


@pytest.mark.parametrize("framework", ["torch", "jax", "julia"])
def test_the_recorded_pair(framework: str) -> None:
    finding = found(NAME, recorded(f"{NAME}/before_{framework}"))
    assert finding.gain is not None
    assert finding.gain.expected > 0.4


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_recorded_fix(framework: str) -> None:
    assert is_silent(NAME, recorded(f"{NAME}/after_{framework}"))


def test_the_julia_that_collects_less_still_collects() -> None:
    assert severity(NAME, found(NAME, recorded(f"{NAME}/after_julia"))) is Severity.LOW


def test_a_collection_that_nobody_asked_for_has_no_line() -> None:
    lines = (SourceLine("/me/train.py", 5, "train", 0.9),)
    assert found(NAME, window(means={m.JOB_GC_PAUSE: 0.3}, lines=lines)).where == ()


def test_threads_of_jax_that_slept_meanwhile_come_late() -> None:
    means = {m.JOB_GC_PAUSE: 0.6, m.PROCESS_GC_COLLECTIONS: 20.0}
    by_name = {
        name: found(NAME, window(means=means, facts={name: {"backend": "cpu"}}))
        for name in ("jax", "torch")
    }
    assert by_name["jax"].gain is not None
    assert by_name["torch"].gain is not None
    assert by_name["jax"].gain.high > by_name["torch"].gain.high


def test_ranks_that_collect_when_they_like_wait_for_each_other() -> None:
    ranks = tuple(RankSeen(n, 100 + n, means={m.PROCESS_GC_PAUSE: 0.008}) for n in range(8))
    means = {m.JOB_GC_PAUSE: 0.008, m.PROCESS_GC_COLLECTIONS: 0.1}
    assert judge(NAME, window(means=means)) is None
    finding = found(NAME, window(means=means, ranks_seen=ranks))
    assert finding.gain is not None
    # One of them at least; all of them, where none falls together.
    assert finding.gain.low == pytest.approx(0.004)
    assert finding.gain.high == pytest.approx(0.064)
    said = {each.name: each.value for each in finding.evidence}
    assert said["in the collectors of 8 ranks, which come in turns"] == pytest.approx(0.064)
