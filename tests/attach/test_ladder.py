"""The whole ladder: what it checks, what it chooses, and real jobs that are entered through it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attach.targets import (
    AS_TORCH,
    ASLEEP,
    BUSY,
    Job,
    goes_on,
    mapped,
    others,
    python314,
    running,
    start,
    target_of,
    tracer_of,
    wait_until_asleep,
)
from tests.conftest import Monitor, lines
from whyidle.monitor.attach import ladder
from whyidle.monitor.attach.answers import (
    AGENT,
    OUTSIDE,
    PTRACE,
    REMOTE_EXEC,
    NotEntered,
    Outcome,
    Refusal,
    Rung,
)
from whyidle.monitor.link.link import Link
from whyidle.monitor.processes.target import Target

CLOSED, FAILED = Refusal("closed"), Refusal("failed", "try this")


def leave(target: Target) -> None:
    """Take the agent out of the job again, and see that it has gone."""
    link = Link.open(target.key, target.fs)
    assert link is not None
    link.leave(5.0)
    link.close()


def method(
    name: str, calls: list[str], refused: Refusal | None = None, enters: Refusal | None = None
) -> ladder.Method:
    def refusal(target: Target) -> Refusal | None:
        calls.append(f"check {name}")
        return refused

    def enter(target: Target, source: str, timeout: float) -> tuple[float, ...]:
        calls.append(f"enter {name}")
        assert f"'method': '{name}'" in source
        if enters is not None:
            raise NotEntered(enters)
        return (0.5, 0.25)

    return ladder.Method(name, refusal, enter, 1.0)


@pytest.fixture
def with_methods(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Put other methods on the ladder; an agent answers at once."""

    def put(*methods: Callable[[list[str]], ladder.Method], hello: Refusal | None = None) -> Any:
        calls: list[str] = []
        monkeypatch.setattr(ladder, "METHODS", tuple(make(calls) for make in methods))
        monkeypatch.setattr(ladder, "_wait_for_hello", lambda _: hello)
        return calls

    return put


def outcome_of(*, observe: bool = False) -> Outcome:
    return ladder.enter(target_of(os.getpid()), observe=observe)


def test_the_first_open_method_is_taken(with_methods: Callable[..., list[str]]) -> None:
    calls = with_methods(
        lambda c: method(REMOTE_EXEC, c, refused=CLOSED), lambda c: method(PTRACE, c)
    )
    outcome = outcome_of()
    assert (outcome.method, outcome.inside, outcome.stops_ms) == (PTRACE, True, (0.5, 0.25))
    assert calls == ["check remote_exec", "check ptrace", "enter ptrace"]
    assert [r.name for r in outcome.tried] == [AGENT, REMOTE_EXEC, PTRACE]
    assert outcome.seconds > 0


def test_after_a_failure_comes_the_next(with_methods: Callable[..., list[str]]) -> None:
    calls = with_methods(
        lambda c: method(REMOTE_EXEC, c, enters=FAILED), lambda c: method(PTRACE, c, enters=CLOSED)
    )
    outcome = outcome_of()
    assert calls == ["check remote_exec", "enter remote_exec", "check ptrace", "enter ptrace"]
    assert outcome.method == OUTSIDE
    assert outcome.refusal == CLOSED
    assert outcome.tried[1:] == (Rung(REMOTE_EXEC, FAILED), Rung(PTRACE, CLOSED), Rung(OUTSIDE))


def test_nobody_is_inside_who_does_not_answer(with_methods: Callable[..., list[str]]) -> None:
    with_methods(lambda c: method(PTRACE, c), hello=FAILED)
    outcome = outcome_of()
    assert (outcome.method, outcome.refusal) == (OUTSIDE, FAILED)
    # The job was held up all the same.
    assert outcome.stops_ms == (0.5, 0.25)


