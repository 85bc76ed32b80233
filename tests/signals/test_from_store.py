"""A recording as rules see it: steady time only, rates per step, trends, and nothing made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.runs.summary import UNIT
from whyidle.monitor.signals.from_store import counted_then
from whyidle.monitor.signals.opening import of_run
from whyidle.monitor.signals.portable import dump, load
from whyidle.monitor.signals.recorded import GpuUser
from whyidle.monitor.signals.window import Window
from whyidle.monitor.store import NewRun, Reader, Writer

START_MS = 1_700_000_000_000
Values = Callable[[int], dict[Metric, float]]


def record(
    folder: Path,
    seconds: int,
    job: Values,
    process: Values = lambda _: {},
    last: float | None = None,
    *,
    unit_at: int | None = None,
) -> Window:
    """Record one process at 1 Hz and return the window over it."""
    path = folder / DATABASE
    entry = {
        "pid": 7, "start_ticks": 70, "rank": None, "method": "run", "inside": True,
        "stops_ms": [], "refused": None, "next_step": None, "frameworks": {}, "counted": None,
    }  # fmt: skip
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"processes": [entry]}))
        own = writer.add_process(run, pid=7, start_ticks=70)
        facts = {"probe": "torch", "facts": {"backend": "cpu", "loaders": [{"workers": 0}]}}
        writer.event(
            run, "framework", "-", ts_ms=START_MS, scope=Scope.PROCESS, subject=own, data=facts
        )
        if unit_at is not None:
            at = START_MS + 1000 * unit_at
            writer.event(run, UNIT, "-", ts_ms=at, scope=Scope.PROCESS, subject=own)
        for second in range(seconds):
            rows = {
                Scope.JOB: {run: stepping(job(second))},
                Scope.PROCESS: {own: Reading(process(second))},
            }
            writer.append(run, Tick(START_MS + 1000 * second, rows))
        writer.end_run(run, "job ended")
    return of_run(path, "last", last)


def stepping(values: dict[Metric, float]) -> Reading:
    return Reading(values, {} if m.JOB_STEPS in values else {m.JOB_STEPS: "no step yet"})


def ten_steps(second: int) -> dict[Metric, float]:
    return {m.JOB_STEPS: 10.0} if second >= 20 else {}


def test_warming_up_does_not_count(tmp_path: Path) -> None:
    window = record(tmp_path, 60, lambda s: {**ten_steps(s), m.JOB_COMPILE: 1.0 if s < 20 else 0.0})
    assert window.job.warm_s >= 20
    assert window.job.means[m.JOB_COMPILE] == 0.0
    assert window.steps_per_s is not None
    assert window.steps_per_s.value == 10.0


def paced(second: int, since: int, paces: Callable[[int], float]) -> float:
    """Return the steps a second over the last ten, or since they are counted."""
    last = range(max(since, second - 9), second + 1)
    return sum(map(paces, last)) / len(last)


def test_a_pace_of_before_is_in_no_step_of_the_window(tmp_path: Path) -> None:
    def slower(second: int) -> dict[Metric, float]:
        if second < 3:
            return {}
        return {m.JOB_STEPS: paced(second, 3, lambda s: 100.0 if s <= 5 else 10.0)}

    window = record(tmp_path, 25, slower)
    assert window.job.warm_s == 5
    assert window.steps_per_s is not None
    assert window.steps_per_s.value == pytest.approx(10.0)


@pytest.mark.parametrize(
    "paces",
    [
        # Short epochs and validations; a burst in the end; an episode that is played, then learned.
        lambda s: 40.0 if s % 7 < 4 else 0.0,
        lambda s: 3.0 if s < 20 else 120.0,
        lambda s: 200.0 if s % 3 == 0 else 1.0,
    ],
)
def test_uneven_steps_are_as_many_as_there_were(
    paces: Callable[[int], float], tmp_path: Path
) -> None:
    window = record(tmp_path, 30, lambda s: {m.JOB_STEPS: paced(s, 2, paces)} if s >= 2 else {})
    assert window.steps_per_s is not None
    true = [paces(second) for second in range(5, 30)]
    assert window.steps_per_s.value == pytest.approx(sum(true) / len(true), rel=0.001)


def test_steps_of_another_kind_are_in_none_of_the_last(tmp_path: Path) -> None:
    def changed(second: int) -> dict[Metric, float]:
        return {m.JOB_STEPS: 500.0 if second < 12 else paced(second, 12, lambda s: 5.0 + s % 2)}

    window = record(tmp_path, 30, changed, unit_at=12)
    assert window.job.warm_s == 14
    assert window.steps_per_s is not None
    assert window.steps_per_s.value == pytest.approx(5.5, rel=0.05)


def test_rates_are_given_per_step(tmp_path: Path) -> None:
    window = record(tmp_path, 60, ten_steps, lambda _: {m.PROCESS_SYNCS: 30.0})
    assert window.syncs_per_step is not None
    assert window.syncs_per_step.value == pytest.approx(3.0)
    assert window.syncs_per_step.unit == "1/step"


def test_what_is_asked_for_as_it_stands_is_the_newest(tmp_path: Path) -> None:
    window = record(tmp_path, 600, lambda s: {m.JOB_RSS: 1e9 + 1e7 * s, **ten_steps(s)})
    assert window.job.last(m.JOB_RSS) == 1e9 + 1e7 * 599
    assert window.job.means[m.JOB_RSS] < 5e9
    assert window.job.last(m.HOST_MEMORY_AVAILABLE) is None


def test_what_was_not_measured_is_none(tmp_path: Path) -> None:
    window = record(tmp_path, 30, lambda _: {m.JOB_CPU: 1.0})
    assert window.syncs_per_step is None
    assert window.step_s is None
    assert window.watts is None
    assert window.trace is None
    assert window.share(Slice.IDLE_INPUT) is None
    assert window.share(Slice.COMPUTE) is None


def test_what_the_frameworks_said_is_known(tmp_path: Path) -> None:
    window = record(tmp_path, 30, ten_steps)
    assert window.frameworks == ("pytorch",)
    assert window.device == "cpu"
    assert window.loaders == [{"workers": 0}]


def test_a_level_that_goes_on_rising(tmp_path: Path) -> None:
    window = record(tmp_path, 90, lambda s: {**ten_steps(s), m.JOB_RSS: 1e9 + 1e6 * s})
    trend = window.job.trends[m.JOB_RSS]
    assert trend.per_s == pytest.approx(1e6, rel=0.01)
    assert trend.holding == pytest.approx(1.0, rel=0.2)


def test_a_level_that_settles(tmp_path: Path) -> None:
    window = record(tmp_path, 90, lambda s: {**ten_steps(s), m.JOB_RSS: 1e9 + 1e6 * min(s, 40)})
    assert window.job.trends[m.JOB_RSS].holding < 0.3


@pytest.mark.parametrize("at", [5, 44, 60, 85])
def test_what_rises_at_once_does_not_go_on(at: int, tmp_path: Path) -> None:
    """Another program of the framework is loaded; its level creeps on."""
    window = record(
        tmp_path, 90, lambda s: {**ten_steps(s), m.JOB_RSS: 1e9 + 1e4 * s + 2e9 * (s > at)}
    )
    assert window.job.trends[m.JOB_RSS].per_s == pytest.approx(1e4, rel=0.5)


def test_only_the_last_seconds(tmp_path: Path) -> None:
    window = record(
        tmp_path,
        90,
        lambda s: {m.JOB_STEPS: 10.0, m.JOB_LOADER_WAIT: 0.9 if s < 60 else 0.1},
        last=20,
    )
    assert window.job.means[m.JOB_LOADER_WAIT] == pytest.approx(0.1)


def test_what_the_agent_saw_longer_counts_for_a_wait(tmp_path: Path) -> None:
    window = record(tmp_path, 30, lambda _: {m.JOB_STEPS: 1.0, m.JOB_GC_PAUSE: 0.2})
    share = window.share(Slice.IDLE_GC)
    assert share is not None
    assert (share.value, share.source) == (pytest.approx(0.2), "agent")


def test_a_window_survives_its_way_through_json(tmp_path: Path) -> None:
    window = record(
        tmp_path,
        60,
        lambda s: {**ten_steps(s), m.JOB_RSS: 1e9 + 1e6 * s},
        lambda _: {m.PROCESS_SYNCS: 30.0},
    )
    again = load(dump(window))
    assert dump(again) == dump(window)
    assert again.job.means == pytest.approx(window.job.means)
    assert again.job.trends.keys() == window.job.trends.keys()
    assert again.syncs_per_step is not None


def test_a_job_that_compiles_in_no_time_starts_when_it_is_first_heard_of(tmp_path: Path) -> None:
    def job(second: int) -> dict[Metric, float]:
        return {m.JOB_CPU: 1.0} | ({m.JOB_COMPILE: 0.0} if second >= 5 else {})

    assert record(tmp_path, 60, job).job.warm_s == pytest.approx(7.0)


def test_what_was_compiled_at_first_is_not_in_a_short_recording(
    tmp_path: Path,
) -> None:
    def job(second: int) -> dict[Metric, float]:
        if second < 2:
            return {m.JOB_CPU: 1.0}
        # As a recorder stores it: over the last ten seconds, of which four went into compiling.
        grown = min(second, 5) - max(1, min(second - 10, 5))
        return {m.JOB_CPU: 1.0, m.JOB_COMPILE: grown / min(second - 1, 10)}

    window = record(tmp_path, 15, job)
    assert window.job.warm_s == pytest.approx(7.0)
    assert window.job.means[m.JOB_COMPILE] == pytest.approx(0.0, abs=1e-9)


def sampled(place: str, samples: int, waited: int, blocked: int = 0) -> dict[str, Any]:
    found = StackSamples()
    line = CodeLine("/u/train.py", 3, place)
    found.samples = samples
    found.count(Chain((line,), line), samples, samples, waited, 0, blocked)
    return {"pid": 0} | found.packed(10_000)


def test_processes_that_make_no_steps_are_helpers(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    entries = [
        {"pid": pid, "start_ticks": 70, "rank": rank, "method": "run", "inside": True,
         "stops_ms": [], "refused": None, "next_step": None, "frameworks": {}, "counted": None}
        for pid, rank in ((7, 0), (8, None), (9, 1))
    ]  # fmt: skip
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"processes": entries}))
        own = {pid: writer.add_process(run, pid=pid, start_ticks=70) for pid in (7, 8, 9)}
        for pid, place in ((7, "step"), (8, "decode"), (9, "step")):
            data = sampled(place, 100, 60 if pid == 8 else 0, 40 if pid == 8 else 0)
            data["reads"] = {"nfs4 at /data": 30, "socket": 2} if pid == 8 else {}
            at = START_MS + 10_000
            writer.event(
                run, "stacks", "-", ts_ms=at, scope=Scope.PROCESS, subject=own[pid], data=data
            )
        for kind, place in (("thread_stacks", "feed"), ("short_lived_stacks", "begin")):
            writer.event(
                run, kind, "-", ts_ms=at, scope=Scope.PROCESS, subject=own[7],
                data=sampled(place, 20, 0) | {"reads": {"nfs4 at /data": 1}},
            )  # fmt: skip
        for second in range(30):
            cpu = {own[7]: 1.5, own[8]: 0.4, own[9]: 1.5}
            rows = {who: Reading({m.PROCESS_CPU: cores}) for who, cores in cpu.items()}
            writer.append(run, Tick(START_MS + 1000 * second, {Scope.PROCESS: rows}))
        writer.end_run(run, "job ended")
    job = of_run(path, "last").job
    (helper,) = job.helpers
    assert helper.cores == pytest.approx(0.4)
    # All of its CPU time is where it ran, however long it waited.
    assert [(line.function, line.share) for line in helper.lines] == [("decode", 1.0)]
    # Its chains say what it waited for, and what of it was a disk.
    (counts,) = helper.stacks.chains.values()
    assert (counts.waited, counts.blocked) == (60, 40)
    # The other threads of the first process, what hardly lived, and what all of them read from.
    assert [line.function for line in job.threads.lines()] == ["feed"]
    assert [line.function for line in job.short_lived.lines()] == ["begin"]
    assert job.read_from == {"nfs4 at /data": 32, "socket": 2}
    # Other threads are no samples of the main one.
    assert {line.function for line in job.lines} == {"step"}


def test_who_uses_the_gpus_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"gpus": ["0"]}))
        card, other = (writer.add_gpu(run, idx=i, name="NVIDIA H200", info={}) for i in "01")
        ours, theirs, still, away = (
            writer.add_process(run, pid=pid, start_ticks=70, name=f"p{pid}") for pid in (1, 2, 3, 4)
        )
        pairs = [writer.add_gpu_process(card, who) for who in (ours, theirs, still)]
        elsewhere = writer.add_gpu_process(other, away)
        for second in range(40):
            users = {pair: Reading({m.PROCESS_GPU_MEMORY: 1e9}) for pair in (*pairs, elsewhere)}
            users[pairs[0]].values[m.PROCESS_SM_SHARE] = 0.5
            # The driver names a process that computed since the last time, and no other.
            if second % 2:
                users[pairs[1]].values[m.PROCESS_SM_SHARE] = 0.6
            used = {m.GPU_UTILISATION: 0.9, m.GPU_PCIE_GENERATION: 4.0 if second % 9 else 1.0}
            rows = {
                Scope.GPU: {card: Reading(dict(used)), other: Reading(dict(used))},
                Scope.GPU_PROCESS: users,
                Scope.PROCESS: {ours: Reading({m.PROCESS_RSS: 1e9})},
                Scope.MONITOR: {run: Reading({m.SELF_CPU: 0.02})},
                Scope.JOB: {run: Reading({m.JOB_CPU: 1.0})},
            }
            writer.append(run, Tick(START_MS + 1000 * second, rows))
        writer.end_run(run, "job ended")
    window = of_run(path, "last")
    first, second_gpu = window.job.gpus
    shares = {user.pid: (user.is_ours, user.sm_share) for user in first.users}
    assert shares == {
        1: (True, pytest.approx(0.5)), 2: (False, pytest.approx(0.3)), 3: (False, 0.0),
    }  # fmt: skip
    assert first.taken_by_others == pytest.approx(0.3)
    # Of GPUs that are not the job's nothing is asked.
    assert (second_gpu.users, second_gpu.highest) == ((), {})
    assert first.highest == {m.GPU_PCIE_GENERATION: 4.0}
    assert window.job.means[m.SELF_CPU] == pytest.approx(0.02)
    assert dump(load(dump(window))) == dump(window)


@pytest.mark.parametrize(
    ("began", "ended", "counted"),
    [
        # Ticks tell of the second before them: those at 11, 12 and 13 s of these seconds.
        (10.0, 13.0, 12.0),
        (10.2, 12.9, 12.0),
        # Of a quarter of a second no tick tells.
        (10.2, 10.45, None),
    ],
)
def test_what_the_counters_said_while_a_trace_was_taken(
    tmp_path: Path, began: float, ended: float, counted: float | None
) -> None:
    path = tmp_path / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"gpus": ["0"]}))
        cards = [writer.add_gpu(run, idx=index, name="NVIDIA H200") for index in "01"]
        for second in range(20):
            work = Reading({m.GPU_ENGINE_ACTIVITY: second / 100})
            rows = {Scope.GPU: dict.fromkeys(cards, work)}
            writer.append(run, Tick(START_MS + 1000 * second, rows))
    taken: Any = {
        "began_ms": START_MS + int(1000 * began), "ended_ms": START_MS + int(1000 * ended),
    }  # fmt: skip
    with Reader.open(path) as reader:
        found = counted_then(reader, reader.find("last"), taken)
        assert counted_then(reader, reader.find("last"), None) == ()
    means = [gpu[m.GPU_ENGINE_ACTIVITY] for gpu in found]
    assert means == ([] if counted is None else [pytest.approx(counted / 100)])


def test_who_is_on_a_gpu_and_whose_process_that_is(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with Writer.open(path) as writer:
        run = writer.begin_run(NewRun(started_ms=START_MS, info={"gpus": ["0"]}))
        gpu = writer.add_gpu(run, idx="0", uuid="GPU-a", name="H100", info={})
        job = writer.add_process(run, pid=7, start_ticks=70, name="train.py")
        other = writer.add_process(run, pid=9, start_ticks=90, name="notebook.py")
        pairs = [writer.add_gpu_process(gpu, process) for process in (job, other)]
        for second in range(60):
            works = {m.PROCESS_GPU_MEMORY: 3e9, m.PROCESS_SM_SHARE: 0.5}
            held = {m.GPU_UTILISATION: 0.5, m.GPU_MEMORY_UNCLAIMED: 1e9}
            rows = {
                Scope.GPU: {gpu: Reading(held)},
                Scope.PROCESS: {job: Reading({m.PROCESS_RSS: 1e9})},
                Scope.GPU_PROCESS: {
                    pairs[0]: Reading(works),
                    pairs[1]: Reading({m.PROCESS_GPU_MEMORY: 20e9}),
                },
            }
            writer.append(run, Tick(START_MS + 1000 * second, rows))
        writer.end_run(run, "job ended")
    window = of_run(path, "last")
    (seen,) = window.job.gpus
    assert seen.users == (
        GpuUser(7, "train.py", is_ours=True, memory=3e9, sm_share=0.5),
        GpuUser(9, "notebook.py", is_ours=False, memory=20e9, sm_share=0.0),
    )
    assert seen.means[m.GPU_MEMORY_UNCLAIMED] == 1e9
    assert load(dump(window)).job.gpus == window.job.gpus


def test_how_far_the_allocators_figures_went(tmp_path: Path) -> None:
    window = record(tmp_path, 60, ten_steps, lambda s: {m.PROCESS_ALLOC_OOMS: 2.0 + (s > 40)})
    assert window.job.ranges[m.PROCESS_ALLOC_OOMS] == (2.0, 3.0)
    assert load(dump(window)).job.ranges == window.job.ranges
