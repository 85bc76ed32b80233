"""``monitor export`` as typed: what it refuses and says, and jobs that it records by itself."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import JOB, Monitor, start_job
from tests.export.exporter import exporter, values
from whyidle.monitor.app import background, recording_policy
from whyidle.monitor.app.export_options import users_to_record
from whyidle.monitor.app.recording_policy import Policy
from whyidle.monitor.core.errors import NotPermitted, TargetGone
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.export.collector import Collector, Look
from whyidle.monitor.export.jobs import Job
from whyidle.monitor.processes.process import ProcessKey, user_of
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target
from whyidle.monitor.store import Reader

Tape = Callable[..., dict[str, str]]


def test_a_port_that_is_taken_is_said(monitor: Monitor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = monitor("export", "--port", port)
    assert done.returncode == 2
    assert f"Port {port} is taken" in done.stderr
    assert "--port" in done.stderr


def test_no_gpu_is_a_failure_only_where_one_is_required(monitor: Monitor, tape: Tape) -> None:
    env = tape("no_driver")
    required = monitor("export", "--once", "--require-gpu", env=env)
    assert (required.returncode, required.stdout) == (5, "")
    assert "modprobe nvidia" in required.stderr
    served = monitor("export", "--once", env=env)
    assert served.returncode == 0
    assert values(served.stdout, "whyidle_exporter_problem", part="driver") == [1]
    assert "modprobe nvidia" in served.stderr


def test_a_wrong_web_config_is_said(monitor: Monitor, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config:\n  cert_file: none.crt\n  key_file: none.key\n")
    done = monitor("export", "--web-config", file)
    assert done.returncode == 2
    assert "none.crt" in done.stderr


@pytest.mark.parametrize(
    ("typed", "what", "then"),
    [
        ("--attach gpu --user nosuch", "There is no user 'nosuch'", "monitor ps"),
        ("--user root", "without it none are", "--attach gpu --user root"),
        ("--label a=b", "--label is for what --backfill writes", "--backfill http://"),
        ("--backfill http://a --label __name__=b", "'__name__=b' is no label", "--label cluster=a"),
        ("--backfill http://a --label cl\u00fcster=b", "is no label", "--label cluster=a"),
        ("--backfill ada:s3cret@a", "'a' is no URL to write to", "--backfill http://"),
        ("--backfill http://[::1", "is no URL to write to", "--backfill http://"),
        ("--backfill http://ada:s3/cret@a", "'a' is no URL to write to", "--backfill http://"),
        ("--once --backfill foo", "--backfill does nothing with --once", "monitor export --once"),
        ("--once --attach gpu", "--attach does nothing with --once", "monitor export --once"),
        ("--once --web-config web.yml", "--web-config does nothing with --once", "--once"),
        ("--once --port 9401", "--port does nothing with --once", "monitor export --once"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    monitor: Monitor, typed: str, what: str, then: str
) -> None:
    done = monitor("export", *typed.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr
    assert then in done.stderr
    assert "s3cret" not in done.stderr


def test_whose_jobs_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root records everybody's, or those of whom it names; others their own alone."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert users_to_record("gpu", ()) == frozenset()
    assert users_to_record("gpu", ("root", "0", "54321")) == {"root", "54321"}
    me = user_of(ProcFs(), os.getpid())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert users_to_record("gpu", ()) == users_to_record("gpu", (me,)) == {me}
    with pytest.raises(NotPermitted) as refused:
        users_to_record("all", ("54321",))
    assert "--attach all --user 54321" in refused.value.next_step


def test_in_the_background_a_recording_serves_nothing(monitor: Monitor) -> None:
    with start_job() as job:
        done = monitor("attach", job.pid, "--background", "--export", 9400)
        job.kill()
    assert done.returncode == 2
    assert "monitor export" in done.stderr


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Recorders that only sleep, and who was asked to be recorded."""
    asked: list[Any] = []

    def record(target: Target, **_: object) -> tuple[int, subprocess.Popen[bytes]]:
        asked.append(target.key)
        return len(asked), subprocess.Popen(["sleep", "60"])

    monkeypatch.setattr(background, "record", record)
    return asked


