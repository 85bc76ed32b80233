from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.store.conftest import START_MS, Store
from whyidle.monitor.core.errors import Exit, UsageProblem
from whyidle.monitor.core.metrics import (
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_UTILISATION,
    GPU_XID,
    JOB_CPU,
    METRICS,
    PROCESS_CPU,
    PROCESS_GPU_MEMORY,
    PROCESS_RSS,
    Scope,
    metrics_of,
)
from whyidle.monitor.core.reading import UNSUPPORTED, Reading, Tick
from whyidle.monitor.store import Key, NewRun, Point, Reader, UnknownRun, Value, Writer


def test_run_and_its_subjects_come_back(store: Store) -> None:
    writer = store.writer
    process = writer.add_process(
        store.run, pid=7, start_ticks=70, name="python", rank=3, info={"a": [1]}
    )
    joined = writer.add_gpu_process(store.gpu, process)
    writer.describe_run(store.run, framework="jax", info={"driver": "580"})
    writer.event(store.run, "xid", "XID 79", severity="high", scope=Scope.GPU, subject=store.gpu)
    with store.reader() as reader:
        (run,) = reader.runs()
        assert (run.label, run.framework, run.info) == ("test", "jax", {"driver": "580"})
        assert (run.recorder_pid, run.ended_ms) == (os.getpid(), None)
        assert [gpu.uuid for gpu in reader.gpus(store.run)] == ["GPU-0"]
        (found,) = reader.processes(store.run)
        assert (found.id, found.pid, found.rank, found.info) == (process, 7, 3, {"a": [1]})
        assert [join.id for join in reader.gpu_processes(store.run)] == [joined]
        (event,) = reader.events(store.run)
        assert (event.kind, event.scope, event.subject) == ("xid", Scope.GPU, store.gpu)


def test_mere_news_may_be_left_out(store: Store) -> None:
    for i, severity in enumerate(("info", "low", "info", "high", "info")):
        store.writer.event(store.run, "what", f"{i}", severity=severity, ts_ms=1000 + i)
    with Reader.open(store.path) as reader:
        assert [e.text for e in reader.events(store.run, with_news=False)] == ["1", "3"]
        assert [e.text for e in reader.events(store.run, most=1, with_news=False)] == ["3"]


def test_of_many_events_the_severe_and_the_newest_are_returned(store: Store) -> None:
    store.writer.event(store.run, "xid", "XID 79", severity="high", ts_ms=1)
    for i in range(300):
        store.writer.event(store.run, "exec" if i % 2 else "stacks", str(i), ts_ms=2 + i)
    with store.reader() as reader:
        found = reader.events(store.run, without={"stacks"}, most=20)
        assert [e.text for e in found] == ["XID 79", *(str(i) for i in range(263, 300, 2))]
        assert reader.count_events(store.run, without={"stacks"}) == 151
        assert len(reader.events(store.run)) == 301


def test_subjects_are_found_again(store: Store) -> None:
    writer = store.writer
    one = writer.add_process(store.run, pid=7, start_ticks=70)
    assert writer.add_process(store.run, pid=7, start_ticks=70) == one
    assert writer.add_process(store.run, pid=7, start_ticks=71) != one
    joined = writer.add_gpu_process(store.gpu, one)
    assert writer.add_gpu_process(store.gpu, one) == joined


def test_every_metric_of_every_scope_is_kept(store: Store) -> None:
    process = store.writer.add_process(store.run, pid=7, start_ticks=70)
    subject = {
        Scope.GPU: store.gpu,
        Scope.PROCESS: process,
        Scope.GPU_PROCESS: store.writer.add_gpu_process(store.gpu, process),
    }
    rows = {
        scope: {
            subject.get(scope, store.run): Reading(
                {metric: METRICS.index(metric) + 0.5 for metric in metrics_of(scope)}
            )
        }
        for scope in Scope
    }
    assert store.writer.append(store.run, Tick(START_MS, rows))
    with store.reader() as reader:
        latest = reader.latest(store.run)
    assert {key.metric: value for key, value in latest.items()} == {
        metric: Value(START_MS, METRICS.index(metric) + 0.5) for metric in METRICS
    }


