"""The process that parses a trace: what it keeps and answers, and how it may end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tracefiles import kineto
from tests.tracing.conftest import until
from whyidle.monitor.store import NewRun, Writer
from whyidle.monitor.store.stored_traces import Kept
from whyidle.monitor.tracing import parser as module
from whyidle.monitor.tracing.parser import Parser, Understood

TAKEN = {"began_ms": 123_000, "ended_ms": 123_250, "held_ns": 5, "how": "the agent"}


def order(file: Path, store: Path, run: int | None = None) -> Any:
    return {"file": str(file), "store": str(store), "run": run, "taken": TAKEN}


def saying(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state" / "whyidle.db"


@pytest.fixture
def run(store: Path) -> int:
    with Writer.open(store) as writer:
        run = writer.begin_run(NewRun())
        writer.end_run(run, "done")
    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "taken.json"
    path.write_text(json.dumps(kineto()))
    return path


def test_a_trace_is_understood_and_kept_at_its_moment_of_the_run(
    store: Path, run: int, file: Path
) -> None:
    parser = Parser(order(file, store, run))
    found = until(parser.poll)
    assert isinstance(found, Understood), found
    assert found.steps["count"] == 4
    assert found.kinds == ["gpu"]
    assert sum(found.budget["slices"].values()) == found.budget["total_ns"] > 0
    with Kept.open(store) as kept:
        (trace,) = kept.traces(run)
        assert trace.id == found.trace
        assert trace.ts_ms == TAKEN["began_ms"]
        assert trace.taken == TAKEN
        assert trace.path == file
        assert trace.answer["budget"] == found.budget
        assert len(kept.steps(trace.id)) == 4
        assert trace.blocks > 0


def test_what_cannot_be_kept_is_reported_all_the_same(store: Path, run: int, file: Path) -> None:
    parser = Parser(order(file, store, run + 5))
    found = until(parser.poll)
    assert isinstance(found, Understood), found
    assert found.trace is None
    assert found.trouble == f"There is no recording '{run + 5}'."
    assert found.budget["total_ns"] > 0


def test_a_file_that_is_no_trace_is_a_sentence(store: Path, run: int, tmp_path: Path) -> None:
    file = tmp_path / "taken.json"
    file.write_text("hello")
    found = until(Parser(order(file, store, run)).poll)
    assert isinstance(found, str)
    assert "is no trace that we read" in found


def test_a_parser_that_is_killed_is_reported(store: Path, file: Path) -> None:
    parser = Parser(order(file, store), saying("import time; time.sleep(100)"))
    assert parser.poll() is None
    os.kill(parser._child.pid, signal.SIGKILL)
    assert until(parser.poll) == "the process that read it ended by SIGKILL"


def test_one_that_hangs_is_ended(store: Path, file: Path) -> None:
    parser = Parser(order(file, store), saying("import time; time.sleep(100)"), seconds=0.0)
    assert until(parser.poll) == "it was not understood within 0 s"
    assert parser._child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the process that read it gave no answer"),
        ("print('hello')", "the process that read it gave no answer"),
        ("print('[' * 100_000)", "the process that read it gave no answer"),
        ('print(\'{"failed": "it rains."}\')', "it rains"),
        ("raise SystemExit(3)", "the process that read it ended with code 3"),
        ("import os; os.kill(os.getpid(), 11)", "the process that read it ended by SIGSEGV"),
        ("while True: print('x' * 100_000)", "the process that read it said too much"),
    ],
)
def test_an_odd_end_is_a_sentence(store: Path, file: Path, text: str, why: str) -> None:
    assert until(Parser(order(file, store), saying(text)).poll) == why


def test_memory_has_an_end(store: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = (
        "from whyidle.monitor.tracing import worker\n"
        "worker.MOST_BYTES = 300 << 20\n"
        "worker.understand = lambda order: {'length': len(bytearray(1 << 30))}\n"
        "worker.main()\n"
    )
    found = until(Parser(order(file, store), saying(greedy)).poll)
    assert found == "it needs more memory than it may have"


def test_only_its_thinking_gives_way(
    store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYIDLE_CORE_SHARE", "0.05")
    script = (
        "import os\n"
        "from whyidle.monitor.tracing import worker\n"
        "def analysed(order):\n"
        "    worker.seen = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "    raise ValueError(f'{worker.seen} {os.getpriority(os.PRIO_PROCESS, os.getpid())}')\n"
        "worker._analysed = analysed\n"
        "worker.main()\n"
    )
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    found = until(Parser(order(file, store), saying(script)).poll)
    assert found == f"ValueError: 13 {ours}"


def test_whoever_is_nicer_stays_so(store: Path, file: Path) -> None:
    nicer = (
        "import os\n"
        "os.nice(19)\n"
        "from whyidle.monitor.tracing import worker\n"
        "def analysed(order):\n"
        "    raise ValueError(os.getpriority(os.PRIO_PROCESS, 0))\n"
        "worker._analysed = analysed\n"
        "worker.main()\n"
    )
    assert until(Parser(order(file, store), saying(nicer)).poll) == "ValueError: 19"


def test_it_is_the_first_to_go_where_memory_is_short(store: Path, file: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from whyidle.monitor.tracing import worker\n"
        "def understand(order):\n"
        "    raise ValueError(Path('/proc/self/oom_score_adj').read_text().strip())\n"
        "worker.understand = understand\n"
        "worker.main()\n"
    )
    assert until(Parser(order(file, store), saying(script)).poll) == "ValueError: 1000"


def test_it_goes_with_who_started_it(store: Path, file: Path) -> None:
    starter = (
        "import sys, time\n"
        "from whyidle.monitor.tracing import parser\n"
        "text = 'from whyidle.monitor.tracing import worker; import time;'\n"
        "text += 'say = lambda order: (print(\"on\", flush=True), time.sleep(100));'\n"
        "text += 'worker.understand = say;'\n"
        "text += 'worker.main()'\n"
        "found = parser.Parser({}, (sys.executable, '-c', text))\n"
        "while b'on' not in found._said:\n"
        "    found.poll()\n"
        "    time.sleep(0.01)\n"
        "print(found._child.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    with subprocess.Popen(saying(starter), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        handle = os.pidfd_open(pid)
        process.kill()
    assert select.select([handle], [], [], 20)[0]
    os.close(handle)


def test_a_file_where_the_user_stands_is_not_taken_for_a_module_of_ours(
    store: Path, run: int, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert isinstance(until(Parser(order(file, store, run)).poll), Understood)


def test_no_terminals_ctrl_c_reaches_it(store: Path, file: Path) -> None:
    parser = Parser(order(file, store), saying("import time; time.sleep(100)"))
    try:
        assert os.getsid(parser._child.pid) != os.getsid(0)
    finally:
        parser.close()


def test_the_recorder_imports_nothing_heavy_for_it() -> None:
    code = "import sys; import whyidle.monitor.recording.traces; print('numpy' in sys.modules)"
    done = subprocess.run(saying(code), capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_time_limit_is_longer_than_any_trace_takes() -> None:
    assert module.SECONDS >= 60
