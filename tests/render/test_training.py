"""What the screens show of the training: its pace, where its time goes, what it trains."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tests.render.snapshots import drawn, outside, snapshot
from tests.render.trace_answers import budget
from tests.render.training import FACTS, PACE, WAITS, job, trace, worker
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Scope
from whyidle.monitor.core.reading import FIRST, Reading
from whyidle.monitor.processes.process import JobEvent, ProcessKey
from whyidle.monitor.render import jsonl, numbers, pace, plain
from whyidle.monitor.render.model import of_frameworks
from whyidle.monitor.render.numbers import DASH
from whyidle.monitor.render.screens import PlainLines
from whyidle.monitor.runs.aggregates import ReadBack
from whyidle.monitor.runs.summary import RunSummary
from whyidle.monitor.runs.training import NO_STEPS
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.ownership import Owned
from whyidle.monitor.store import Event, Key, Run, Unknown

MODEL = (
    "ResNet, 11.2M parameters in float32 and bfloat16, batch 64,"
    " loader (4 workers, pinned, prefetch 2) and 1 more, DistributedDataParallel of 2,"
    " 1 of 2 devices in use, torch 2.13.0 on cuda"
)
COMPILED = JobEvent("compile", ProcessKey(4001, 1), "Process 4001 compiled step in 1.43 s.")
PAUSED = JobEvent("gc_pause", ProcessKey(4001, 1), "The collector held up 4001.", severity="low")
EVIL = "Net\x1b[2J[bold]\n"


def on_gpus(*used: float) -> dict[str, object]:
    names = dict.fromkeys(GpuFacts.__dataclass_fields__)
    readings = [Reading({m.GPU_UTILISATION: share}) for share in used]
    return {
        "facts": tuple(
            GpuFacts(**{**names, "index": str(i), "name": "H100"}) for i in range(len(used))
        ),
        "gpus": {str(i): GpuReading(reading=x, processes={}) for i, x in enumerate(readings)},
        "owned": Owned(frozenset(map(str, range(len(used)))), "the driver lists it", sure=True),
        "gpu_problem": None,
    }


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_begins_with_the_pace_and_where_the_time_goes(width: int) -> None:
    text = drawn(job(**on_gpus(0.4)), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("ResNet, 11.2M parameters")
    at = next(i for i, line in enumerate(lines) if line.startswith("41.2 steps/s"))
    assert at < next(i for i, line in enumerate(lines) if line.startswith("H100"))
    said = "41.2 steps/s, 24.1 ms a step, 95% within 26.3 ms, 2.6k samples/s (optimizer)"
    assert lines[at].startswith(said)
    parts = lines[at + 1]
    assert len(parts) == width
    assert parts.count("i") == 1
    assert parts.count("░") > parts.count("█")
    assert "i input 45% 10.8 ms  █ compute 40% 9.64 ms" in lines[at + 2]
    assert "· unknown 14% 3.35 ms" in text
    assert "an estimate from counters; unknown: only a trace tells host" in text


def test_a_fresh_trace_is_the_bar_and_says_how_old_it_is() -> None:
    taken = trace(compute=38, idle_input=45, idle_dispatch=17)
    text = drawn(job(traces=taken, **on_gpus(0.4)), 100)
    assert "from a trace of 250 ms, 12 s ago" in text
    assert "d host dispatch 17% 4.10 ms" in text
    assert "unknown" not in text


def test_a_trace_that_no_longer_counts_is_named_beside_the_estimate() -> None:
    taken = trace(compute=38, idle_input=45, idle_dispatch=17, age=900.0)
    text = " ".join(drawn(job(traces=taken, **on_gpus(0.4)), 160).split())
    assert "an estimate from counters" in text
    assert "the last trace, 0:15:00 ago, does not count: too old" in text


def test_without_anything_measured_there_is_a_sentence_and_no_bar() -> None:
    reason = "no marker tells where a step ends"
    reading = Reading(
        {m.JOB_GC_PAUSE: 0.0}, {m.JOB_STEP_P50: reason, m.JOB_LOADER_WAIT: "no loader"}
    )
    member = worker(framework={"jax": {"backend": "cpu"}}, steps_source=None)
    text = drawn(job(member, job=reading), 80)
    assert f"step time unknown: {reason}" in text
    assert "Where the time goes is not known: on a CPU only a trace tells compute" in text
    assert "loader wait: no loader" in text
    assert not any("██" in line for line in text.splitlines())


def test_before_anybody_is_inside_nothing_is_said_of_steps() -> None:
    assert "time goes" not in drawn(snapshot(outside()), 80)
    assert pace.why_not(job(job=Reading(unknown={m.JOB_STEP_P50: FIRST}))) is None


def test_the_pace_has_a_sparkline_once_there_is_one() -> None:
    assert "(optimizer)  ▅" not in drawn(job(), 120)
    assert f"(optimizer)  {'▅' * 12}\n" in drawn(job(), 120, ticks=12)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.0, 3.0], "▁▅█"),
        ([0.07, 0.08, None, 0.06], "▅█·▁"),
        ([18.4, 18.4, 18.5], "▄▄▅"),
        ([0.0, 0.0], "▁▁"),
        ([5.0, 1.0, 9.0, 5.0], "▁█▅"),
    ],
)
def test_a_sparkline_shows_change_and_its_end_is_the_newest(
    values: list[float | None], said: str
) -> None:
    assert numbers.changes(values, 4 if len(values) < 4 or None in values else 3) == said


def test_each_of_several_workers_has_its_step_so_that_the_slow_one_is_seen() -> None:
    slow = worker(1, reading=Reading({m.PROCESS_STEP_P50: 0.0312, m.PROCESS_LOADER_WAIT: 0.02}))
    shown = job(worker(), slow)
    assert "a step takes 24.1 ms to 31.2 ms, longest on rank 1" in drawn(shown, 100)
    rows = [line.split() for line in drawn(shown, 80, keys="g").splitlines()]
    found = {row[0]: row[1:7] for row in rows if row and row[0] in {"4001", "4002"}}
    assert found["4001"] == ["0", "ptrace", "24.1", "ms", "45%", "1.1%"]
    assert found["4002"] == ["1", "ptrace", "31.2", "ms", "2.0%", DASH]


def test_what_happens_is_an_alarm_only_where_it_is_one() -> None:
    shown = job(happened=(COMPILED, PAUSED), ticks=1)
    text = drawn(shown, 100)
    assert f"·    12 s  {COMPILED.text}" in text
    assert f"!    12 s  {PAUSED.text}" in text
    out = io.StringIO()
    PlainLines(everything=False, out=out).tick(shown)
    assert f"\n  · {COMPILED.text}\n  ! {PAUSED.text}\n" in out.getvalue()


def test_a_plain_line_has_the_pace_and_the_causes_first() -> None:
    line = plain.tick(job(**on_gpus(0.4)), everything=False)
    begin = "   12 s | 41.2 steps/s 24.1 ms p95 26.3 ms | time (estimate): input 45%, compute 40%,"
    assert line.startswith(begin)
    traced = job(traces=trace(idle_input=45, compute=30, idle_gc=25), **on_gpus(0.4))
    line = plain.tick(traced, everything=False)
    # Nobody sees that much garbage collection any more: it does not count.
    assert "time (estimate)" in line
    fits = job(traces=trace(idle_input=50, compute=50), **on_gpus(0.4))
    assert "time (trace 12 s ago): compute 50%, input 50% |" in plain.tick(fits, everything=False)
    assert "time (" not in plain.tick(snapshot(), everything=False)


def test_a_step_that_only_a_trace_knows_is_said_to_come_from_there() -> None:
    reading = Reading({m.JOB_STEP_P50: 0.0001034})
    shown = job(worker(steps_source=None), job=reading, traces=trace(compute=1))
    assert pace.pace(shown) == "103 µs a step (from a trace)"
    assert pace.briefly(shown) == "103 µs"


def test_what_a_server_answers_are_requests() -> None:
    reading = Reading({m.JOB_STEPS: 12.6, m.JOB_STEP_P50: 0.078})
    shown = job(worker(steps_source="tf.function"), job=reading, serves=True)
    assert pace.pace(shown) == "12.6 requests/s, 78.0 ms a request (tf.function)"
    assert pace.briefly(shown) == "12.6 requests/s 78.0 ms"


@pytest.mark.parametrize(
    ("rate", "said"), [(0.035, "0.04"), (7.5, "7.50"), (41.23, "41.2"), (9_640.0, "9.6k")]
)
def test_a_rate_has_the_figures_that_a_person_reads(rate: float, said: str) -> None:
    assert pace.per_second(rate) == said


def test_what_is_trained_is_one_sentence() -> None:
    assert of_frameworks({"torch": FACTS}) == MODEL
    assert of_frameworks({}) is None
    assert of_frameworks({"jax": {"version": "0.10.2", "parameters": None}}) == "jax 0.10.2"
    assert of_frameworks({"torch": {"parameters": 1}}) == "1 parameter"
    cast = {"model": "Net", "autocast": ["bfloat16"]}
    assert of_frameworks({"torch": cast}) == "Net, autocast to bfloat16"


def test_a_job_that_says_nonsense_of_itself_breaks_and_steers_nothing() -> None:
    nonsense = {
        "model": EVIL, "version": "\x07" * 500, "backend": ["cuda"], "parameters": -4,
        "batch_size": float("inf"), "dtypes": {EVIL: 1e300, "a": True}, "loaders": [7, {}],
        "parallel": EVIL * 90, "world_size": "two", "devices_used": 1, "devices": None,
    }  # fmt: skip
    member = worker(framework={"torch": nonsense, EVIL: {}}, steps_source=EVIL * 90)
    shown = job(member, happened=(replace(COMPILED, text=EVIL),))
    text = drawn(shown, 80) + plain.tick(shown, everything=False)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "Net\\x1b[2J[bold]\\n" in text
    assert "loader (workers unknown)" in of_words(member.framework)
    assert len(of_words(member.framework)) < 400


def of_words(framework: object) -> str:
    return of_frameworks(framework) or ""  # type: ignore[arg-type]


def test_the_process_that_knows_its_model_speaks_for_the_job() -> None:
    launcher = worker(None, framework={"torch": {"version": "2.13.0"}})
    text = drawn(job(launcher, worker(1)), 120)
    assert "ResNet" in text.splitlines()[1]


COUNTED = {
    "steps": 1234,
    "source": "optimizer",
    "step_p50_ns": 24_100_000,
    "step_p95_ns": 26_300_000,
    "totals": {
        "samples": [26380.0, 10.0],
        "loader_batches": [412.0, 10.0],
        "loader_wait_ns": [4.5e9, 10.0],
        "sync_ns": [3e8, 10.0],
        "compile_ns": [1e7, 10.0],
        "compiles": [12.0, 10.0],
    },
}


def run_summary(**entry: object) -> RunSummary:
    whole = {
        "pid": 1, "rank": None, "method": "ptrace", "inside": True, "stops_ms": [],
        "refused": None, "next_step": None, **entry,
    }  # fmt: skip
    run = Run(id=1, target_pid=1, started_ms=5_000, info={"processes": [whole]}, end_reason="x")
    return RunSummary(
        run=run, seconds=10.0, ticks=11, gpus=[], owned=frozenset(), metrics={}, unknown={},
        events=[],
    )  # fmt: skip


def test_the_page_says_what_trained_how_fast_and_what_it_waited_for() -> None:
    page = plain.summary_page(run_summary(frameworks={"torch": FACTS}, counted=COUNTED))
    assert f"  model    {MODEL}\n" in page
    steps = "1,234 seen (optimizer), 24.1 ms a step, 95% within 26.3 ms, 2.6k samples/s"
    assert f"  steps    {steps}\n" in page
    assert "  waits    for input 45%, reads of values 3.0%, compiling 0.1% (12 times)\n" in page


READ = ReadBack("item", "/home/someone/train.py", 42, "step", 5, 900)


def test_a_job_without_an_optimizer_has_its_samples_and_the_reason() -> None:
    reason = "nothing marks steps"
    values = Reading({m.JOB_SAMPLES: 640.0}, dict.fromkeys((m.JOB_STEPS, m.JOB_STEP_P50), reason))
    shown = job(worker(steps_source=None), job=values)
    assert pace.pace(shown) == f"640 samples/s; step time unknown: {reason}"
    assert pace.briefly(shown) == "640 samples/s"
    sums = {**COUNTED, "steps": None, "source": None, "step_p50_ns": None, "step_p95_ns": None}
    steps, p50 = (Key(Scope.JOB, 1, x) for x in (m.JOB_STEPS, m.JOB_STEP_P50))
    unknown = {steps: Unknown(7, reason), p50: Unknown(7, FIRST)}
    run = replace(run_summary(counted=sums), unknown=unknown)
    assert f"  steps    2.6k samples/s; steps unknown: {reason}\n" in plain.summary_page(run)
    summary = jsonl.summary_object(run)
    assert summary.unknown["steps"] == summary.training["unknown"]["steps"] == reason
    assert summary.training["unknown"]["step_p50_s"] == NO_STEPS


def test_the_line_that_reads_values_is_shown_where_that_takes_time() -> None:
    run = replace(run_summary(counted=COUNTED), reads=(replace(READ, line=7, count=9, ns=1), READ))
    assert "reads of values 3.0% (most at train.py:42 step)," in plain.summary_page(run)
    little = {**COUNTED, "totals": {"sync_ns": [3e7, 10.0]}}
    assert "most at" not in plain.summary_page(replace(run_summary(counted=little), reads=(READ,)))
    for share, is_named in ((0.3, True), (0.005, False)):
        reading = Reading({m.PROCESS_SYNC_WAIT: share})
        shown = job(worker(reading=reading, read_line=READ))
        for text in (plain.tick(shown, everything=False), drawn(shown, 100)):
            assert ("reads of values 30%, most at train.py:42 step" in text) is is_named


def test_the_page_ends_with_the_last_trace_and_says_nothing_of_what_nobody_knows() -> None:
    page = plain.summary_page(run_summary())
    for name in ("model", "steps", "waits", "trace"):
        assert f"\n  {name} " not in page
    events = [
        Event(
            id=1, run=1, ts_ms=ts, kind="trace_taken", severity="info", text=f"A trace of {ts} \x1b"
        )
        for ts in (6_000, 12_000)
    ]
    page = plain.summary_page(replace(run_summary(), events=events))
    assert "  trace    after 7.0 s, the last of 2: A trace of 12000 \\x1b\n" in page


def test_the_pieces_fit_beside_each_other_at_any_width() -> None:
    taken = trace(compute=30, idle_input=20, idle_dispatch=20, idle_gc=10, idle_sync=20)
    fits = Reading(PACE | WAITS | {m.JOB_GC_PAUSE: 0.1})
    for width in range(40, 160, 7):
        text = drawn(job(job=fits, traces=taken, **on_gpus(0.4)), width)
        assert max(map(len, text.splitlines())) <= width
        assert "i input 20% 4.82 ms" in text


def test_a_trace_that_does_not_count_is_described_by_the_figures_it_would_have_had() -> None:
    short = trace(compute=50, idle_unknown=50)
    window = {"ns": 100, "asked_ns": None, "step_ns": 200, "outside_ns": 0}
    steps = budget(compute=5, idle_unknown=1)
    taken = replace(short, window=window, step_budget=steps)
    text = drawn(job(traces=taken, **on_gpus(0.4)), 120)
    assert "the last trace, 12 s ago, does not count: it covers" in text
