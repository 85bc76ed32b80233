"""What a pair came to: predicted, measured, gone; made by hand, so that nothing is run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console

from benchmarks.record_pairs import kept
from tests.rules.windows import WINDOWS
from whyidle.monitor import compare
from whyidle.monitor.compare.sides import Pace, Stretch
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.demo.answer import AS_PRINTED, as_json
from whyidle.monitor.demo.outcome import NO_TIME, NO_WAITS, NOT_PRINTED, Half, Outcome
from whyidle.monitor.demo.pairs import Pair, named
from whyidle.monitor.demo.watched import Watched
from whyidle.monitor.render import demo
from whyidle.monitor.render.numbers import DASH
from whyidle.monitor.signals.opening import estimated
from whyidle.monitor.signals.portable import load
from whyidle.monitor.signals.recorded import Recorded, SeenGpu
from whyidle.monitor.signals.window import Window


def outcome(name: str, framework: str, **printed: Any) -> Outcome:
    """Return the outcome of a pair whose windows were recorded."""
    pair = named(name, framework)
    halves = [half(pair, side, number, **printed) for number, side in ((7, "before"), (8, "after"))]
    sides = [compare.of_window(each.window) for each in halves]
    return Outcome(pair, halves[0], halves[1], compare.compare(sides[0], sides[1]))


def half(pair: Pair, side: Any, run: int, **printed: Any) -> Half:
    stored = kept(WINDOWS / pair.name / f"{side}_{pair.framework}.json.gz") | printed
    watched = Watched(run, pair.script("before"), stored["step_ms"], stored["samples_per_s"])
    return Half(watched, load(stored["window"]))


def waiting(outcome: Outcome, before: float | None, after: float | None) -> Outcome:
    """Return it as on a machine whose other programs take the cores for so much of the time."""
    halves = []
    for side, share in ((outcome.before, before), (outcome.after, after)):
        job = side.window.job
        means = {k: v for k, v in job.means.items() if k != m.JOB_MAIN_THREAD_WAIT}
        is_full = share is None or share > 0.05
        means |= {m.HOST_CPU: 1.0 if is_full else 0.2, m.HOST_CORES: 16.0, m.JOB_CPU: 1.0}
        means |= {} if share is None else {m.JOB_MAIN_THREAD_WAIT: share}
        window = replace(side.window, job=replace(job, means=means))
        halves.append(replace(side, window=window))
    sides = [compare.of_window(each.window) for each in halves]
    found = compare.compare(*sides)
    return replace(outcome, before=halves[0], after=halves[1], comparison=found)


def counted(result: Outcome, number: int) -> Outcome:
    """Return it with steps that were counted in so many stretches of half a second."""
    sides = []
    for side, step_ns in ((result.before, 20e6), (result.after, 10e6)):
        steps = round(5e8 / step_ns)
        wide = [step_ns * (1 + 0.01 * (i % 3)) for i in range(number)]
        pace = Pace(
            tuple(Stretch(steps, steps * ns * 1.1, ns) for ns in wide),
            step_ns,
            "counted",
            "counted",
        )
        sides.append(replace(compare.of_window(side.window), pace=pace))
    return replace(result, comparison=compare.compare(*sides))


def shown(result: Outcome, width: int = 80) -> str:
    console = Console(width=width, color_system=None, highlight=False)
    return demo.screen(result, console)


STARVED = outcome("input_starved", "torch")


def test_what_was_predicted_is_put_beside_what_was_measured() -> None:
    answer = as_json(STARVED)
    assert answer.fault == "input_starved"
    assert answer.before.top == "input_starved"
    assert answer.predicted == STARVED.before.findings[0].speedup
    ratio = answer.after.samples_per_s / answer.before.samples_per_s
    assert answer.measured[1] == pytest.approx(ratio, abs=1e-3)
    low, high = answer.predicted
    assert answer.as_predicted is (0.97 * low <= ratio <= 1.03 * high)
    assert "input_starved" in answer.findings_gone
    # What watching took is told with it, or why it is not known.
    cost = answer.before.overhead
    assert (cost.monitor_cores is None) == ("monitor_cores" in cost.unknown)


def test_an_end_that_is_not_known_is_null_with_its_reason() -> None:
    answer = as_json(STARVED)
    assert answer.measured[0] is None
    assert answer.measured_over is None
    assert answer.unknown["measured"]
    assert answer.before.step_ns[0] is None
    assert answer.before.unknown["step_ns"]


def test_the_middle_step_and_its_ends_are_of_one_kind() -> None:
    answer = as_json(counted(STARVED, 20)).before
    low, middle, high = answer.step_ns
    assert low <= middle <= high
    assert 20e6 <= middle <= 20.4e6
    assert answer.step_ns_of == "median of the steps counted in the job"
    # What a step takes on average, pauses included, is another number.
    assert answer.mean_step_ns == round(STARVED.before.watched.step_ms * 1e6)
    assert "step_ns" not in answer.unknown


def test_without_steps_the_mean_that_was_printed_stands_for_them_and_says_so() -> None:
    sides = [compare.of_window(each.window) for each in (STARVED.before, STARVED.after)]
    sides = [replace(side, pace=None, why_no_pace="nothing counts them") for side in sides]
    answer = as_json(replace(STARVED, comparison=compare.compare(*sides))).before
    assert answer.step_ns == [None, answer.mean_step_ns, None]
    assert answer.step_ns_of == AS_PRINTED
    assert answer.unknown["step_ns"] == "nothing counts them"


def test_the_interval_counts_the_stretches_that_it_is_drawn_from() -> None:
    result = counted(STARVED, 20)
    assert len(result.comparison.a.pace.stretches) == 20
    # Those of the first two seconds are of a job that fills its queues.
    said = result.measured_over
    assert said is not None
    assert "resampled from 17 and 17 stretches" in said


def test_what_other_programs_take_is_no_effect_of_the_fix() -> None:
    result = waiting(STARVED, 0.01, 0.31)
    assert result.after.of("cpu_starved") is not None
    for rules in (result.gone, result.left, result.new, result.not_judged):
        assert "cpu_starved" not in rules
    assert result.waits == "other programs took cores: before 1%, after 31% of the time"
    answer = as_json(result)
    assert answer.waited_for_core == [0.01, 0.31]
    assert answer.after.top != "cpu_starved"
    page = shown(result)
    assert "other programs took cores: before 1%, after 31%" in page
    assert "new  " not in page


def test_on_a_quiet_machine_nothing_is_said_of_it() -> None:
    assert waiting(STARVED, 0.0, 0.01).waits is None


def test_a_wait_that_was_not_recorded_is_null_with_its_reason() -> None:
    answer = as_json(waiting(STARVED, None, 0.2))
    assert answer.waited_for_core == [None, 0.2]
    assert answer.unknown["waited_for_core"] == NO_WAITS


def test_a_pair_about_the_cores_is_judged_by_them() -> None:
    pair = Pair("cpu_starved", "torch", STARVED.pair.folder, ("cpu_starved",))
    result = replace(waiting(STARVED, 0.31, 0.3), pair=pair)
    assert "cpu_starved" in result.left
    assert result.waits is None


def test_a_program_that_says_nothing_of_its_pace() -> None:
    result = outcome("input_starved", "torch", step_ms=None, samples_per_s=None)
    assert as_json(result).measured == [None, None, None]
    assert result.unknown["measured"] == NOT_PRINTED
    assert NOT_PRINTED in shown(result)


def test_several_rounds_show_how_far_the_speedup_varies() -> None:
    def paced(samples_per_s: float) -> Watched:
        return Watched(9, Path("x.py"), 1.0, samples_per_s)

    rounds = ((paced(100), paced(150)), (paced(100), paced(900)))
    result = replace(STARVED, rounds=rounds)
    low, middle, high = result.measured
    assert (low, high) == (1.5, 9.0)
    assert middle == STARVED.speedup
    assert result.measured_over == "the least and the most of 3 rounds"
    assert "measured" not in result.unknown
    assert "--rounds" in shown(STARVED)
    assert "--rounds" not in shown(result)


def test_a_fault_that_costs_no_time_promises_none() -> None:
    result = outcome("memory_growth", "torch")
    assert result.predicted is None
    assert result.unknown["predicted"] == NO_TIME
    assert result.is_as_predicted is None


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in shown(STARVED, width).splitlines()) <= width


def test_the_page_names_the_fault_its_line_the_fix_and_the_gain() -> None:
    page = shown(STARVED, 100)
    assert "HIGH   The device waits for the next batch  [input_starved]" in page
    assert "before_torch.py:" in page
    assert "Fix: Load with worker processes" in page
    assert "- loader = DataLoader(" in page
    assert "+ loader = DataLoader(" in page
    assert f"{STARVED.speedup:.2f}x faster" in page
    assert "as fast" not in page
    assert "predicted" in page
    assert "measured" in page
    assert "gone        input_starved" in page


def bars(page: str) -> list[int]:
    """Return the lengths of the two bars."""
    lines = page.splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("before  "))
    return [len(line.rstrip()) - len("before  ") for line in lines[last : last + 2]]


@pytest.mark.parametrize("width", [40, 80])
def test_a_bar_is_as_long_as_its_step(width: int) -> None:
    def of(step_ms: float) -> Outcome:
        after = replace(STARVED.after.watched, step_ms=step_ms, samples_per_s=32e3 / step_ms)
        before = replace(STARVED.before.watched, step_ms=50.0, samples_per_s=640.0)
        halves = replace(STARVED.before, watched=before), replace(STARVED.after, watched=after)
        return replace(STARVED, before=halves[0], after=halves[1])

    for step_ms in (5.0, 25.0, 50.0):
        before, after = bars(shown(of(step_ms), width))
        assert before == width - 8
        assert after == pytest.approx(before * step_ms / 50, abs=1)


def test_times_stand_beside_shares_where_there_is_room() -> None:
    page = shown(STARVED, 80)
    (title,) = [line for line in page.splitlines() if line.startswith("time of a step")]
    assert title.split()[4:] == ["before", "after", "share", "before", "share", "after"]
    narrow = [line for line in shown(STARVED, 40).splitlines() if line.startswith("time of a")]
    assert narrow[0].split()[4:] == ["before", "after"]


def test_parts_of_a_whole_run_are_no_parts_of_a_step() -> None:
    result = replace(STARVED, before=replace(STARVED.before), after=replace(STARVED.after))
    rough = structs.replace(STARVED.after.diagnosis, budget_source="estimate")
    vars(result.after)["diagnosis"] = rough
    page = shown(result)
    assert "time of a step" not in page
    assert bars(page) == bars(shown(STARVED))


def test_what_nobody_measured_is_not_nothing() -> None:
    window = STARVED.before.window
    counted = replace(window, traces=(), estimate=estimated(window.job))
    result = replace(STARVED, before=replace(STARVED.before, window=counted))
    assert Slice.COMPUTE in counted.not_measured
    assert Slice.IDLE_INPUT not in counted.not_measured
    assert result.before.diagnosis.not_measured[Slice.COMPUTE]
    (compute,) = [x for x in shown(result).splitlines() if x[2:].startswith("compute ")]
    assert compute.split()[-2] == DASH
    assert STARVED.after.diagnosis.not_measured == {}


@pytest.mark.parametrize(
    ("gpus", "means", "hidden"),
    [
        ((), {m.JOB_GC_PAUSE: 0.5}, {Slice.COMPUTE, Slice.IDLE_COMPILE, Slice.IDLE_SYNC}),
        # Reads take time, and it is not known whether it computes meanwhile.
        ((), {m.JOB_GC_PAUSE: 0.2, m.JOB_SYNC_WAIT: 0.6}, {Slice.COMPUTE, Slice.IDLE_SYNC}),
        ((), {m.JOB_GC_PAUSE: 0.2, m.JOB_SYNC_WAIT: 0.0}, {Slice.COMPUTE}),
        # A GPU that did nothing all the while.
        ((0.0,), {m.JOB_GC_PAUSE: 0.5, m.JOB_SYNC_WAIT: 0.0}, set()),
    ],
)
def test_what_an_estimate_measured_is_no_matter_of_a_trace(
    gpus: tuple[float, ...], means: dict[Metric, float], hidden: set[Slice]
) -> None:
    seen = [
        SeenGpu(str(n), None, owned=True, means={m.GPU_UTILISATION: busy})
        for n, busy in enumerate(gpus)
    ]
    job = Recorded(means=means, gpus=seen)
    missing = Window("run 1", job=job, estimate=estimated(job)).not_measured
    judged = {Slice.COMPUTE, Slice.IDLE_SYNC, Slice.IDLE_GC}
    assert judged & set(missing) == judged & hidden
    assert Slice.IDLE_DISPATCH in missing
    assert Slice.IDLE_UNKNOWN not in missing


def test_of_other_batches_a_sample_is_the_same_work() -> None:
    before = replace(STARVED.before.watched, step_ms=10.0, samples_per_s=1e4)
    after = replace(STARVED.after.watched, step_ms=20.0, samples_per_s=4e4)
    result = replace(
        STARVED,
        before=replace(STARVED.before, watched=before),
        after=replace(STARVED.after, watched=after),
    )
    assert result.work == ("sample", 1e5, 2.5e4)
    assert "time of a sample" in shown(result)


def test_a_fix_that_makes_it_slower_is_not_called_faster() -> None:
    assert demo.much(2.0) == "2.00x faster"
    assert demo.much(0.5) == "2.00x slower"


def test_the_end_says_what_to_try_and_only_what_there_is() -> None:
    text = demo.closing([STARVED], ["compare"], Path("/state/whyidle.db"))
    assert "Runs 7 to 8 are stored in /state." in text
    assert "monitor compare 7 8 " in text
    assert "dashboard" not in text
    assert text.splitlines()[-1].strip().startswith("monitor attach PID")
    assert "monitor dashboard" in demo.closing([STARVED], ["dashboard"], Path("/state/whyidle.db"))
