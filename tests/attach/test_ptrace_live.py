"""Running jobs entered by ptrace: every Python here, and the jobs that must be left alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attach.victims import (
    BUSY,
    COUNT,
    COUNTING,
    SLEEPING,
    THREADS,
    Victim,
    interpreters,
    running,
)
from whyidle.monitor.attach import injector
from whyidle.monitor.attach.answers import NotEntered
from whyidle.monitor.attach.ptrace import stop
from whyidle.monitor.attach.ptrace.inject import inject
from whyidle.monitor.attach.ptrace.refused import Refused
from whyidle.monitor.attach.ptrace.region import SOURCE_ROOM
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

pytestmark = [
    pytest.mark.ptrace,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only"),
]


def target(victim: Victim) -> Target:
    return Target(victim.key, ProcFs())


def regions(pid: int) -> int:
    """Return how many pages of code that belong to no file it has."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum(len(words) == 5 and words[1] == "r-xp" for words in map(str.split, lines))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.split("/")[-3])
@pytest.mark.parametrize(("source", "mode"), [(BUSY, "pending"), (SLEEPING, "thread")])
def test_a_job_on_any_python_is_entered_and_sees_nothing(
    python: str, source: str, mode: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    text = f"{COUNT.decode()}; open({str(mark)!r}, 'w').write(str(builtins._injections))"
    with running(source, python=python) as victim:
        modes = [victim.enter(text.encode()).mode for _ in range(3)]
        # On a busy machine it is met now and then where it mostly is not.
        while mode not in modes:
            modes.append(victim.enter(text.encode()).mode)
        assert mark.read_text() == str(len(modes))
        # The memory of the first injection served the others.
        assert regions(victim.process.pid) == 1
        assert victim.end()["wrong"] == 0


def test_the_tracer_enters_for_the_monitor(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with running(THREADS) as victim:
        assert injector.refusal(target(victim)) is None
        stops = injector.enter(target(victim), f"open({str(mark)!r}, 'w')")
        assert len(stops) >= 2
        assert mark.exists()
        assert victim.end()["wrong"] == 0


def test_a_monitor_that_is_told_of_no_child_enters_too() -> None:
    with running(BUSY) as victim:
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            assert injector.enter(target(victim), "1", 20.0)
        finally:
            signal.signal(signal.SIGCHLD, before)
        assert victim.end()["wrong"] == 0


def test_a_text_too_long_for_the_memory_gets_its_own() -> None:
    with running(BUSY) as victim:
        assert victim.enter().done
        assert victim.enter(COUNT + b"#" * 2 * SOURCE_ROOM).done
        assert victim.enter(COUNT + b"#" * 2 * SOURCE_ROOM).done
        assert regions(victim.process.pid) == 2
        assert victim.end()["wrong"] == 0


def test_a_text_that_fails_or_exits_ends_nothing() -> None:
    guarded = b"import contextlib\nwith contextlib.suppress(BaseException): raise SystemExit(3)"
    with running(BUSY) as victim:
        assert victim.enter(guarded).done
        assert victim.end()["wrong"] == 0


def test_a_main_thread_that_is_away_in_c_runs_the_text_when_it_is_back(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    away = "print('ready', flush=True); sum(range(60_000_000)); input()"
    with running(away) as victim:
        injected = victim.enter(f"open({str(mark)!r}, 'w')".encode(), 0.5)
        assert (injected.mode, injected.done) == ("pending", False)
        until(mark.exists)


def test_every_signal_reaches_the_job_once() -> None:
    with running(COUNTING) as victim:
        sent, over = 0, threading.Event()

        def send() -> None:
            nonlocal sent
            while not over.wait(0.002):
                os.kill(victim.process.pid, signal.SIGRTMIN)
                sent += 1

        sender = threading.Thread(target=send)
        sender.start()
        try:
            entered = 0
            for _ in range(100):
                # A crowded machine may let no thread of it run between two signals: try again.
                with contextlib.suppress(Refused):
                    entered += victim.enter().done
                if entered == 30:
                    break
            assert entered == 30
        finally:
            over.set()
            sender.join()
        result = victim.end()
        assert (result["wrong"], result["more"]) == (0, sent)


@contextlib.contextmanager
def stopped(victim: Victim) -> Iterator[None]:
    victim.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, victim.process.pid, os.WSTOPPED | os.WNOWAIT)
    yield
    victim.process.send_signal(signal.SIGCONT)


def test_a_stopped_job_stays_stopped() -> None:
    with running(BUSY) as victim:
        with stopped(victim):
            with pytest.raises(Refused, match="stopped"):
                victim.enter()
            stat = ProcFs().stat(victim.process.pid)
            assert stat is not None
            assert stat.state == "T"
        assert victim.end()["wrong"] == 0


def test_a_job_that_is_stopped_again_and_again_is_unharmed() -> None:
    with running(BUSY) as victim:
        for _ in range(20):
            victim.process.send_signal(signal.SIGSTOP)
            with contextlib.suppress(Refused):
                victim.enter(timeout=0.05)
            victim.process.send_signal(signal.SIGCONT)
        assert victim.enter().done
        assert victim.end()["wrong"] == 0


def test_a_pid_that_was_given_to_another_is_not_touched() -> None:
    with running(BUSY) as victim:
        pid, began = victim.key
        with pytest.raises(Refused, match="has ended"):
            inject(pid, began - 1, COUNT, 1.0)
        assert regions(pid) == 0


def test_a_job_that_is_gone_is_a_sentence() -> None:
    with running(BUSY) as victim:
        key = victim.key
        victim.end()
    with pytest.raises(NotEntered, match="has ended"):
        injector.enter(Target(key, ProcFs()), "1")


def test_a_program_without_python_is_a_sentence() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            stat = ProcFs().stat(process.pid)
            assert stat is not None
            refusal = injector.refusal(Target(ProcessKey(process.pid, stat.start_ticks), ProcFs()))
            assert refusal is not None
            assert "No CPython was found" in refusal.what
            assert "monitor run" in refusal.next_step
        finally:
            process.kill()


# It opens a pipe that nobody reads, in a child that borrows its memory: until then it waits in a
# state from which no signal and no tracer wakes it.
UNINTERRUPTIBLE = """
import os, sys
print("ready", flush=True)
opening = (os.POSIX_SPAWN_OPEN, 1, os.environ["PIPE"], os.O_WRONLY, 0)
opening = (os.POSIX_SPAWN_OPEN, 1, os.environ["PIPE"], os.O_WRONLY, 0)
pid = os.posix_spawn("/bin/true", ["true"], {}, file_actions=[opening])
os.waitpid(pid, 0)
print("back", input(), flush=True)
"""


# What a tracer does that takes that thread for one that can be stopped.
ASK_ANYHOW = """
import sys
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.stop import Stop
with Memory(int(sys.argv[1])) as memory, Stop(int(sys.argv[1]), memory):
    print("stopped")
"""


def test_a_job_in_an_uninterruptible_wait_is_left_and_goes_on(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with running(UNINTERRUPTIBLE, env={**os.environ, "PIPE": str(pipe)}) as victim:
        pid = victim.process.pid
        until(lambda: (s := ProcFs().stat(pid)) is not None and s.state == "D")
        with pytest.raises(NotEntered):
            injector.enter(target(victim), "1", 0.5)
        asked = subprocess.run(
            [sys.executable, "-c", ASK_ANYHOW, str(pid)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "waits for a disk or a driver" in asked.stderr
        with pipe.open("rb") as reader:
            reader.read()
        said, _ = victim.process.communicate("home\n", timeout=20)
        assert said == "back home\n"
        assert victim.process.returncode == 0


def test_a_monitor_that_is_held_up_for_long_has_not_waited_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a machine that stands still: the time is over, and the thread has stopped."""
    waits, pauses = os.waitid, [stop.WAIT_SECONDS]

    def wait(kind: int, tid: int, options: int) -> os.waitid_result | None:
        found = waits(kind, tid, options)
        while pauses:
            time.sleep(pauses.pop())
        return found

    monkeypatch.setattr(os, "waitid", wait)
    with running(BUSY) as victim:
        assert victim.enter().done
        assert not pauses
        assert victim.end()["wrong"] == 0


def test_a_thread_that_is_given_up_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "waitid", lambda *_: None)
    # Here a thread is stopped that is not the main one: only its tracer learns of its end.
    with running(THREADS) as victim, pytest.raises(Refused, match="gets no core"):
        victim.enter()
    assert victim.process.returncode == -signal.SIGKILL


def test_two_monitors_at_once_do_not_collide() -> None:
    with running(THREADS) as victim:
        pid, began = victim.key
        request = {"pid": pid, "start_ticks": began, "source": "1", "timeout": 20}
        tracers = [
            subprocess.Popen(
                injector.TRACER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(4)
        ]
        said = [t.communicate(json.dumps(request) + "\n", timeout=30)[0] for t in tracers]
        assert any('"done": true' in s for s in said)
        assert all('"done": true' in s or "Another monitor" in s for s in said)
        assert victim.end()["wrong"] == 0


def test_a_tracer_that_hangs_or_dies_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(BUSY) as victim:
        monkeypatch.setattr(injector, "_START_SECONDS", 0.3)
        hanging = (sys.executable, "-c", "import time; time.sleep(60)")
        monkeypatch.setattr(injector, "TRACER", hanging)
        with pytest.raises(NotEntered, match="did not answer"):
            injector.enter(target(victim), "1", 0.1)
        monkeypatch.setattr(injector, "_START_SECONDS", 20.0)
        dying = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
        monkeypatch.setattr(injector, "TRACER", dying)
        with pytest.raises(NotEntered, match="without an answer"):
            injector.enter(target(victim), "1", 0.1)
        assert victim.end()["wrong"] == 0


def test_a_job_that_ends_meanwhile_ends_as_it_would() -> None:
    short = "import sys; print('ready', flush=True); sum(range(2_000_000)); sys.exit(7)"
    for _ in range(5):
        with running(short) as victim:
            with contextlib.suppress(Refused, OSError, AssertionError):
                while True:
                    victim.enter(timeout=0.2)
            # 0: we are its parent here, and the tracer has collected its status before we could.
            assert victim.process.wait(20) in {7, 0}
