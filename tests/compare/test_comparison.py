"""What is said of two sides: their speed, and each part; alone, and where one knows it not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compare.sides import answer, kernel, noisy, pace, recorded, traced
from whyidle.monitor.compare import Verdict, compare
from whyidle.monitor.compare.answer import as_json
from whyidle.monitor.compare.bootstrap import Compared, Interval
from whyidle.monitor.compare.pace import settled
from whyidle.monitor.compare.pace import verdict as judge
from whyidle.monitor.compare.result import Pair, Steps
from whyidle.monitor.compare.sides import Level, Pace, Side
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.diagnosis.costs import NOT_RECORDED
from whyidle.monitor.signals.opening import estimated

IDLE_THEN_NOT = (
    answer({Slice.COMPUTE: 300, Slice.IDLE_INPUT: 100}, steps=2),
    answer({Slice.COMPUTE: 300}, steps=2),
)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (noisy(30, seed=1), noisy(30, seed=2), Verdict.SAME),
        (noisy(30), noisy(30), Verdict.SAME),
        (noisy(30), noisy(20, seed=2), Verdict.FASTER),
        (noisy(20), noisy(30, seed=2), Verdict.SLOWER),
        # Six times as long a run is no slower.
        (noisy(30, 10), noisy(30, 60, seed=2), Verdict.SAME),
        (noisy(30, 6, by="trace"), noisy(20, 6, by="trace"), Verdict.FASTER),
        # A real difference, and too small to mean anything between two runs.
        (pace(*[30.0] * 20), pace(*[29.5] * 20), Verdict.SAME),
        # Bounds so wide that they say nothing.
        (pace(10, 30, 12, 33, 11, 35), pace(9, 14, 31, 10, 12, 30), Verdict.UNCERTAIN),
        (pace(30, 30), pace(20, 20), Verdict.UNCERTAIN),
        (Pace((), 30e6, "counted", "x"), noisy(20), Verdict.UNCERTAIN),
        (None, noisy(20), Verdict.UNKNOWN),
    ],
)
def test_the_verdict(a: Pace | None, b: Pace | None, verdict: Verdict) -> None:
    assert compare(recorded(a), recorded(b, label="run 2")).verdict is verdict


@pytest.mark.parametrize(
    ("low", "middle", "high", "verdict"),
    [
        # As fast on the middle alone, and perhaps twice as slow.
        (0.5, 1.02, 2.0, Verdict.UNCERTAIN),
        (0.85, 1.0, 1.05, Verdict.UNCERTAIN),
        (0.95, 1.0, 1.05, Verdict.SAME),
        # Beyond noise, and less than a program differs by from run to run.
        (1.01, 1.02, 1.03, Verdict.SAME),
        (1.01, 1.02, 1.2, Verdict.UNCERTAIN),
        (0.95, 1.05, 1.08, Verdict.SAME),
        (1.2, 1.3, 1.4, Verdict.FASTER),
        (0.7, 0.8, 0.9, Verdict.SLOWER),
    ],
)
def test_no_difference_is_said_only_where_none_of_note_is_left_open(
    low: float, middle: float, high: float, verdict: Verdict
) -> None:
    one, speedup = Interval(1.0, 1.0, 1.0), Interval(low, middle, high)
    assert judge(Steps("median", Compared(one, one, speedup, one))) is verdict


def test_a_known_shift_lies_within_the_bounds() -> None:
    speedup = compare(recorded(noisy(30)), recorded(noisy(20, seed=2))).speedup
    assert speedup is not None
    assert speedup.low is not None
    assert speedup.high is not None
    assert 1.45 < speedup.low < 1.5 < speedup.high < 1.55


def test_a_pause_now_and_then_counts_where_steps_were_counted_all_the_time() -> None:
    paused = pace(*([20.0] * 9 + [60.0]) * 4)
    found = compare(recorded(paused), recorded(pace(*[20.0] * 40)))
    assert found.steps is not None
    assert found.steps.by == "mean"
    assert found.steps.speedup.middle == pytest.approx(1.2, rel=0.05)
    assert found.steps.median.ratio.middle == 1.0


def test_what_came_before_the_job_had_settled_is_left_out_but_never_most() -> None:
    # 20 steps of 50 ms are a second.
    assert len(settled(pace(*[50.0] * 10))) == 8
    assert len(settled(pace(*[50.0] * 2))) == 1
    assert len(settled(pace(*[50.0] * 10, by="trace"))) == 10


def test_other_batches_are_compared_by_the_sample() -> None:
    a, b = recorded(noisy(30), batch=32.0), recorded(noisy(40, seed=2), batch=64.0)
    found = compare(a, b)
    assert found.per == "sample"
    assert found.verdict is Verdict.FASTER
    assert found.speedup is not None
    assert found.speedup.middle == pytest.approx(1.5, rel=0.02)
    answer = as_json(found)
    assert answer.step_ns["a"][1] == pytest.approx(30e6, rel=0.02)
    assert "32 and 64" in answer.why_per
    # What watching took of each side stands beside it.
    assert answer.a.overhead.monitor_cores is None
    assert answer.a.overhead.unknown["monitor_cores"] == NOT_RECORDED


def test_samples_a_second_must_do_where_nobody_knows_the_steps() -> None:
    a, b = (replace(recorded(None), sample_ns=ns) for ns in (2e6, 1e6))
    found = compare(a, b)
    assert (found.per, found.verdict) == ("sample", Verdict.UNCERTAIN)
    assert found.speedup is not None
    assert found.speedup.ends == [None, 2.0, None]


def test_without_steps_on_one_side_all_is_given_per_second() -> None:
    a = traced(IDLE_THEN_NOT[0], None, why_no_pace="it marks none")
    found = compare(a, traced(IDLE_THEN_NOT[1], noisy(20), "b.json"))
    assert (found.per, found.why_per) == ("second", "a.json: it marks none")
    times = {part.slice: (part.ns.a, part.ns.b) for part in found.slices}
    assert times[Slice.IDLE_INPUT] == (0.25e9, 0.0)
    assert sum(b or 0 for _, b in times.values()) == pytest.approx(1e9)
    answer = as_json(found)
    # What is known of one side alone is shown all the same.
    assert answer.step_ns["a"] is None
    assert answer.unknown["step_ns.a"] == "it marks none"
    low, middle, high = answer.step_ns["b"]
    assert low < 20e6 < high
    assert middle == pytest.approx(20e6, rel=0.02)
    assert as_json(found).unknown["speedup"] == "a.json: it marks none"


def test_the_slices_add_up_to_the_step_whatever_the_number_of_devices_and_steps() -> None:
    a = traced(answer({Slice.COMPUTE: 600, Slice.IDLE_INPUT: 200}, steps=2, devices=4), noisy(20))
    found = compare(a, traced(IDLE_THEN_NOT[1], noisy(15), "b.json"))
    assert found.steps is not None
    for which, step in (("a", found.steps.a), ("b", found.steps.b)):
        whole = sum(getattr(part.ns, which) for part in found.slices)
        assert whole == pytest.approx(step.middle)


def test_an_estimate_does_not_call_nothing_what_it_cannot_see() -> None:
    means = {m.JOB_LOADER_WAIT: 0.5}
    a = recorded(noisy(20), means)
    a = replace(a, window=replace(a.window, estimate=estimated(a.window.job)))
    parts = {part.slice: part.ns for part in compare(a, recorded(noisy(20))).slices}
    assert parts[Slice.IDLE_INPUT].a == pytest.approx(10e6, rel=0.02)
    assert parts[Slice.COMPUTE].a is None
    assert "estimate" in (parts[Slice.COMPUTE].why_a or "")
    assert parts[Slice.COMPUTE].b is None


def sides_with_kernels(*, whole: bool) -> tuple[Side, Side]:
    share = 1.0 if whole else 0.9
    ours = [kernel("matmul", 2000, 20, share / 2), kernel("copy", 2000, 10, share / 2)]
    theirs = [
        kernel("matmul", 1000, 20, share),
    ]
    time = {Slice.COMPUTE: 4000}
    return (
        traced(answer(time, top_kernels=ours), pace(*[400e-6] * 6, by="trace")),
        traced(answer(time, top_kernels=theirs), pace(*[400e-6] * 6, by="trace"), "b.json"),
    )


def test_kernels_that_lost_time_are_given_per_step_and_the_largest_change_first() -> None:
    changed = compare(*sides_with_kernels(whole=True)).kernels.changed
    assert [(k.name, k.ns.a, k.ns.b) for k in changed] == [
        ("copy", 200.0, 0.0), ("matmul", 200.0, 100.0),
    ]  # fmt: skip
    assert (changed[1].count.a, changed[1].count.b) == (2.0, 2.0)


def test_a_kernel_that_a_short_list_does_not_have_is_unknown_and_not_nothing() -> None:
    changed = {k.name: k for k in compare(*sides_with_kernels(whole=False)).kernels.changed}
    assert changed["copy"].ns.b is None
    assert changed["copy"].ns.why_b == "not among its 1 longest"


def test_transfers_are_given_per_step_and_unknown_bytes_say_so() -> None:
    def copied(size: int | None) -> dict[str, object]:
        one = {"direction": "host to device", "memory": "pageable", "count": 10}
        return answer({Slice.COMPUTE: 4000}, copies=[one | {"total_ns": 1000, "bytes": size}])

    took = pace(*[400e-6] * 6, by="trace")
    (found,) = compare(traced(copied(500), took), traced(copied(None), took, "b.json")).transfers
    assert (found.ns.a, found.ns.b) == (100.0, 100.0)
    assert (found.bytes.a, found.bytes.b) == (50.0, None)
    assert found.bytes.why_b


def test_memory_and_energy_that_one_side_does_not_know_have_a_reason() -> None:
    a = recorded(pace(*[100.0] * 20), watts=(300.0, 200.0))
    found = compare(a, traced(IDLE_THEN_NOT[1], noisy(100), "b.json"))
    assert found.energy == Pair(
        "energy", "J/step", pytest.approx(50.0), None, None, "no power is read"
    )
    assert {(pair.name, pair.a, pair.b) for pair in found.memory} == {
        ("resident memory, mean", 1e9, None), ("resident memory, peak", 2e9, None),
    }  # fmt: skip
    assert all(pair.why_b for pair in found.memory)


def test_a_kind_of_memory_that_was_not_measured_says_why() -> None:
    a = recorded(noisy(20), memory={"GPU memory": Level(1.0, 2.0)})
    b = recorded(noisy(20), memory={"GPU memory": "no permission"})
    assert {pair.why_b for pair in compare(a, b).memory} == {"no permission"}


def test_findings_are_gone_new_or_not_known() -> None:
    starved = answer({Slice.COMPUTE: 50 * 10**8, Slice.IDLE_INPUT: 50 * 10**8})
    healthy = answer({Slice.COMPUTE: 100 * 10**8})
    a, b = traced(starved, noisy(20)), traced(healthy, noisy(10), "b.json")
    faults = compare(a, b).faults
    assert [(f.rule, f.a, f.b) for f in faults.gone] == [("input_starved", "high", None)]
    assert [f.rule for f in compare(b, a).faults.new] == ["input_starved"]
    assert [f.rule for f in compare(a, a).faults.kept] == ["input_starved"]
    unseen = compare(a, recorded(noisy(10))).faults
    assert [f.rule for f in unseen.unknown] == ["input_starved"]
    assert not unseen.gone
    assert "needs" in (unseen.unknown[0].why_unknown or "")


def test_what_makes_it_unfair_is_warned_of() -> None:
    a = recorded(noisy(20), watts=(1.0,), facts={"version": "2.6"})
    b = recorded(noisy(20), watts=(1.0, 1.0), gpu="NVIDIA H100", facts={"version": "2.7"})
    found = compare(a, b)
    assert {(d.name, d.a, d.b) for d in found.setup} == {
        ("version", "2.6", "2.7"), ("GPU", "NVIDIA A100", "NVIDIA H100"), ("devices", "1", "2"),
    }  # fmt: skip
    assert len(found.warnings) == 3
    assert not compare(a, a).warnings


def test_a_trace_beside_a_run_is_compared_by_the_middle_step_and_says_so() -> None:
    found = compare(traced(IDLE_THEN_NOT[0], noisy(20, 8, by="trace")), recorded(noisy(10)))
    assert found.steps is not None
    assert found.steps.by == "median"
    assert found.verdict is Verdict.FASTER
    assert any("of a trace" in text for text in found.warnings)


def test_steps_that_only_our_own_traces_saw_are_warned_of() -> None:
    found = compare(recorded(noisy(20, by="trace")), recorded(noisy(10, by="trace"), label="run 2"))
    assert len([text for text in found.warnings if "which slows them" in text]) == 2


def test_a_machine_that_was_busier_for_one_of_them_is_warned_of() -> None:
    calm, busy = (recorded(noisy(20), {m.JOB_MAIN_THREAD_WAIT: wait}) for wait in (0.02, 0.3))
    (said,) = compare(calm, busy).warnings
    assert "2% of the time for a core in A, and 30% in B" in said
    assert not compare(calm, calm).warnings


def test_a_machine_that_was_busier_for_one_of_them_leaves_all_uncertain() -> None:
    calm = recorded(noisy(20), {m.JOB_MAIN_THREAD_WAIT: 0.02})
    busy = recorded(noisy(45, seed=2), {m.JOB_MAIN_THREAD_WAIT: 0.3}, "run 2")
    for found in (
        compare(calm, busy),
        compare(busy, calm),
        compare(calm, replace(busy, pace=calm.pace)),
    ):
        assert found.verdict is Verdict.UNCERTAIN
        assert found.why_uncertain == "the machine was not the same for both"
    assert compare(busy, replace(busy, pace=calm.pace)).verdict is Verdict.FASTER


def starved(*, own: float, busy: float, waiting: float = 0.0) -> Side:
    """A job that waits for cores, of which it takes some itself, and all programs a share."""
    means = {m.JOB_MAIN_THREAD_WAIT: 0.3, m.JOB_CPU: own, m.HOST_CORES: 8.0, m.HOST_CPU: busy}
    means |= {m.PROCESS_CPU: own, m.JOB_MAIN_THREAD: 0.7}
    return recorded(noisy(20), means | {m.JOB_WAITING_THREADS: waiting})


CALM = {m.JOB_MAIN_THREAD_WAIT: 0.0, m.JOB_CPU: 1.0, m.HOST_CORES: 8.0, m.HOST_CPU: 0.15}


@pytest.mark.parametrize(("own", "busy"), [(1.0, 0.95), (5.5, 1.0)])
def test_what_other_programs_took_is_no_finding_of_the_change(own: float, busy: float) -> None:
    crowded, calm = starved(own=own, busy=busy), recorded(noisy(20), CALM, "run 2")
    for a, b, name in ((crowded, calm, "A"), (calm, crowded, "B")):
        found = compare(a, b)
        assert not (*found.faults.gone, *found.faults.new, *found.faults.unknown)
        assert f"Other programs took cores from {name}." in found.warnings


def test_a_job_that_starved_itself_and_no_longer_does_has_lost_that_finding() -> None:
    found = compare(starved(own=7.5, busy=0.95, waiting=5.0), recorded(noisy(20), CALM, "run 2"))
    assert [fault.rule for fault in found.faults.gone] == ["cpu_starved"]


def on_a_cpu(side: Side) -> Side:
    changed = dict(side.window.traces[0].answer)
    changed["devices"] = [{"kind": "cpu", "index": "0", "model": None}]
    changed |= {
        "top_kernels": [],
        "top_operators": [kernel("aten::mm", 2000, 20, 1.0)],
        "copies": [],
    }
    return traced(changed, side.pace, "b.json")


def test_findings_and_copies_of_another_device_are_not_called_gone() -> None:
    copied = {"direction": "host to device", "memory": "pageable", "count": 10}
    slices = {Slice.COMPUTE: 50 * 10**8, Slice.IDLE_INPUT: 50 * 10**8}
    trace = answer(
        slices,
        copies=[copied | {"total_ns": 10**6, "bytes": 500}],
        top_kernels=[kernel("matmul", 1000, 10, 1.0)],
    )
    gpu = traced(trace, pace(*[1000.0] * 6, by="trace"))
    cpu = on_a_cpu(traced(answer({Slice.COMPUTE: 100 * 10**8}), gpu.pace))
    found = compare(gpu, cpu)
    assert not (*found.faults.gone, *found.faults.new)
    assert "input_starved" in {fault.rule for fault in found.faults.unknown}
    assert all("computes on a CPU" in (f.why_unknown or "") for f in found.faults.unknown)
    (copies,) = found.transfers
    assert (copies.ns.b, copies.bytes.b) == (None, None)
    assert copies.ns.why_b
    assert found.kernels.why_none == "A has kernels of a GPU, B operators of a CPU"


def test_a_device_that_fills_its_memory_copies_nothing() -> None:
    one = {"direction": "memset", "memory": None, "count": 10, "total_ns": 1000, "bytes": 500}
    side = traced(answer({Slice.COMPUTE: 4000}, copies=[one]), pace(*[400e-6] * 6, by="trace"))
    assert not compare(side, side).transfers


def test_what_ran_is_not_shown_where_the_steps_are_not_those_of_the_trace() -> None:
    side, other = sides_with_kernels(whole=True)
    without = answer({Slice.COMPUTE: 4000}, steps=0, top_kernels=[kernel("matmul", 9, 9, 1.0)])
    for b in (
        # No steps in the trace, and others than the job counts.
        traced(without, other.pace, "b.json"),
        replace(other, pace=pace(*[4000e-6] * 6, by="trace")),
    ):
        found = compare(side, b)
        assert not found.kernels.changed
        assert found.kernels.why_none == (
            "b.json: its trace shows no steps, or others than the job counts"
        )
        assert found.why_no_transfers == found.kernels.why_none


def test_which_figure_of_the_steps_is_which_is_said() -> None:
    paused = replace(pace(*([20.0] * 9 + [60.0]) * 4), p95_ns=58e6)
    answer = as_json(compare(recorded(paused), recorded(pace(*[20.0] * 40), label="run 2")))
    assert (answer.step_by, answer.speedup_by) == ("median", "mean")
    assert answer.step_ns["a"][1] == 20e6
    assert answer.mean_step_ns["a"][1] == pytest.approx(24e6, rel=0.05)
    assert answer.p95_step_ns == {"a": 58e6, "b": None}
    assert answer.unknown["p95_step_ns.b"]
