"""The asker's end: whatever is wrong at the other one comes back as a sentence."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.control.conftest import Recorder
from whyidle.monitor.control import client
from whyidle.monitor.control.client import Asked, State
from whyidle.monitor.core.errors import (
    NotPermitted,
    Problem,
    StorageProblem,
    TargetGone,
    UsageProblem,
)
from whyidle.monitor.core.paths import DATABASE
from whyidle.monitor.store import NewRun, Writer

# A recorder of its own, which answers until it is stopped.
SOURCE = """
import select, sys
from pathlib import Path
from tests.control.conftest import Recorder
found = Recorder(Path(sys.argv[1]))
print("ready", flush=True)
while not select.select([found.server.handle, sys.stdin], [], [])[0].count(sys.stdin):
    found.server.serve()
"""


@pytest.fixture
def serving(recorder: Recorder) -> Recorder:
    return recorder.serving()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0.1)


def test_a_trace_is_asked_for_and_its_progress_is_reported(serving: Recorder) -> None:
    assert client.ask_trace(serving.store, serving.run) == serving.outcome
    assert client.ask_trace(serving.store, serving.run, 0.5) == serving.outcome
    serving.outcome = Asked(State.TAKING, "A trace is taken.", asked_ms=7)
    found = client.state(serving.store, serving.run)
    assert found == serving.outcome
    assert not found.is_over
    assert serving.asked == [{"do": "trace"}, {"do": "trace", "seconds": 0.5}, {"do": "state"}]


def test_a_label_comes_back_as_it_is_kept(serving: Recorder) -> None:
    assert client.set_label(serving.store, serving.run, "  näme: '{}' ") == "näme: '{}'"
    assert client.set_label(serving.store, serving.run, " ") == ""
    assert [asked["label"] for asked in serving.asked] == ["näme: '{}'", ""]


@pytest.mark.parametrize("label", ["last", "7", "x" * 101, "two\nlines", "\x1b[31m", "a\u202eb"])
def test_a_label_that_is_none_is_not_even_asked_for(serving: Recorder, label: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        client.set_label(serving.store, serving.run, label)
    assert raised.value.next_step
    assert serving.asked == []


# Each question, in turn, meets the same faults.
ALL: list[Callable[[Path, int], object]] = [
    client.ask_trace,
    client.state,
    lambda store, run: client.set_label(store, run, "x"),
]
every_question = pytest.mark.parametrize("ask", ALL, ids=["trace", "state", "label"])


@every_question
def test_where_there_is_no_store_or_no_such_run_a_sentence_says_so(
    recorder: Recorder, tmp_path: Path, ask: Callable[[Path, int], object]
) -> None:
    with pytest.raises(UsageProblem, match="There is no recording 77") as raised:
        ask(recorder.store, 77)
    assert "monitor runs" in raised.value.next_step
    with pytest.raises(StorageProblem, match="no recordings"):
        ask(tmp_path / "nowhere" / DATABASE, 1)


@every_question
def test_of_a_recording_that_has_ended_it_says_what_can_still_be_done(
    tmp_path: Path, ask: Callable[[Path, int], object]
) -> None:
    with Writer.open(tmp_path / DATABASE) as writer:
        run = writer.begin_run(NewRun())
        writer.end_run(run, "job ended")
    with pytest.raises(TargetGone, match="has ended \\(job ended\\)") as raised:
        ask(tmp_path / DATABASE, run)
    assert "monitor" in raised.value.next_step


def test_a_label_of_a_recording_that_has_ended_comes_with_the_command(tmp_path: Path) -> None:
    with Writer.open(tmp_path / DATABASE) as writer:
        run = writer.begin_run(NewRun())
        writer.end_run(run, "job ended")
    with pytest.raises(TargetGone) as raised:
        client.set_label(tmp_path / DATABASE, run, "it's {0}")
    assert raised.value.next_step.endswith(f"""monitor runs {run} --label 'it'"'"'s {{0}}'""")


@every_question
def test_an_older_recorder_has_no_socket(
    recorder: Recorder, ask: Callable[[Path, int], object]
) -> None:
    recorder.socket.unlink()
    with pytest.raises(Problem, match="older version") as raised:
        ask(recorder.store, recorder.run)
    assert "monitor" in raised.value.next_step


def test_without_a_socket_a_trace_is_taken_by_hand(recorder: Recorder) -> None:
    recorder.socket.unlink()
    recorder.socket.parent.rmdir()
    with pytest.raises(Problem, match="older version") as raised:
        client.ask_trace(recorder.store, recorder.run)
    assert raised.value.next_step.endswith("monitor trace 4321")
    recorder.socket.parent.mkdir(0o700)


@every_question
@pytest.mark.usefixtures("impatient")
def test_a_recorder_that_does_not_answer_is_not_waited_for(
    recorder: Recorder, ask: Callable[[Path, int], object]
) -> None:
    with pytest.raises(Problem, match="did not answer within") as raised:
        ask(recorder.store, recorder.run)
    assert "again" in raised.value.next_step


@pytest.mark.usefixtures("impatient")
def test_nor_one_whose_door_is_full_of_people(recorder: Recorder) -> None:
    lines = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)]
    while not lines[-1].connect_ex(str(recorder.socket)):
        lines.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
    with pytest.raises(Problem, match="did not answer within"):
        client.state(recorder.store, recorder.run)
    for line in lines:
        line.close()


@contextmanager
def elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a recorder in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", SOURCE, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("impatient")
def test_a_stopped_recorder_is_called_stopped_and_a_killed_one_gone(tmp_path: Path) -> None:
    with elsewhere(tmp_path) as process:
        store = tmp_path / DATABASE
        assert client.state(store, 1).state is State.KEPT
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        with pytest.raises(Problem, match="is stopped") as raised:
            client.state(store, 1)
        assert raised.value.next_step.endswith(f"kill -CONT {process.pid}")
        process.kill()
        process.wait()
        assert (tmp_path / "control" / "1.sock").exists()
        with pytest.raises(TargetGone, match="its recorder is gone"):
            client.ask_trace(store, 1)


def test_a_socket_of_another_process_is_told_nothing(serving: Recorder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with elsewhere(other):
        (other / "control" / "1.sock").rename(serving.socket)
        with pytest.raises(NotPermitted, match="another process than its recorder"):
            client.set_label(serving.store, serving.run, "secret")


def test_a_socket_that_became_a_link_is_not_followed(serving: Recorder) -> None:
    kept = serving.socket.rename(serving.socket.with_name("kept"))
    serving.socket.symlink_to(kept)
    with pytest.raises(Problem, match="cannot be asked"):
        client.state(serving.store, serving.run)
    assert serving.asked == []


def test_a_folder_that_others_can_come_into_is_not_trusted(serving: Recorder) -> None:
    serving.socket.parent.chmod(0o777)
    with pytest.raises(Problem, match="others may come into its folder"):
        client.state(serving.store, serving.run)


@every_question
def test_a_recorder_that_ends_meanwhile_has_ended(
    tmp_path: Path, ask: Callable[[Path, int], object]
) -> None:
    recorder = Recorder(tmp_path)

    def end() -> None:
        select.select([recorder.server.handle], [], [], 20.0)
        with Writer.open(recorder.store) as writer:
            writer.end_run(recorder.run, "job ended")
        recorder.server.close()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(TargetGone, match="has ended \\(job ended\\)"):
        ask(recorder.store, recorder.run)
    thread.join()


@pytest.mark.parametrize(
    "answer", [b"", b"\n", b"[]\n", b"\xff\n", b'{"ok":true}\n', b'{"ok":1}\n', b"x" * 70000]
)
def test_an_answer_that_is_none_is_a_sentence(
    recorder: Recorder, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(found: Any, _: object) -> None:
        found.line.send(answer, socket.MSG_DONTWAIT)
        recorder.server._hang_up(found)

    monkeypatch.setattr(recorder.server, "_say", say)
    with pytest.raises(Problem):
        client.state(recorder.serving().store, recorder.run)


def test_another_user_hears_that_it_is_anothers_recorder() -> None:
    if os.geteuid() != 0:
        pytest.skip("to become another user needs root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recorder = Recorder(folder)
        folder.chmod(0o755)
        recorder.store.chmod(0o644)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.setresuid(65534, 65534, 65534)
                client.state(recorder.store, recorder.run)
            except Problem as problem:
                os.write(writer, f"{type(problem).__name__} {problem}".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader) as said:
            text = said.read()
        recorder.close()
    assert text.startswith("NotPermitted")
    assert "belongs to another user" in text
