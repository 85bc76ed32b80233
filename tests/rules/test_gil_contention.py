"""The rule gil_contention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.windows import answer, cannot_judge, found, is_silent, recorded, window
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Severity
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.diagnose import diagnose
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.window import Window

NAME = "gil_contention"
_BEFORE = """
import multiprocessing, types
started = []
made = types.SimpleNamespace(start=lambda: started.append(1))
context = types.SimpleNamespace(Process=lambda target, args, daemon: made)
multiprocessing = types.SimpleNamespace(get_context=lambda kind: context)
prepare = queue = None
"""
FIXES = dict.fromkeys(("pytorch", "jax"), (_BEFORE, "assert started == [1]"))
TORCH, JAX = {"torch": {"backend": "cpu"}}, {"jax": {"backend": "cpu"}}
# Where the main thread asks for the lock, and who has it: three styles.
STYLES = {
    "a script": ("/u/train.py", "<module>", "/u/train.py", "count_words"),
    "a class in another module": ("/u/app/loop.py", "fit", "/u/app/metrics.py", "run"),
    "a loop of jax": ("/u/main.py", "main", "/u/feed.py", "fill"),
}


def job(
    style: str,
    locked: float,
    facts: dict[str, dict[str, str]],
    *answers: dict[str, Any],
    means: dict[m.Metric, float] | None = None,
) -> Window:
    file, function, other, holds = STYLES[style]
    waits, holder = CodeLine(file, 9, function), CodeLine(other, 33, holds)
    library = CodeLine("/usr/lib/python3.11/random.py", 4, "randrange")
    samples, holders = StackSamples(), StackSamples()
    samples.samples, holders.samples = 1000, 1000 * locked
    samples.count(Chain((waits,), waits), 1000, 1000, 0, 1000 * locked)
    holders.count(Chain((holder,), library, library), 750 * locked)
    holders.count(Chain((holder._replace(line=34),), None, None), 250 * locked)
    return window(*answers, stacks=samples, holders=holders, facts=facts, inside=True, means=means)


@pytest.mark.parametrize("facts", [TORCH, JAX])
@pytest.mark.parametrize("style", STYLES)
def test_the_line_that_has_the_lock_is_named(style: str, facts: dict[str, dict[str, str]]) -> None:
    finding = found(NAME, job(style, 0.6, facts))
    assert finding.gain is not None
    assert finding.gain.low < 0.6 < finding.gain.high
    assert Severity.of_share(finding.gain.low) is Severity.HIGH
    first = finding.where[0]
    assert (first.file, first.function, first.line) == (*STYLES[style][2:], 33)
    assert first.share == pytest.approx(0.45)


@pytest.mark.parametrize("style", STYLES)
def test_a_thread_that_seldom_runs_python_is_no_fault(style: str) -> None:
    assert is_silent(NAME, job(style, 0.03, TORCH))


def cpu(threads: float) -> dict[m.Metric, float]:
    """Return what the kernel says of a process on four cores, of which some are free."""
    main = 0.05
    used = {m.JOB_CPU: main + threads, m.PROCESS_CPU: main + threads, m.JOB_MAIN_THREAD: main}
    return {**used, m.HOST_CORES: 4.0, m.HOST_CPU: (main + threads) / 4}


@pytest.mark.parametrize("open_share", [None, 0.3, 0.99])
@pytest.mark.parametrize("style", STYLES)
def test_who_keeps_the_lock_computes_nothing_for_a_backend_of_jax(
    style: str, open_share: float | None
) -> None:
    """Nor does an execution that is open all the time, with no core to run on."""
    traces = () if open_share is None else (answer({Slice.COMPUTE: open_share}),)
    gain = found(NAME, job(style, 0.8, JAX, *traces, means=cpu(1.0))).gain
    assert gain is not None
    assert gain.low > 0.6
    assert gain.high == pytest.approx(0.8, abs=0.05)


def test_an_execution_that_waits_for_other_ranks_works_without_a_core() -> None:
    waits = answer({Slice.COMPUTE: 0.09, Slice.EXPOSED_COMM: 0.9})
    gain = found(NAME, job("a script", 0.5, JAX, waits, means=cpu(0.6))).gain
    assert gain is not None
    assert gain.low < 0.05


@pytest.mark.parametrize("style", STYLES)
def test_what_other_threads_compute_besides_stays(style: str) -> None:
    gain = found(NAME, job(style, 0.4, JAX, means=cpu(1.3))).gain
    assert gain is not None
    assert gain.low < 0.15
    assert gain.high == pytest.approx(0.4, abs=0.05)


def test_without_the_thread_that_has_it_the_lines_that_wait_are_named() -> None:
    seen = job("a script", 0.4, TORCH)
    alone = window(stacks=seen.job.stacks, facts=TORCH, inside=True)
    assert found(NAME, alone).where[0].function == "<module>"


def test_host_code_does_not_take_the_wait_for_the_lines_own(tmp_path: Path) -> None:
    assert [each.rule.id for each in diagnose(job("a script", 0.9, TORCH)).findings] == [NAME]


def test_what_is_missing() -> None:
    assert cannot_judge(NAME, window())


def test_the_recorded_pair() -> None:
    finding = found(NAME, recorded("gil_contention/before_torch"))
    assert "count_words" in {place.function for place in finding.where}
    assert is_silent(NAME, recorded("gil_contention/after_torch"))


@pytest.mark.parametrize("other", ["gc_pauses", "input_starved", "python_loop_over_batch"])
def test_other_faults(other: str) -> None:
    assert is_silent(NAME, recorded(f"{other}/before_torch"))