def test_jobs_on_a_gpu_are_recorded_once(
    state: Path, recorders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(state / DATABASE, print)
    with start_job() as one, start_job() as other:
        keys = [Target.named(str(job.pid)).key for job in (one, other)]
        gone = ProcessKey(keys[0].pid, keys[0].start_ticks + 1)
        jobs = [Job(keys[0], {"0": 1.0}), Job(keys[1]), Job(gone, {"1": 1.0})]
        collector.last = Look(0.0, jobs=tuple(jobs))
        policy = Policy("gpu", collector)
        for _ in range(4):
            policy._look()
        # One that holds no GPU is not meant, nor another process with the pid of one that ended.
        assert recorders == [keys[0]]
        policy.__exit__()
        assert not any(each.poll() is None for each in policy._recorders)
        one.kill()
        other.kill()


def test_what_cannot_be_recorded_is_said_once(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TargetGone("It has ended.", "Look again.")

    monkeypatch.setattr(background, "record", refuse)
    collector = Collector(state / DATABASE, print)
    with start_job() as job:
        key = Target.named(str(job.pid)).key
        collector.last = Look(0.0, jobs=(Job(key, {"0": 1.0}),))
        policy = Policy("gpu", collector)
        for _ in range(5):
            policy._look()
        job.kill()
    assert capsys.readouterr().err.count("is not recorded: It has ended.") == 1


def test_an_exporter_that_records_ends_its_recordings(tape: Tape, state: Path) -> None:
    with start_job() as job:
        with exporter(tape("one_gpu", TRAINER=job.pid), state, "--attach", "gpu") as running:
            running.until(lambda page: values(page, "whyidle_job_info", run="1"), 60)
        with Reader.open(state / DATABASE) as reader:
            (run,) = reader.runs()
        assert run.ended_ms is not None
        assert run.target_pid == job.pid
        assert job.poll() is None
        job.kill()


def test_only_jobs_of_users_that_are_named_are_recorded(
    state: Path, recorders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_job() as mine, start_job() as other:
        keys = [Target.named(str(job.pid)).key for job in (mine, other)]
        owners = {keys[0].pid: "ada", keys[1].pid: "bob"}
        monkeypatch.setattr(recording_policy, "user_of", lambda _, pid: owners[pid])
        collector = Collector(state / DATABASE, print)
        collector.last = Look(0.0, jobs=tuple(Job(key, {"0": 1.0}) for key in keys))
        for users, expected in (({"ada"}, keys[:1]), ({"carl"}, []), (set(), keys)):
            recorders.clear()
            policy = Policy("gpu", collector, users)
            for _ in range(3):
                policy._look()
            assert sorted(recorders) == sorted(expected), users
            policy.__exit__()
        mine.kill()
        other.kill()


def test_all_are_jobs_on_a_gpu_and_those_with_a_framework(
    state: Path, recorders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has ended by the second look, or that refuses, is none."""
    with start_job() as on_gpu, start_job() as trains, start_job() as refuses:
        keys = [Target.named(str(job.pid)).key for job in (on_gpu, trains, refuses)]
        looks = [
            [_job(keys[1]), _job(keys[2], refused="closed"), _job(ProcessKey(keys[0].pid, 1))],
            [_job(keys[1]), _job(keys[2], refused="closed")],
            [_job(keys[1]), _job(keys[2], refused="closed")],
        ]
        monkeypatch.setattr(
            recording_policy, "find_jobs", lambda: SimpleNamespace(jobs=looks.pop(0))
        )
        collector = Collector(state / DATABASE, print)
        collector.last = Look(0.0, jobs=(Job(keys[0], {"0": 1.0}),))
        policy = Policy("all", collector)
        for _ in range(3):
            policy._look()
        assert sorted(recorders) == sorted(keys[:2])
        policy.__exit__()
        for job in (on_gpu, trains, refuses):
            job.kill()


def _job(key: ProcessKey, refused: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(identity=SimpleNamespace(key=key), refused=refused)


def test_a_training_job_without_a_gpu_is_recorded_by_all(tape: Tape, state: Path) -> None:
    """For real: it is found by its framework, recorded, and left as it was."""
    pytest.importorskip("torch")
    source = f"import torch\n{JOB}"
    user = user_of(ProcFs(), os.getpid())
    with start_job(source) as job:
        options = ("--attach", "all", "--user", user)
        with exporter(tape("no_driver"), state, *options) as running:
            name = str(job.pid)
            running.until(lambda page: values(page, "whyidle_job_info", pid=name), 90)
        with Reader.open(state / DATABASE) as reader:
            mine = [run for run in reader.runs() if run.target_pid == job.pid]
        assert [run.ended_ms is not None for run in mine] == [True]
        assert job.poll() is None
        job.kill()
