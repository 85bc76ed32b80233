"""A running exporter: bad GPUs, jobs, recordings, and a bound on what a page holds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import command, start_job
from tests.export.exporter import Exporter, exporter, free_port, samples, values
from whyidle.agents import wire
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import STEP_BOUNDS_S, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.core.reading import Reading, Tick
from whyidle.monitor.export import bounds
from whyidle.monitor.export import scrape as scraping
from whyidle.monitor.export.collector import PARTS, Collector, Look
from whyidle.monitor.export.families import OF_GPU
from whyidle.monitor.export.gpus import GpuTime
from whyidle.monitor.export.job_time import JobTime
from whyidle.monitor.export.jobs import Job
from whyidle.monitor.export.kubelet import MOST_OF_A_GPU, Allocation
from whyidle.monitor.export.recordings import MOST_FINDINGS, read
from whyidle.monitor.export.scrape import MOST_JOBS, Shown, scrape
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.store import NewRun, Writer

Tape = Callable[..., dict[str, str]]


def key_of(pid: int) -> ProcessKey:
    stat = ProcFs().stat(pid)
    assert stat is not None
    return ProcessKey(pid, stat.start_ticks)


def test_time_adds_up_over_looks(tape: Tape, state: Path) -> None:
    """The tape idles for two of ten seconds, with a process that holds the GPU."""
    with exporter(tape("one_gpu", TRAINER=os.getpid()), state, "--hz", "5") as running:
        page = running.until(lambda page: sum(values(page, "whyidle_gpu_seconds_total")) > 11, 30)
    held = {"gpu": "0", "held": "true"}
    (seconds,) = values(page, "whyidle_gpu_seconds_total", **held)
    (idle,) = values(page, "whyidle_gpu_idle_seconds_total", **held)
    assert idle == pytest.approx(2.0, abs=0.9)
    assert values(page, "whyidle_gpu_idle_seconds_total", held="false") == [0]
    (joules,) = values(page, "whyidle_gpu_idle_joules_total", **held)
    assert 188 * 1.0 < joules < 618 * 3
    (mine,) = values(page, "whyidle_job_device_seconds_total")
    assert mine == pytest.approx(seconds, abs=0.5)
    causes = {
        each.labels["cause"]: each.value
        for each in samples(page)
        if each.name == "whyidle_job_idle_seconds_total"
    }
    # From outside nobody knows why.
    assert causes.pop("unknown") == pytest.approx(idle, abs=0.3)
    assert set(causes.values()) == {0}
    (memory,) = values(page, "whyidle_job_gpu_memory_bytes", gpu="0")
    assert memory == 60561555456
    assert values(page, "whyidle_gpu_power_limit_watts") == [700]
    assert values(page, "whyidle_exporter_problem") == [0] * len(PARTS)


def test_a_lost_gpu_says_so_and_the_others_go_on(tape: Tape, state: Path) -> None:
    with exporter(tape("lost"), state, "--hz", "5") as running:
        page = running.until(lambda page: values(page, "whyidle_gpu_lost", gpu="1") == [1])
        assert values(page, "whyidle_gpu_answers", gpu="1") == [0]
        assert values(page, "DCGM_FI_DEV_GPU_UTIL", gpu="1") == []
        assert values(page, "DCGM_FI_DEV_GPU_UTIL", gpu="0") != []
        assert values(page, "whyidle_gpu_xid_errors_total", gpu="1") == [1]


def test_a_gpu_that_hangs_holds_up_no_scrape(tape: Tape, state: Path) -> None:
    with exporter(tape("hang"), state, "--hz", "2") as running:
        running.until(lambda page: values(page, "whyidle_gpu_answers", gpu="1") == [0])
        began = time.monotonic()
        page = running.scrape()
        assert time.monotonic() - began < 1.0
        assert values(page, "DCGM_FI_DEV_GPU_UTIL", gpu="0") != []
        running.until(lambda page: values(page, "whyidle_gpu_answers", gpu="1") == [1])


def test_without_a_driver_it_serves_what_there_is(tape: Tape, state: Path) -> None:
    with exporter(tape("no_driver"), state) as running:
        page = running.until(
            lambda page: values(page, "whyidle_exporter_problem", part="driver") == [1]
        )
        assert values(page, "whyidle_build_info") == [1]


def record(writer: Writer, key: ProcessKey) -> int:
    """Store a minute of a job: a step is 50 ms long, and 60% of it waits for input."""
    now = time.time_ns() // 1_000_000
    new = NewRun(target_pid=key.pid, target_start_ticks=key.start_ticks, started_ms=now - 60_000)
    run = writer.begin_run(new)
    counted = {
        "steps": 100, "source": "optimizer", "step_p50_ns": 40_000_000, "step_p95_ns": 10**8,
        "step_counts": [0] * 5 + [90] * (len(STEP_BOUNDS_S) - 5) + [100],
        "step_sum_ns": 5 * 10**9, "totals": {wire.SAMPLES: [6400, 10.0]}, "stretches": [],
    }  # fmt: skip
    watched = {
        "pid": key.pid, "start_ticks": key.start_ticks, "rank": None, "method": "observe",
        "inside": True, "stops_ms": [], "refused": None, "next_step": None, "counted": counted,
    }  # fmt: skip
    info = {"processes": [watched], "gpus": ["0"]}
    writer.describe_run(run, framework="torch 2.13", user="ada", info=info)
    energy = {"watts_lost": 120.0, "money_per_hour": 1.5, "currency": "EUR"}
    for after, rule, severity, said in (
        (0, "gc_pauses", "low", "found"),
        (1, "input_starved", "high", "found"),
        (2, "gc_pauses", "low", "gone"),
    ):
        data = {"rule": rule, "severity": severity, "state": said, "energy": energy}
        writer.finding(run, now + after, rule, severity, data)
    waits = {m.JOB_LOADER_WAIT: 0.6, m.JOB_GC_PAUSE: 0.1}
    job = Reading({**waits, m.JOB_STEPS: 20.0, m.JOB_STEP_P50: 0.04})
    for back in range(58, 0, -1):
        rows = {Scope.JOB: {run: job}, Scope.MONITOR: {run: Reading({m.SELF_CPU: 0.01})}}
        writer.append(run, Tick(now - back * 1000, rows))
    return run


def test_a_recording_says_why(tape: Tape, state: Path) -> None:
    """What a recorder stores of a job is read; its numbers are those of the recorder."""
    with start_job() as job:
        writer = Writer.open(state / DATABASE)
        key = key_of(job.pid)
        run = record(writer, key)
        with exporter(tape("one_gpu", TRAINER=job.pid), state) as running:
            page = running.until(lambda page: any(
                each.labels["cause"] == "input" and each.value > 0.3
                for each in samples(page) if each.name == "whyidle_job_idle_seconds_total"
            ))  # fmt: skip
        writer.end_run(run, "over")
        writer.close()
        job.kill()
    name = f"{key.pid}-{key.start_ticks}"
    (info,) = [each.labels for each in samples(page) if each.name == "whyidle_job_info"]
    assert tuple(info) == (
        "job_key", "pid", "user", "slurm_job", "slurm_step", "rank", "pod", "namespace",
        "container", "framework", "run",
    )  # fmt: skip
    assert (info["job_key"], info["run"], info["framework"]) == (name, str(run), "torch 2.13")
    found = [each.labels for each in samples(page) if each.name == "whyidle_job_finding"]
    assert found == [{"job_key": name, "rule": "input_starved", "severity": "high"}]
    for metric, labels, value in (
        ("whyidle_job_step_seconds_bucket", {"le": "+Inf"}, 100),
        ("whyidle_job_step_seconds_bucket", {"le": "0.05"}, 90),
        ("whyidle_job_step_seconds_bucket", {"le": "0.025"}, 0),
        ("whyidle_job_step_seconds_sum", {}, 5),
        ("whyidle_job_samples_total", {}, 6400),
        ("whyidle_job_lost_watts", {}, 120),
        ("whyidle_job_lost_cost_per_hour", {"currency": "EUR"}, 1.5),
        ("whyidle_job_steps_per_second", {}, 20),
        ("whyidle_monitor_cpu_cores", {"job_key": name}, 0.01),
    ):
        assert values(page, metric, **labels) == [value], metric
    (waits,) = values(page, "whyidle_job_idle_seconds_total", cause="input")
    (whole,) = values(page, "whyidle_job_device_seconds_total")
    assert 0.2 * whole < waits <= 0.6 * whole + 0.01


def test_attach_serves_beside_its_recording(tape: Tape, state: Path) -> None:
    port = free_port()
    with start_job() as job:
        env = {**os.environ, "WHYIDLE_STATE_DIR": str(state), **tape("one_gpu", TRAINER=job.pid)}
        with subprocess.Popen(
            command("attach", job.pid, "--observe", "--quiet", "--export", port),
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as recorder:  # fmt: skip
            assert recorder.stderr is not None
            assert f"127.0.0.1:{port}/metrics" in recorder.stderr.readline()
            running = Exporter(recorder, port)
            page = running.until(lambda page: values(page, "whyidle_job_info", run="1"), 40)
            assert values(page, "DCGM_FI_DEV_GPU_UTIL") != []
            recorder.send_signal(signal.SIGTERM)
            recorder.communicate(timeout=20)
            assert recorder.returncode == 0
        job.kill()


def test_a_page_is_bounded_whatever_runs_here(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of jobs, names of any length: the series of a host have an upper bound."""
    collector = Collector(state / DATABASE, print)
    monkeypatch.setattr(scraping, "version_here", lambda: "1")
    few = scrape(collector, Shown("h")).decode()
    jobs = tuple(Job(ProcessKey(1000 + n, n), {"0": 1.0}) for n in range(5000))
    collector.last = Look(0.0, jobs=jobs)
    collector.job_times = {job.key: JobTime() for job in jobs}
    many = scrape(collector, Shown("h" * 10_000)).decode()
    assert len(samples(few)) == bounds.OF_THE_EXPORTER
    assert len(samples(many)) == len(samples(few)) + MOST_JOBS * bounds.OF_A_JOB
    assert values(many, "whyidle_exporter_jobs_left_out") == [5000 - MOST_JOBS]
    # Recorded, and with a finding of every rule there might ever be.
    writer = Writer.open(state / DATABASE)
    key = key_of(os.getpid())
    run = record(writer, key)
    for number in range(300):
        data = {"rule": f"rule_{number}", "severity": "low", "state": "found"}
        writer.finding(run, number, data["rule"], "low", data)
    (one,) = read(state / DATABASE, print)
    writer.close()
    assert len(one.findings) == MOST_FINDINGS
    assert one.findings[0]["severity"] == "high"
    collector.recordings = {job.key: one for job in jobs}
    most = scrape(collector, Shown("h")).decode()
    assert len(samples(most)) <= len(samples(many)) + MOST_JOBS * bounds.OF_A_RECORDING
    assert max(len(each) for line in samples(most) for each in line.labels.values()) <= 128


def test_a_gpu_is_bounded_whatever_it_is_asked(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each metric there is, each answer to who holds it, more pods than a GPU has."""
    monkeypatch.setenv("WHYIDLE_GPU_HOUR_PRICE", "2")
    collector = Collector(state / DATABASE, print)
    none = scrape(collector, Shown("h", dcgm_names=False)).decode()
    read = GpuReading(Reading(dict.fromkeys(OF_GPU, 0.5)))
    pods = tuple(Allocation("research", f"train-{n}", "main") for n in range(MOST_OF_A_GPU))
    gpu = GpuFacts("0", "H200", uuid="GPU-0")
    collector.last = Look(0.0, facts=(gpu,), readings={"0": read}, strangers={"0": 1},
                          allocated={"0": pods})  # fmt: skip
    spent = GpuTime()
    spent.take(replace(read, processes_unknown="no permission"), 1.0)
    spent.take(read, 1.0)
    collector.gpu_times = {"0": spent}
    one = scrape(collector, Shown("h", dcgm_names=False)).decode()
    assert len(samples(one)) - len(samples(none)) == bounds.OF_A_GPU
