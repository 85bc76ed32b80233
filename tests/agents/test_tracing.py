"""Traces on demand: taken, fetched, refused and removed, and the job is unharmed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.pythons import Client
from tests.agents.traced import JAX, TORCH, UNTIL_TOLD, Job, Tracing, job
from whyidle.agents.trace_window import GROWTH, TraceWindow

pytestmark = pytest.mark.filterwarnings("error")

WORK = (
    UNTIL_TOLD
    + """
start(); until(reachable); ready()
while not told.is_set(): step(); time.sleep(0.001)
"""
)
BOTH = pytest.mark.parametrize("source", [TORCH, JAX], ids=["torch", "jax"])


@pytest.fixture
def torch_job(tmp_path: Path) -> Iterator[tuple[Job, Tracing]]:
    with job(TORCH + WORK, tmp_path) as process, Client(tmp_path, process.pid) as client:
        yield process, Tracing(client)
        process.ends_well()


@BOTH
def test_a_trace_is_taken_and_lies_beside_the_spool(source: str, tmp_path: Path) -> None:
    with job(source + WORK, tmp_path) as process, Client(tmp_path, process.pid) as client:
        tracing = Tracing(client)
        record = tracing.take()
        assert record[3] == "done", record
        assert [r[3] for r in tracing.said] == ["begun", "done"]
        facts = record[4]
        path = client.home / facts["file"]
        assert facts["file"] == f"{process.pid}.trace-{record[2]}"
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_size == facts["bytes"]
        assert facts["began_ns"] < facts["ended_ns"] < record[1]
        content = path.read_bytes()
        if facts["framework"] == "torch":
            names = {e.get("name") for e in json.loads(content)["traceEvents"]}
            # Of the threads of the job, not of ours.
            assert "aten::addmm" in names
            assert facts["held_ns"] > 0
        else:
            assert b"PjitFunction" in content
            assert facts["held_ns"] is None
        assert client.ask("drop", id=record[2]) == {"ok": True}
        assert not client.ask("drop", id=record[2])["ok"]
        assert sorted(p.suffix for p in client.home.iterdir()) == [".sock", ".spool"]
        process.ends_well()


REFUSED: list[dict[str, Any]] = [
    {"seconds": 0},
    {"seconds": -1},
    {"seconds": True},
    {"seconds": "1"},
    {"seconds": 1e9},
    {"seconds": float("nan")},
    {"share": 0},
    {"share": 2},
    {"share": "1"},
    {"framework": "os"},
    {"framework": ["torch"]},
    {"framework": "jax"},
]


def test_what_cannot_be_traced_is_refused_with_a_reason(tmp_path: Path) -> None:
    source = "start(); until(reachable); ready(); sys.stdin.readline()"
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        for message in REFUSED:
            answer = client.ask("trace", **{"seconds": 0.1, **message})
            assert not answer["ok"], message
            assert answer["why"], message
        assert "nothing to trace" in client.ask("trace", seconds=0.1)["why"]
        assert not client.ask("drop", id="1")["ok"]
        process.ends_well()


OTHERS = {
    "NSYS_PROFILING_SESSION_ID": "NSYS",
    "CUDA_INJECTION64_PATH": "CUDA_INJECTION64_PATH",
    "KINETO_USE_DAEMON": "daemon",
}


def test_what_another_tool_profiles_is_left_alone(tmp_path: Path) -> None:
    source = (
        TORCH
        + """
start(); until(reachable); ready()
for line in sys.stdin:
    os.environ.clear(); os.environ[line.strip()] = "1"; ready()
"""
    )
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        for name, word in OTHERS.items():
            process.tell(name)
            process.hear("ready")
            assert word in Tracing(client).ask()["why"]
        process.ends_well()


def test_a_job_that_takes_no_steps_is_told_how_to_mark_them(tmp_path: Path) -> None:
    source = (
        TORCH
        + UNTIL_TOLD
        + """
start(); until(reachable)
sys.modules["_whyidle_agent.tracing"].PATIENCE_NS = 200_000_000
ready()
while not told.is_set(): model(data)
"""
    )
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        record = Tracing(client).take()
        assert record[3] == "failed"
        assert "whyidle.step() marks them" in record[4]["why"]
        process.ends_well()


def test_a_trace_ends_though_no_step_does_any_more(tmp_path: Path) -> None:
    source = (
        TORCH
        + UNTIL_TOLD
        + """
