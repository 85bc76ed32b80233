"""The end of a recording: the answer first, ten lines, nothing that nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from tests.render.test_training import COUNTED, run_summary
from tests.rules.windows import recorded
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.reading import LOST
from whyidle.monitor.diagnosis.diagnose import as_json, diagnose
from whyidle.monitor.render import ending
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.store import Event, Gpu, Key, Summary, Unknown

GIB = 2.0**30


def kept(scope: Scope, subject: int, metric: Metric, value: float) -> tuple[Key, Summary]:
    return Key(scope, subject, metric), Summary(2, value, value, value, value)


def summary(gpus: int = 8, **known: Any) -> RunSummary:
    """Return a job that waited for its input, watched to the end by a person."""
    cards = [Gpu(id=n, run=1, idx=str(n), name="NVIDIA H200") for n in range(gpus)]
    metrics = dict(
        kept(Scope.GPU, gpu.id, metric, value)
        for gpu in cards
        for metric, value in (
            (m.GPU_UTILISATION, 0.02 if gpu.id == 5 else 0.9), (m.GPU_SM_ACTIVITY, 0.5),
            (m.GPU_MEMORY_USED, 57 * GIB), (m.GPU_MEMORY_TOTAL, 140 * GIB), (m.GPU_POWER, 610.0),
        )
    )  # fmt: skip
    metrics |= dict(
        [
            kept(Scope.JOB, 1, m.JOB_CPU, 1.5),
            kept(Scope.JOB, 1, m.JOB_RSS, 3 * GIB),
            kept(Scope.HOST, 1, m.HOST_CPU, 0.31),
            kept(Scope.HOST, 1, m.HOST_CORES, 16.0),
        ]
    )
    unknown = {
        Key(Scope.JOB, 1, metric): Unknown(2, "not supported here")
        for metric in (m.JOB_THROTTLED, m.JOB_CPU_LIMIT)
    }
    found = run_summary(counted=COUNTED, stops_ms=[0.3, 0.2])
    run = replace(found.run, end_reason="stopped by the user", ended_ms=9_000, script="/a/train.py")
    answer = as_json(diagnose(recorded("input_starved/before_torch")))
    given = {"metrics": metrics, "unknown": unknown, "run": run, "diagnosis": answer, **known}
    return replace(found, gpus=cards, owned=frozenset(map(str, range(gpus))), **given)


def test_the_answer_comes_first_and_all_of_it_in_ten_lines() -> None:
    found = summary()
    assert found.diagnosis is not None
    lines = ending.page(found).splitlines()
    assert lines[0] == found.diagnosis.verdict.what
    assert lines[1] == "HIGH   before_torch.py:30 in __getitem__"
    assert lines[2].startswith("       → Load with worker processes")
    assert lines[2].endswith(": about 2.05x faster (1.84x to 2.29x)")
    assert lines[3] == "       waiting for input: 87%"
    assert len(lines) <= 10
    assert not any("unknown" in line for line in lines)
    assert lines[-1] == "more     monitor diagnose 1 (evidence, code), monitor runs 1 (figures)"


def test_it_says_what_was_seen() -> None:
    text = ending.page(summary())
    gpus = (
        "8x H200: 79% used (2.0% on GPU 5 to 90% on GPU 7), SM 50%, memory 57.0 of 140 GiB, 610 W"
    )
    assert f"GPU      {gpus}\n" in text
    assert "steps    1,234 seen (optimizer), 24.1 ms a step" in text
    assert "; waits: for input 45%, reads of values 3.0%\n" in text
    assert "job      CPU 1.50 of 16 cores, memory 3.0 GiB, machine's CPU 31%\n" in text
    assert "train.py, pid 1; 10 s; stopped by the user; the job paused for 0.3 + 0.2 ms" in text


def test_one_gpu_needs_no_range_and_a_lost_one_is_named() -> None:
    one = summary(1)
    assert "GPU      1x H200: 90% used, SM" in ending.page(one)
    lost = {Key(Scope.GPU, 0, m.GPU_UTILISATION): Unknown(1, LOST)}
    assert "GPU 0 LOST" in ending.page(replace(one, unknown=lost))
    none = summary(0)
    why = {"gpu_problem": "There is no NVIDIA driver library here: nothing is known."}
    none = replace(none, run=replace(none.run, info=why))
    assert "GPU      no NVIDIA driver here\n" in ending.page(none)


def test_what_went_wrong_for_us_is_never_left_out() -> None:
    events = [
        Event(id=n, run=1, ts_ms=n, kind="xid", severity="high", text=f"XID {n} \x1b")
        for n in range(4)
    ]
    text = ending.page(summary(events=events, trouble="The disk is full."))
    assert "XID 0 \\x1b" in text
    assert "2 more: monitor runs 1" in text
    assert "The disk is full." in text
    silent = ending.page(summary(diagnosis=None, not_diagnosed="ValueError: x"))
    assert silent.startswith("What is wrong is not known: ValueError: x\n")


def test_more_than_three_findings_are_counted() -> None:
    found = summary()
    assert found.diagnosis is not None
    (first, *_) = found.diagnosis.findings
    other = structs.replace(first, rule="other", title="Another fault", severity="low")
    answer = structs.replace(found.diagnosis, findings=[first, other, other, other, other])
    text = ending.page(replace(found, diagnosis=answer))
    assert text.count("LOW    Another fault, before_torch.py:30, about ") == 2
    assert "       and 2 more\n" in text