def test_something_odd_in_an_agents_place_bars_every_way(
    with_methods: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = with_methods(lambda c: method(PTRACE, c))
    monkeypatch.setattr(ladder.existing, "refusal", lambda *_: CLOSED)
    outcome = outcome_of()
    assert (outcome.method, outcome.refusal, calls) == (OUTSIDE, CLOSED, [])


def test_an_observer_tries_nothing(with_methods: Callable[..., list[str]]) -> None:
    calls = with_methods(lambda c: method(PTRACE, c))
    outcome = outcome_of(observe=True)
    assert (outcome.method, outcome.refusal, calls) == (OUTSIDE, None, [])


@pytest.mark.ptrace
@pytest.mark.parametrize("python", others(), ids=lambda path: path.split("/")[-3])
def test_jobs_of_every_python_are_entered_and_left(python: str) -> None:
    with running(AS_TORCH + BUSY, [python]) as job:
        entered(job, PTRACE)


def test_a_job_of_python_314_is_entered_by_its_own_door() -> None:
    with running(BUSY, python314()) as job:
        entered(job, REMOTE_EXEC)


@pytest.mark.ptrace
def test_a_job_of_python_314_that_sleeps_is_entered_by_the_injector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = ladder.METHODS
    quick = ladder.Method(first.name, first.refusal, first.enter, 0.1)
    monkeypatch.setattr(ladder, "METHODS", (quick, second))
    with running(ASLEEP, python314()) as job:
        wait_until_asleep(job)
        target = target_of(job.pid)
        outcome = ladder.enter(target)
        assert outcome.method == PTRACE, outcome
        refusal = outcome.tried[1].refused
        assert refusal is not None
        assert "sleeps or works outside of Python" in refusal.what
        leave(target)
        assert job.communicate("\n") == ("end\n", "")


def enter(job: Job, by: str) -> Target:
    """Enter a job; a crowded machine may take several tries, as a person would be told."""
    target = target_of(job.pid)
    outcome = ladder.enter(target)
    for _ in range(4):
        if outcome.refusal is None or "Try again" not in outcome.refusal.next_step:
            break
        outcome = ladder.enter(target)
    assert outcome.method == by, outcome
    return target


def entered(job: Job, by: str) -> None:
    target = enter(job, by)
    assert ladder.enter(target_of(job.pid)).method == AGENT
    assert ladder.rungs(target_of(job.pid))[0] == Rung(AGENT)
    goes_on(job)
    leave(target)
    # Nothing holds it, and it goes on as before; it can be entered again.
    assert tracer_of(job.pid) == "0"
    leave(enter(job, by))
    goes_on(job)
    job.kill()
    assert job.communicate()[1] == ""


@pytest.fixture
def in_its_own_world() -> list[str]:
    """Return how to start a process with pids, mounts and a /tmp of its own."""
    inside = 'mount -t tmpfs tmpfs /tmp && mount -t proc proc /proc && exec "$@"'
    command = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c", inside, "sh"]
    with suppress(OSError):
        if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
            return command
    pytest.skip("namespaces of its own need root")


@pytest.mark.ptrace
def test_a_job_in_another_pid_and_mount_namespace_is_entered(in_its_own_world: list[str]) -> None:
    # The checkout, and its Python, may lie below the /tmp that is hidden there.
    python = str(Path(sys.executable).resolve())
    outer = start([*in_its_own_world, python, "-c", AS_TORCH + BUSY])
    try:
        target = target_of(child_of(outer.pid))
        assert target.own_pid != target.pid
        outcome = ladder.enter(target)
        assert outcome.method == PTRACE, outcome
        goes_on(outer)
        leave(target)
        goes_on(outer)
    finally:
        outer.kill()
        outer.communicate()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.mark.parametrize("arguments", [("doctor", "--json"), ("ps", "--json")])
def test_a_check_touches_nothing(monitor: Monitor, arguments: tuple[str, ...]) -> None:
    with running(AS_TORCH + BUSY) as job:
        before = mapped(job.pid), threads_of(job)
        output = lines(monitor(arguments[0], *pid_for(arguments, job), *arguments[1:]).stdout)[0]
        assert (mapped(job.pid), threads_of(job)) == before
        assert ladder.rungs(target_of(job.pid))[0].refused is not None
        goes_on(job)
    if arguments[0] == "ps":
        row = next(r for r in output["ps"] if r["pid"] == job.pid)
        assert (row["attach"], row["attach_refused"]) == (PTRACE, None)
        return
    checks = {c["name"]: c for c in output["doctors"]}
    assert checks["attach ptrace"]["detail"] == "would be taken"
    assert checks["attach agent"]["detail"].startswith("closed: No agent")
    assert "this method came with 3.14" in checks["attach remote_exec"]["detail"]
    assert checks["attach outside"]["detail"] == "open; its stack is read from outside"


def pid_for(arguments: tuple[str, ...], job: Job) -> list[int]:
    return [job.pid] if arguments[0] == "doctor" else []


def threads_of(job: Job) -> list[str]:
    return sorted(task.name for task in Path(f"/proc/{job.pid}/task").iterdir())


def test_without_a_framework_there_is_nothing_to_go_in_for(monitor: Monitor) -> None:
    with running() as job:
        rungs = ladder.rungs(target_of(job.pid))
        output = monitor("doctor", job.pid).stdout
    assert ladder.best(rungs).name == OUTSIDE
    refused = [r.refused.what for r in rungs if r.name == PTRACE and r.refused]
    assert refused == [
        f"Process {job.pid} has neither JAX nor PyTorch nor TensorFlow loaded (yet)."
    ]
    assert "warn  attach ptrace" in output
    assert "would be taken: the job is only watched" in output