def begun():
    with open(mine("spool")) as file: return chr(34) + "begun" + chr(34) in file.read()
start(); until(reachable); ready()
while not begun(): step()
while not told.is_set(): model(data).sum().backward()
"""
    )
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        record = Tracing(client).take(seconds=0.01)
        # The client learns that one has begun when a first, short window is open already.
        assert record[3] == "done" or "none ended in" in record[4]["why"], record
        process.ends_well()


def test_a_block_that_nobody_could_end_with_a_trace_makes_it_the_last(tmp_path: Path) -> None:
    source = (
        TORCH
        + UNTIL_TOLD
        + """
start(); until(reachable)
sys.modules["_whyidle_agent.tracing"].LEAST_PAUSE_NS = 1
ready()
epoch = 0
while not told.is_set():
    epoch += 1
    # As record_function does, but past it: ours cannot end what it has not seen.
    record = torch.ops.profiler._record_function_enter_new(f"epoch {epoch}", None)
    for _ in range(200): step()
    torch.ops.profiler._record_function_exit._RecordFunction(record)
"""
    )
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        tracing = Tracing(client)
        # A trace in the middle of an epoch lacks its beginning, and is not the last.
        answer = tracing.ask(seconds=0.1)
        while answer["ok"]:
            assert tracing.end_of(answer["id"])[3] == "done"
            answer = tracing.ask(seconds=0.1)
        assert "'epoch " in answer["why"], answer
        process.ends_well()


def test_there_is_one_at_a_time_and_then_a_pause(torch_job: tuple[Job, Tracing]) -> None:
    _, tracing = torch_job
    first = tracing.ask()
    assert "one at a time" in tracing.client.ask("trace", seconds=0.1)["why"]
    assert tracing.end_of(first["id"])[3] == "done"
    # A share so small that even a machine that stands still meanwhile is not late enough.
    assert "too soon" in tracing.client.ask("trace", seconds=0.1, share=1e-5)["why"]
    assert tracing.take()[3] == "done"
    assert "too soon" in tracing.client.ask("trace", seconds=0.1, share=1e-5)["why"]


# Others hold the GIL, the given number of times in a row, whenever the cost of a window is known.
LATE = """
start(); until(reachable)
sys.modules["_whyidle_agent.tracing"].PATIENCE_NS = 2_000_000_000
window = sys.modules["_whyidle_agent.trace_window"].TraceWindow
note, moments = window.late, MOMENTS
def late(self, late_ns):
    global moments
    if self._cost is not None and moments:
        moments -= 1
        self.late_ns = 4 * self._affordable_ns()
    else:
        note(self, late_ns)