def test_unknown_is_not_zero_and_not_due_is_neither(store: Store) -> None:
    zero = {GPU_UTILISATION: 0.0, GPU_TEMPERATURE: 40.0}
    store.writer.append(store.run, store.tick(START_MS, zero, {GPU_XID: UNSUPPORTED}))
    # The temperature is not due at the second tick: its last value stands.
    store.writer.append(store.run, store.tick(START_MS + 1000, {GPU_UTILISATION: 0.0}))
    with store.reader() as reader:
        key = Key(Scope.GPU, store.gpu, GPU_UTILISATION)
        latest, unknown = reader.latest(store.run), reader.unknown(store.run)
        assert latest[key] == Value(START_MS + 1000, 0.0)
        assert latest[key._replace(metric=GPU_TEMPERATURE)] == Value(START_MS, 40.0)
        assert key._replace(metric=GPU_XID) not in latest
        assert {k.metric: why for k, why in unknown.items()} == {GPU_XID: (START_MS, UNSUPPORTED)}
        span = (START_MS, START_MS + 2000, 100)
        assert reader.series(GPU_TEMPERATURE, [store.gpu], *span)[store.gpu] == [
            Point(START_MS, 40.0, 40.0, 40.0),
            Point(START_MS + 1000, None, None, None),
        ]


def test_reasons_are_logged_when_they_change(store: Store) -> None:
    steps: list[tuple[dict, dict]] = [  # type: ignore[type-arg]
        ({}, {GPU_POWER: "stale"}),
        ({}, {GPU_POWER: "stale"}),
        ({}, {}),  # not due
        ({}, {GPU_POWER: "GPU lost"}),
        ({GPU_POWER: 300.0}, {}),
        ({GPU_POWER: 301.0}, {}),
        ({}, {GPU_POWER: "stale"}),
    ]
    for i, (values, unknown) in enumerate(steps):
        assert store.writer.append(store.run, store.tick(START_MS + i, values, unknown))
    query = "SELECT ts_ms, reason FROM unknown ORDER BY ts_ms"
    assert store.writer._connection.execute(query).fetchall() == [
        (START_MS, "stale"),
        (START_MS + 3, "GPU lost"),
        (START_MS + 4, None),
        (START_MS + 6, "stale"),
    ]


def test_a_run_is_found_by_id_label_and_last(store: Store) -> None:
    second = store.writer.begin_run(NewRun(label="other"))
    with store.reader() as reader:
        assert reader.find("test").id == store.run
        assert reader.find(str(store.run)).id == store.run
        assert reader.find("last").id == second
        with pytest.raises(UnknownRun, match="'nothing'") as caught:
            reader.find("nothing")
    assert caught.value.code == Exit.USAGE
    assert "monitor runs" in caught.value.next_step


@pytest.mark.parametrize("label", ["last", "7", "007", "\u0663"])
def test_a_label_that_would_not_be_found_is_refused(store: Store, label: str) -> None:
    with pytest.raises(UsageProblem, match=label) as caught:
        store.writer.begin_run(NewRun(label=label))
    assert caught.value.next_step
    with store.reader() as reader:
        assert [run.id for run in reader.runs()] == [store.run]


def test_only_the_scopes_that_are_wanted_are_read(store: Store) -> None:
    process = store.writer.add_process(store.run, pid=7, start_ticks=70)
    rows = {
        Scope.GPU: {store.gpu: Reading({GPU_POWER: 1.0}, {GPU_XID: UNSUPPORTED})},
        Scope.PROCESS: {process: Reading({PROCESS_CPU: 2.0}, {PROCESS_RSS: UNSUPPORTED})},
    }
    assert store.writer.append(store.run, Tick(START_MS, rows))
    with store.reader() as reader:
        for ask in (reader.latest, reader.summary, reader.unknown):
            assert {key.scope for key in ask(store.run)} == {Scope.GPU, Scope.PROCESS}
            assert {key.scope for key in ask(store.run, {Scope.GPU})} == {Scope.GPU}
            assert ask(store.run, ()) == {}


