"""ps, runs, doctor and prune."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import JOB, Monitor, lines, start_job
from whyidle.monitor.core.errors import Exit
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.render import numbers
from whyidle.monitor.store import NewRun, Writer

Tape = Callable[..., dict[str, str]]
Job = subprocess.Popen[str]


def one(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    (found,) = lines(done.stdout)
    return found


def test_ps_lists_what_is_on_a_gpu(monitor: Monitor, job: Job, tape: Tape) -> None:
    env = tape("one_gpu", trainer=job.pid)
    rows = one(monitor("ps", "--json", env=env))["ps"]
    row = next(r for r in rows if r["pid"] == job.pid)
    assert row["gpus"][0]["memory_used_bytes"] == 60561555456
    assert row["attach"] == "outside"
    assert 0 <= row["gpu_utilization"] <= 1
    for command in ("ps", "top"):
        titles, *listed = monitor(command, env=env).stdout.splitlines()
        shown = next(line for line in listed if line.split()[0] == str(job.pid))
        busy = shown[titles.index("busy") :].split()[0]
        assert busy == numbers.show(row["gpu_utilization"], "ratio")
        assert "no" in shown[titles.index("attach") :].split()[0]
    assert "not watched" in shown


def test_ps_lists_a_job_with_a_framework_also_without_a_gpu(
    monitor: Monitor, tmp_path: Path
) -> None:
    library = tmp_path / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"x" * 4096)
    mapped = f"import mmap; f = open({str(library)!r}, 'r+b'); kept = mmap.mmap(f.fileno(), 0)\n"
    with start_job(mapped + JOB) as job:
        answer = one(monitor("ps", "--json"))
        job.kill()
    row = next(r for r in answer["ps"] if r["pid"] == job.pid)
    assert row["framework"] == "torch"
    assert row["gpus"] == []
    assert row["python"].startswith("3.")


def test_ps_says_who_else_is_on_a_gpu_when_it_does_not_know(monitor: Monitor, tape: Tape) -> None:
    answer = one(monitor("ps", "--json", env=tape("one_gpu", trainer=4000000)))
    assert answer["unmatched"] == [{"gpu": "0", "pid": 4000000}]


def test_runs_of_an_empty_store(monitor: Monitor) -> None:
    assert one(monitor("runs", "--json"))["runs"] == []
    assert "Nothing is recorded yet" in monitor("runs").stdout
    missing = monitor("runs", "last")
    assert missing.returncode == Exit.STORAGE
    assert "monitor attach" in missing.stderr


def test_runs_say_what_became_of_each(monitor: Monitor, state: Path) -> None:
    with Writer.open(state / DATABASE) as writer:
        for rules in ((), ("gc_pauses", "input_starved")):
            run = writer.begin_run(NewRun(started_ms=1_700_000_000_000, script="train.py"))
            counted = {"steps": 40, "step_sum_ns": 10**10}
            writer.describe_run(run, info={"processes": [{"pid": 1, "counted": counted}]})
            for rule in rules:
                high = rule == "input_starved"
                found = {"rule": rule, "severity": "high" if high else "low", "title": rule,
                         "expected": 2.4 if high else None, "state": "found"}  # fmt: skip
                writer.finding(run, 1_700_000_000_500, rule, str(found["severity"]), found)
            writer.end_run(run, "job ended")
        writer.begin_run(NewRun(started_ms=1_700_000_000_000, script="train.py"))
    titles, *listed = monitor("runs").stdout.splitlines()
    at = titles.index("result")
    assert listed[0][at:].startswith("4 steps/s  ")
    assert listed[1][at:].startswith("4 steps/s, input_starved 2.4x  ")
    assert listed[2][at:].startswith("recording")
    rows = one(monitor("runs", "--json"))["runs"]
    assert [row["steps_per_s"] for row in rows] == [4.0, 4.0, None]
    assert rows[0]["finding"] is None
    assert rows[1]["finding"]["rule"] == "input_starved"


def test_an_unknown_run_is_a_sentence(monitor: Monitor, job: Job) -> None:
    monitor("attach", job.pid, "--for", "0.2")
    done = monitor("runs", "nonsense")
    assert done.returncode == Exit.USAGE
    assert "nonsense" in done.stderr
    assert "monitor runs" in done.stderr


def test_doctor_of_a_healthy_machine(monitor: Monitor, job: Job, tape: Tape) -> None:
    done = monitor("doctor", job.pid, "--json", env=tape("one_gpu", trainer=job.pid))
    checks = {c["name"]: c for c in one(done)["doctors"]}
    assert done.returncode == 0
    assert checks["gpu driver"]["detail"].startswith("version 580.82.07")
    assert checks["gpu 0"]["state"] == "ok"
    assert checks["store"]["state"] == "ok"
    assert checks["job gpus"]["state"] == "ok"
    assert checks["job framework"]["state"] == "warn"


def test_doctor_says_why_and_what_to_type(monitor: Monitor, tape: Tape) -> None:
    done = monitor("doctor", env=tape("mismatch"))
    assert "fail  gpu driver" in done.stdout
    assert "-> " in done.stdout
    assert done.returncode == 0
    required = monitor("doctor", "--require-gpu", env=tape("mismatch"))
    assert required.returncode == Exit.NO_GPU


def test_doctor_shows_what_each_gpu_cannot_report(monitor: Monitor, tape: Tape) -> None:
    output = monitor("doctor", env=tape("ampere", trainer=os.getpid())).stdout
    assert "sm activity" in output
    assert "not supported here" in output


def test_prune(monitor: Monitor, job: Job) -> None:
    for _ in range(3):
        monitor("attach", job.pid, "--for", "0.2")
    assert one(monitor("prune", "--keep", "1", "--dry-run", "--json"))["deleted"] == [1, 2]
    assert len(one(monitor("runs", "--json"))["runs"]) == 3
    unasked = monitor("prune", "2")
    assert unasked.returncode == Exit.USAGE
    assert "--yes" in unasked.stderr
    assert one(monitor("prune", "2", "-y", "--json"))["deleted"] == [2]
    assert one(monitor("prune", "--older-than", "1d", "-y", "--json"))["deleted"] == []
    assert one(monitor("prune", "--max-size", "1KB", "-y", "--json"))["deleted"] == [1, 3]
    assert one(monitor("runs", "--json"))["runs"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say what to delete"),
        (["--older-than", "soon"], "is no age"),
        (["--max-size", "big"], "is no size"),
    ],
)
def test_prune_with_nonsense(monitor: Monitor, job: Job, arguments: list[str], said: str) -> None:
    monitor("attach", job.pid, "--for", "0.2")
    done = monitor("prune", *arguments)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr


def test_a_recording_that_runs_is_not_pruned(monitor: Monitor, job: Job) -> None:
    monitor("attach", job.pid, "--background")
    refused = monitor("prune", "1")
    assert refused.returncode == Exit.USAGE
    assert "still records" in refused.stderr
    assert one(monitor("prune", "--keep", "0", "--json"))["deleted"] == []
    monitor("stop", "--all")