window.late = late
ready()
while not told.is_set(): step(); time.sleep(0.001)
"""


@pytest.mark.parametrize(("moments", "ends"), [(2, "done"), (10**9, "failed")])
def test_a_moment_in_which_others_have_the_lock_is_awaited(
    moments: int, ends: str, tmp_path: Path
) -> None:
    source = TORCH + UNTIL_TOLD + LATE.replace("MOMENTS", str(moments))
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        tracing = Tracing(client)
        assert tracing.take()[3] == "done"
        # The first moment was the end of that one, the others are the beginning of this one.
        began = time.monotonic_ns()
        record = tracing.take()
        assert record[3] == ends, record
        if ends == "failed":
            assert "agent's turn comes" in record[4]["why"]
            assert record[1] - began > 1_500_000_000
            assert tracing.take()[3] == ends
        process.ends_well()


def test_the_window_is_short_where_its_end_costs_much() -> None:
    window = TraceWindow(5_000_000, 50_000_000)
    assert window.next_ns(10**9) <= 5_000_000
    # A busy job: what takes 5 ms costs 20.
    window.learn(5_000_000, 5_000_000, 20_000_000)
    length = window.next_ns(10**9)
    assert length * 4 <= 50_000_000
    assert window.is_enough(length, 10**9)
    # A step that is late by more than that cannot be traced.
    window.late(length * 2)
    assert window.next_ns(10**9) == 0
    # Unless it comes in time again.
    assert window.is_late(10**9, 1_000_000)
    assert not window.is_late(900_000, 1_000_000)
    for _ in range(10):
        window.late(0)
    assert window.next_ns(10**9) > 0


def test_the_window_grows_by_steps_where_its_end_costs_little() -> None:
    window = TraceWindow(5_000_000, 50_000_000)
    lengths = []
    while True:
        length = window.next_ns(250_000_000)
        lengths.append(length)
        window.learn(length, length, 1_000_000)
        if window.is_enough(length, 250_000_000):
            break
    assert lengths[-1] >= 125_000_000
    assert all(b <= GROWTH * a for a, b in itertools.pairwise(lengths))


def test_what_was_too_dear_once_is_tried_again() -> None:
    window = TraceWindow(5_000_000, 50_000_000)
    window.learn(5_000_000, 5_000_000, 250_000_000)
    tries = 0
    while window.next_ns(10**9) < 1_000_000:
        window.refuse()
        tries += 1
    assert 1 <= tries <= 20


def test_windows_that_are_cut_short_are_no_dear_ones() -> None:
    window = TraceWindow(5_000_000, 50_000_000)
    for _ in range(8):
        window.learn(5_000_000, 100_000, 5_000_000)
    assert window.next_ns(10**9) >= 5_000_000


def test_a_window_waits_for_a_step_as_far_as_it_can_be_paid() -> None:
    window = TraceWindow(5_000_000, 50_000_000)
    assert window.spare_ns(5_000_000) > 10**9
    window.learn(5_000_000, 5_000_000, 10_000_000)
    assert window.spare_ns(15_000_000) == 10_000_000
    assert window.spare_ns(30_000_000) == 0


def test_the_dearest_window_is_remembered_for_long() -> None:
    window = TraceWindow(5_000_000, 50_000_000)
    window.learn(5_000_000, 5_000_000, 5_000_000)
    for _ in range(4):
        window.learn(40_000_000, 40_000_000, 4_000_000)
    # As expensive as the first one, the next still keeps the bound.
    assert 20_000_000 <= window.next_ns(10**9) <= 50_000_000


@BOTH
@pytest.mark.parametrize("ending", ["exit", "leave", "kill"])
def test_an_end_in_the_middle_leaves_nothing(source: str, ending: str, tmp_path: Path) -> None:
    with job(source + WORK, tmp_path) as process, Client(tmp_path, process.pid) as client:
        tracing = Tracing(client)
        assert tracing.ask(seconds=5)["ok"]
        tracing.until_begun()
        if ending == "leave":
            client.ask("leave")
            assert client.is_hung_up()
            said = [r for r in client.records() if r[0] in ("trace", "bye")]
            assert [r[0] for r in said][-1] == "bye"
        if ending == "kill":
            process.process.kill()
            process.process.wait()
            return
        process.ends_well()
        assert not list(client.home.iterdir())


@BOTH
def test_a_job_that_forks_meanwhile_and_its_child_are_well(source: str, tmp_path: Path) -> None:
    # JAX warns of forks; that is the job's own problem.
    forks = """
import warnings; warnings.simplefilter("ignore")
def child():
    pid = os.fork()
    if not pid:
        try:
            names = sys.modules.get("torch.autograd.profiler")
            assert names is None or names._enable_profiler is torch._C._autograd._enable_profiler
            assert names is None or type(names._enable_profiler) is type(len)
            jax = sys.modules.get("jax._src.profiler")
            assert jax is None or not jax._profile_state.lock.locked()
            if jax is None: step()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
start(); until(reachable); ready()
while not told.is_set(): step(); child()
"""
    with job(source + UNTIL_TOLD + forks, tmp_path) as process:
        with Client(tmp_path, process.pid) as client:
            for _ in range(2):
                record = Tracing(client).take()
                assert record[3] == "done", record
        process.ends_well()


def test_a_disk_without_room_is_left_alone(tmp_path: Path) -> None:
    source = (
        TORCH
        + UNTIL_TOLD
        + """
real = os.fstatvfs
def full(fd): return type("V", (), {"f_bavail": 10, "f_frsize": 4096})()
start(); until(reachable); os.fstatvfs = full; ready()
while not told.is_set(): step(); time.sleep(0.001)
"""
    )
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        record = Tracing(client).take()
        assert (record[3], record[4]["why"]) == ("failed", "no room on the disk")
        process.ends_well()
