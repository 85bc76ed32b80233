"""What a person asks of a recording that runs: of real recorders, and of real jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.commands.test_trace_pid import LOOP, SOURCES, TORCH
from tests.conftest import command, start_job
from tests.recording.benches import Bench, Job
from whyidle.monitor.control import client
from whyidle.monitor.control.client import Asked, State
from whyidle.monitor.core.defaults import MOST_TRACE_SECONDS
from whyidle.monitor.core.errors import Problem
from whyidle.monitor.core.metrics import SELF_CPU, Scope
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import Reader, Run
from whyidle.monitor.store.stored_traces import Kept

T = TypeVar("T")
# The user's own profiler is on, all the time.
PROFILED = f"""{TORCH}
import atexit, torch.profiler
profile = torch.profiler.profile()
profile.start()
# PyTorch crashes at the end of a process where nobody does.
atexit.register(profile.stop)
"""


# A recorder in this process ----------------------------------------------------------------------
def put(bench: Bench, question: object) -> dict[str, Any]:
    """Ask at the socket, whatever a client of ours would say."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(bench.path.parent / "control" / f"{bench.recorder.run}.sock"))
        line.sendall(json.dumps(question).encode() + b"\n")
        assert bench.recorder.control is not None
        bench.recorder.control.serve()
        found: dict[str, Any] = json.loads(line.recv(65536))
    return found


@pytest.mark.parametrize("seconds", [0, -1, True, "1", [], float("nan"), float("inf"), 10**400])
def test_seconds_that_are_none_are_a_sentence(bench: Bench, seconds: object) -> None:
    answer = put(bench, {"do": "trace", "seconds": seconds})
    if seconds == 10**400:
        # Longer than a trace may be, and no reason to refuse it.
        assert answer["ok"] is True
    else:
        assert "number of seconds" in answer["what"]


def test_no_trace_is_longer_than_it_may_be(bench: Bench) -> None:
    assert put(bench, {"do": "trace", "seconds": 3600})["ok"] is True
    assert bench.recorder._traces.request.seconds == MOST_TRACE_SECONDS


@pytest.mark.parametrize(
    "question", [{}, {"do": None}, {"do": ["trace"]}, {"do": "stop"}, {"do": "x" * 3000}]
)
def test_nothing_else_is_done(bench: Bench, question: object) -> None:
    answer = put(bench, question)
    assert answer["ok"] is False
    assert "cannot do" in answer["what"]


@pytest.mark.parametrize("label", [None, 5, "last", "7", "x" * 101, "a\nb"])
def test_a_label_is_checked_once_more_where_it_is_kept(bench: Bench, label: object) -> None:
    answer = put(bench, {"do": "label", "label": label})
    assert answer["ok"] is False
    assert answer["next_step"]
    assert run_of(bench.path).label is None


def test_a_second_trace_waits_for_the_first_to_be_over(bench: Bench) -> None:
    assert put(bench, {"do": "trace"})["trace"]["state"] == "waiting"
    answer = put(bench, {"do": "trace"})
    assert answer["ok"] is False
    assert "under way already" in answer["what"]


def test_a_job_without_a_framework_gives_none_and_says_why(bench: Bench) -> None:
    # It is not known yet.
    assert put(bench, {"do": "trace"})["trace"]["state"] == "waiting"
    bench.tick()
    trace_state = put(bench, {"do": "state"})["trace"]
    assert trace_state["state"] == "refused"
    assert "neither JAX nor PyTorch" in trace_state["what"]
    assert trace_state["next_step"]
    assert "neither JAX nor PyTorch" in put(bench, {"do": "trace"})["what"]


def test_a_recording_that_cannot_be_asked_goes_on_and_says_so(job: Job, tmp_path: Path) -> None:
    (tmp_path / "control").write_text("in the way")
    bench = Bench(job, tmp_path / DATABASE)
    bench.recorder.answer_in(bench.waker)
    bench.tick()
    assert bench.events() == ["control_off"]
    bench.recorder.end("done")
    bench.waker.close()
    assert run_of(bench.path).end_reason == "done"


def run_of(store: Path) -> Run:
    with Reader.open(store) as reader:
        return reader.find("last")


# A recorder of a real job, in a process of its own -----------------------------------------------
class Recording:
    """As for a user who asks from another terminal."""

    def __init__(self, job: Job, state: Path, *options: str) -> None:
        self.job = job
        self.store = state / DATABASE
        words = command("attach", job.pid, "--no-trace", "-q", *options)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.socket = state / "control" / "1.sock"
        self.until(self.socket.exists)

    def until(self, attempt: Callable[[], T | None], seconds: float = 60.0) -> T:
        deadline = time.monotonic() + seconds
        while not (found := attempt()):
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found

    def ask(self) -> Asked:
        return client.ask_trace(self.store, 1)

    def outcome(self) -> Asked:
        def over() -> Asked | None:
            found = client.state(self.store, 1)
            return found if found.is_over else None

        return self.until(over)

    def refusal(self, part: str) -> Problem:
        """Ask until it is refused for this reason: it takes a tick or two to know."""

        def refused() -> Problem | None:
            try:
                self.ask()
            except Problem as problem:
                return problem if part in problem.what else None
            return None

        return self.until(refused)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