def test_when_a_process_was_last_seen(path: Path) -> None:
    store = Store(path)
    one, two, three = (
        store.writer.add_process(store.run, pid=pid, start_ticks=70, first_ms=START_MS)
        for pid in (1, 2, 3)
    )
    lives = {one: 30, two: 100, three: 130}
    found = []
    for second in range(130):
        live = {p: Reading({PROCESS_CPU: 1.0}) for p, end in lives.items() if second < end}
        assert store.writer.append(store.run, Tick(store.clock.ms, {Scope.PROCESS: live}))
        store.writer.maintain(store.clock())
        store.clock.ms += 1000
        with store.reader() as reader:
            found.append({p.id: p.last_ms for p in reader.processes(store.run)})
    # Not at every tick, but each minute; and in the end it is exact.
    assert len({tuple(times.values()) for times in found}) <= 4
    assert found[-1][one] == START_MS + 29_000
    store.writer.end_run(store.run, "done")
    with store.reader() as reader:
        last = {p.id: p.last_ms for p in reader.processes(store.run)}
    assert last == {p: START_MS + end * 1000 - 1000 for p, end in lives.items()}
    store.writer.close()


def test_when_a_process_of_another_job_was_last_on_the_gpu(store: Store) -> None:
    process = store.writer.add_process(store.run, pid=1, start_ticks=70, first_ms=START_MS)
    pair = store.writer.add_gpu_process(store.gpu, process)
    store.writer.add_process(store.run, pid=2, start_ticks=70, first_ms=START_MS)
    rows = {Scope.GPU_PROCESS: {pair: Reading({PROCESS_GPU_MEMORY: 1.0})}}
    assert store.writer.append(store.run, Tick(START_MS + 7000, rows))
    store.writer.end_run(store.run, "done")
    with store.reader() as reader:
        found = [p.last_ms for p in reader.processes(store.run)]
    assert found == [START_MS + 7000, START_MS]


def test_ending_closes_the_run(store: Store) -> None:
    store.watch(3, lambda _: 1.0)
    assert store.writer.end_run(store.run, "the job ended", 3)
    with store.reader() as reader:
        run = reader.find("last")
    assert (run.ended_ms, run.end_reason, run.exit_code) == (store.clock.ms, "the job ended", 3)


def test_only_the_owner_may_read(store: Store) -> None:
    store.watch(1, lambda _: 1.0)
    assert store.path.parent.stat().st_mode & 0o777 == 0o700
    for file in store.path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_two_writers_and_a_reader_at_once(path: Path) -> None:
    one, two = Store(path), Store(path)
    with one.reader() as reader:
        for i in range(50):
            for store in (one, two):
                tick = store.tick(START_MS + i * 1000, {GPU_POWER: float(store.run)})
                assert store.writer.append(store.run, tick)
                store.writer.maintain(START_MS / 1000 + i)
            values = {v.value for v in reader.latest(one.run).values()}
            assert values == {one.run}
            assert (
                len(reader.series(GPU_POWER, [two.gpu], START_MS, START_MS + 50_000, 99)[two.gpu])
                == i + 1
            )
        one.writer.close()
        two.writer.close()
        assert len(reader.runs()) == 2


def test_job_scope_uses_the_run_as_subject(store: Store) -> None:
    tick = Tick(START_MS, {Scope.JOB: {store.run: Reading({JOB_CPU: 3.5})}})
    assert store.writer.append(store.run, tick)
    with store.reader() as reader:
        assert reader.subjects(store.run, Scope.JOB) == [store.run]
        assert reader.summary(store.run)[Key(Scope.JOB, store.run, JOB_CPU)].mean == 3.5


def test_a_closed_store_needs_no_log(path: Path) -> None:
    store = Store(path)
    store.watch(15, lambda _: 2.0)
    store.writer.close()
    assert not path.with_name(path.name + "-wal").exists()
    with Reader.open(path) as reader:
        assert reader.check() is None
        assert reader.size() == path.stat().st_size


def test_a_queue_is_not_lost_by_an_error(store: Store) -> None:
    blocker = Writer.open(store.path)
    blocker._connection.execute("BEGIN IMMEDIATE")
    store.writer._connection.execute("PRAGMA busy_timeout = 1")
    assert not store.writer.append(store.run, store.tick(START_MS, {GPU_POWER: 1.0}))
    assert "1 ticks wait in memory" in str(store.writer.trouble)
    blocker._connection.execute("ROLLBACK")
    blocker.close()
    assert store.writer.append(store.run, store.tick(START_MS + 1, {GPU_POWER: 2.0}))
    assert store.writer.trouble is None
    with store.reader() as reader:
        assert len(reader.series(GPU_POWER, [store.gpu], START_MS, START_MS + 9, 9)[store.gpu]) == 2