@contextmanager
def recorded(source: str, state: Path, *options: str) -> Iterator[Recording]:
    with start_job(source) as job:
        recording = Recording(job, state, *options)
        try:
            yield recording
        finally:
            recording.end()
            job.send_signal(signal.SIGCONT)
            said, _ = job.communicate("enough\n", timeout=60)
    assert job.returncode == 0
    assert said.startswith("threads")
    assert not recording.socket.exists()


@pytest.mark.ptrace
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_trace_that_is_asked_for_comes_and_stays_with_its_run(
    framework: str, state: Path
) -> None:
    pytest.importorskip(framework)
    with recorded(SOURCES[framework] + LOOP, state) as recording:
        assert client.state(recording.store, 1).state is State.NONE
        assert recording.ask().state is State.WAITING
        trace_state = recording.outcome()
        assert trace_state.state is State.KEPT, trace_state
        assert "by the agent" in trace_state.what
        with Kept.open(recording.store) as kept:
            (trace,) = kept.traces(1)
        assert trace.id == trace_state.trace
        assert trace.path.exists()
        # And another one, as soon as the agent lets the job be asked again.
        assert recording.ask().state is State.WAITING
        assert recording.outcome().trace != trace_state.trace
    assert run_of(recording.store).end_reason == "stopped"


@pytest.mark.ptrace
def test_while_the_user_profiles_no_trace_is_taken_and_that_is_said(state: Path) -> None:
    pytest.importorskip("torch")
    with recorded(PROFILED + LOOP, state) as recording:
        recording.ask()
        trace_state = recording.outcome()
        assert trace_state.state is State.REFUSED
        assert "profiles itself" in trace_state.what


@pytest.mark.ptrace
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_trace_lost_by_the_end_of_the_job_is_noted_in_its_run(
    state: Path, *, is_killed: bool
) -> None:
    pytest.importorskip("torch")
    with start_job(TORCH + LOOP) as job:
        recording = Recording(job, state)
        client.ask_trace(recording.store, 1, MOST_TRACE_SECONDS)
        recording.until(lambda: client.state(recording.store, 1).state is State.TAKING)
        if is_killed:
            job.kill()
        job.communicate("enough\n", timeout=60)
        recording.process.communicate(timeout=60)
    with Reader.open(recording.store) as reader:
        (lost,) = [e.text for e in reader.events(1) if e.kind == "trace_failed"]
    assert lost.endswith(": the job ended first.")


@pytest.mark.ptrace
def test_a_stopped_job_is_not_waited_for(state: Path) -> None:
    pytest.importorskip("torch")
    with recorded(TORCH + LOOP, state) as recording:
        recording.ask()
        recording.outcome()
        recording.job.send_signal(signal.SIGSTOP)
        refused = recording.refusal("is stopped")
        assert refused.next_step.endswith(f"kill -CONT {recording.job.pid}")


def test_an_observed_job_is_not_gone_into_and_it_says_how_to_have_it(state: Path) -> None:
    pytest.importorskip("torch")
    with recorded(TORCH + LOOP, state, "--observe") as recording:
        refused = recording.refusal("Only observed")
        assert refused.next_step.endswith(f"monitor trace {recording.job.pid}")


def test_a_label_is_there_at_once_and_stays(state: Path) -> None:
    with recorded(f"def step(): pass\n{LOOP}", state, "--label", "first") as recording:
        assert client.set_label(recording.store, 1, "second") == "second"
        assert run_of(recording.store).label == "second"
        client.set_label(recording.store, 1, "")
        assert run_of(recording.store).label is None
        client.set_label(recording.store, 1, "third")
    assert run_of(recording.store).label == "third"


def test_crowding_the_socket_harms_neither_recording_nor_job(state: Path) -> None:
    with recorded(f"def step(): pass\n{LOOP}", state) as recording:
        before = ticks(recording)
        lines = []
        for number in range(100):
            line = socket.socket(socket.AF_UNIX)
            lines.append(line)
            line.setblocking(False)
            recording.until(partial(reached, line, recording.socket))
            with contextlib.suppress(OSError):
                line.sendall([b"", b"{", b"x" * 100_000, b"\n", os.urandom(100)][number % 5])
        assert client.set_label(recording.store, 1, "busy") == "busy"
        recording.until(lambda: ticks(recording) > before + 1)
        for line in lines:
            line.close()
    # What it looks at from outside goes on.
    looked = ("agent_refused", "stood_still", "stacks", "thread_stacks")
    with Reader.open(recording.store) as reader:
        assert reader.events(1, without=looked) == []


def reached(line: socket.socket, path: Path) -> bool:
    return line.connect_ex(str(path)) == 0


def ticks(recording: Recording) -> int:
    with Reader.open(recording.store) as reader:
        found = reader.summary(1, {Scope.MONITOR})
        return max((n.n for key, n in found.items() if key.metric == SELF_CPU), default=0)
