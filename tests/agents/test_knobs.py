"""A knob that is turned goes back: when asked, and whatever becomes of the one who asked."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.pythons import Client, ends_well, every_python, job
from whyidle.agents import wire
from whyidle.agents.knobs import KNOBS, Knobs
from whyidle.agents.main_thread import MainThreadCall

SECOND = 1_000_000_000
# What a job says of its own settings, each time that it is asked.
SAYS = """
import json
def settings():
    frozen = gc.get_freeze_count() > 1000
    return [gc.isenabled(), gc.get_threshold(), frozen, sys.getswitchinterval()]
def tell(): print(json.dumps(settings()), flush=True)
before = settings()
start(); until(reachable); ready()
"""
# Goes on until its input ends; then it must be as it was before.
GOES_ON = SAYS + "for line in sys.stdin:\n    tell()\n"
TURNED = [
    ("gc.freeze", None, 2),
    ("gc.threshold", 50_000, 1),
    ("gc.disable", None, 0),
    ("python.switch_interval", 0.02, 3),
]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.isenabled(), gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.set_threshold(*before[1])
    sys.setswitchinterval(before[2])
    if before[0]:
        gc.enable()


class Bench:
    """Knobs in this process, and the records that they put."""

    def __init__(self) -> None:
        self.records: list[list[Any]] = []
        self.main_call = MainThreadCall(threading.get_ident())
        self.knobs = Knobs(self.records.append, self.main_call)

    def turn(self, name: str, value: Any = None, client: int = 1) -> str | None:
        return self.knobs.turn(client, name, value, time.monotonic_ns())

    @property
    def last(self) -> tuple[str, str]:
        return self.records[-1][2], self.records[-1][3]


def told(process: Any) -> list[Any]:
    process.stdin.write("?\n")
    process.stdin.flush()
    import json  # noqa: PLC0415

    found: list[Any] = json.loads(process.stdout.readline())
    return found


@every_python
def test_each_is_turned_and_goes_back(python: str, tmp_path: Path) -> None:
    with job(GOES_ON, tmp_path, python) as process, Client(tmp_path, process.pid) as client:
        before = told(process)
        for name, value, place in TURNED:
            assert client.ask("knob", name=name, value=value) == {"ok": True, "on": True}
            changed = told(process)
            assert [n for n in range(4) if changed[n] != before[n]] == [place]
            record = client.wait_for("knob")
            assert record[2:4] == [name, "on"]
            assert client.ask("back") == {"ok": True, "on": False}
            assert told(process) == before
            record = client.wait_for("knob")
            assert record[2:4] == [name, "off"]
            assert record[4]["why"] == "asked"
        ends_well(process)


@pytest.mark.parametrize("name", [name for name, _, _ in TURNED])
def test_it_goes_back_at_once_when_the_client_is_killed(name: str, tmp_path: Path) -> None:
    value = next(value for each, value, _ in TURNED if each == name)
    with job(GOES_ON, tmp_path) as process, Client(tmp_path, process.pid) as other:
        before = told(process)
        with Client(tmp_path, process.pid) as client:
            assert client.ask("knob", name=name, value=value)["ok"]
            assert told(process) != before
        until_same(process, before)
        record = other.wait_for("knob")
        while record[3] == "on":
            record = other.wait_for("knob")
        assert record[4]["why"] == "the one who asked hung up"
        ends_well(process)


def until_same(process: Any, before: list[Any]) -> None:
    deadline = time.monotonic() + wire.KNOB_SECONDS + 5
    while told(process) != before:
        assert time.monotonic() < deadline


def test_it_goes_back_when_the_client_says_nothing_any_more(tmp_path: Path) -> None:
    with job(GOES_ON, tmp_path) as process, Client(tmp_path, process.pid) as client:
        before = told(process)
        assert client.ask("knob", name="gc.disable")["ok"]
        time.sleep(wire.KNOB_SECONDS / 2)
        assert told(process) != before
        until_same(process, before)
        ends_well(process)


def test_it_goes_back_when_the_agent_leaves(tmp_path: Path) -> None:
    with job(GOES_ON, tmp_path) as process, Client(tmp_path, process.pid) as client:
        before = told(process)
        assert client.ask("knob", name="gc.freeze")["ok"]
        assert client.ask("leave")["ok"]
        assert client.is_hung_up()
        assert told(process) == before
        assert [r[3] for r in client.records() if r[0] == "knob"] == ["on", "off"]
        ends_well(process)


def test_it_goes_back_before_the_job_ends_and_in_the_child_of_a_fork(tmp_path: Path) -> None:
    source = (
        SAYS
        + """
sys.stdin.readline()
assert settings() != before
child = os.fork()
if child == 0:
    os._exit(0 if settings() == before else 1)
assert os.waitpid(child, 0)[1] == 0
assert settings() != before
import atexit
# Registered before the agent's own, it runs after it.
"""
    )
    source = source.replace(
        "start();", "import atexit; atexit.register(lambda: print(settings() == before)); start();"
    )
    with job(source, tmp_path) as process, Client(tmp_path, process.pid) as client:
        assert client.ask("knob", name="gc.disable")["ok"]
        output, errors = process.communicate("go\n", timeout=20)
        assert (output, errors) == ("True\n", "")


def test_what_is_kept_stays(tmp_path: Path) -> None:
    with job(GOES_ON, tmp_path) as process:
        before = told(process)
        with Client(tmp_path, process.pid) as client:
            assert client.ask("knob", name="gc.threshold", value=9000)["ok"]
            assert client.ask("keep") == {"ok": True, "on": False}
            assert client.ask("leave")["ok"]
            assert client.is_hung_up()
        assert told(process)[1] == [9000, *before[1][1:]]
        ends_well(process)


def test_what_the_job_sets_itself_meanwhile_stays() -> None:
    bench = Bench()
    bench.turn("gc.threshold", 5000)
    gc.set_threshold(123, 4, 5)
    assert bench.knobs.take_back("asked")
    assert bench.last == ("gc.threshold", "left")
    assert gc.get_threshold() == (123, 4, 5)


def test_what_the_job_freezes_meanwhile_stays_frozen() -> None:
    bench = Bench()
    bench.turn("gc.freeze")
    kept = [[] for _ in range(100)]
    gc.freeze()
    assert bench.knobs.take_back("asked")
    assert bench.last == ("gc.freeze", "left")
    assert gc.get_freeze_count() > len(kept)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("os.system", "true", "no knob of that name"),
        (None, None, "no knob of that name"),
        (["gc.freeze"], None, "no knob of that name"),
        ("gc.threshold", 0, "whole number"),
        ("gc.threshold", True, "whole number"),
        ("gc.threshold", "__import__('os')", "whole number"),
        ("python.switch_interval", 10, "seconds"),
        ("python.switch_interval", float("nan"), "seconds"),
        ("torch.threads", 0, "torch"),
        ("cudnn.benchmark", 1, "cudnn"),
    ],
)
def test_what_is_no_knob_or_no_value_is_refused(name: Any, value: Any, why: str) -> None:
    bench = Bench()
    assert why in (bench.turn(name, value) or "")
    assert not bench.knobs.is_on()
    assert bench.records == []


def test_there_is_one_at_a_time_and_it_is_its_clients() -> None:
    bench = Bench()
    assert bench.turn("gc.disable", client=1) is None
    assert "one at a time" in (bench.turn("gc.freeze", client=2) or "")
    assert bench.knobs.keep(2) is not None
    bench.knobs.leave(2)
    assert not gc.isenabled()
    bench.knobs.leave(1)
    assert gc.isenabled()


def test_objects_are_not_counted_while_they_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    bench = Bench()
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(count()) or asked[-1])
    assert bench.turn("gc.freeze") is None
    assert count() > 1000
    assert bench.knobs.take_back("asked")
    assert bench.last == ("gc.freeze", "off")
    # Once, before: the job has none.
    assert len(asked) == 1
    assert count() < 1000


def test_what_the_collector_has_kept_for_long_is_told_from_what_is_frozen() -> None:
    bench = Bench()
    bench.turn("gc.freeze")
    for generation in (0, 1, 2):
        gc.collect(generation)
    assert bench.knobs.take_back("asked")
    assert bench.last == ("gc.freeze", "off")


def test_frozen_objects_of_the_jobs_own_are_not_mixed_with_ours() -> None:
    kept = [[] for _ in range(2000)]
    gc.freeze()
    bench = Bench()
    assert "has frozen" in (bench.turn("gc.freeze") or "")
    assert kept


class Threads:
    """A stand-in for ``torch._C``."""

    def __init__(self) -> None:
        self.number = 8

    def get(self) -> int:
        return self.number

    def set(self, number: int) -> None:
        self.number = number


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    found = Threads()
    for name in ("torch", "torch._C"):
        module = type(sys)(name)
        monkeypatch.setitem(sys.modules, name, module)
    # As PyTorch has it.
    assert sys.modules["ctypes"] is ctypes
    names = vars(sys.modules["torch._C"])
    names.update(get_num_threads=found.get, set_num_threads=found.set)
    return found


def test_what_is_the_main_threads_is_set_between_two_of_its_steps(threads: Threads) -> None:
    bench = Bench()
    assert bench.turn("torch.threads", 2) is None
    assert threads.number == 8
    bench.main_call.run_pending()
    assert threads.number == 2
    assert bench.last == ("torch.threads", "on")
    # As from the agent's own thread.
    bench.main_call.main = 0
    assert not bench.knobs.take_back("asked")
    bench.main_call.main = threading.get_ident()
    bench.main_call.run_pending()
    assert threads.number == 8
    assert bench.last == ("torch.threads", "off")


def test_an_agent_that_must_leave_while_the_main_thread_is_in_c_waits_for_nobody(
    threads: Threads,
) -> None:
    bench = Bench()
    bench.turn("torch.threads", 2)
    bench.main_call.run_pending()
    by: list[int] = []
    vars(sys.modules["torch._C"])["set_num_threads"] = lambda number: (
        threads.set(number),
        by.append(threading.get_ident()),
    )
    took: list[float] = []

    def leave() -> None:
        began = time.monotonic()
        bench.knobs.undo()
        took.append(time.monotonic() - began)

    other = threading.Thread(target=leave)
    other.start()
    time.sleep(0.3)
    other.join()
    assert threads.number == 8
    assert by == [threading.get_ident()]
    # Nobody hears of it any more.
    assert bench.last == ("torch.threads", "on")
    assert took[0] < 0.2


def test_what_is_left_behind_waits_until_no_gradients_are_computed(threads: Threads) -> None:
    graph = [7]
    vars(sys.modules["torch._C"])["_current_graph_task_id"] = lambda: graph[0]
    bench = Bench()
    graph[0] = -1
    bench.turn("torch.threads", 2)
    bench.main_call.run_pending()
    graph[0] = 7
    other = threading.Thread(target=bench.knobs.undo)
    other.start()
    other.join()
    assert sum(range(1000)) > 0
    assert threads.number == 2
    graph[0] = -1
    deadline = time.monotonic() + 5
    while threads.number != 8 and time.monotonic() < deadline:
        pass
    assert threads.number == 8


def test_a_signal_of_the_jobs_in_between_loses_nothing(threads: Threads) -> None:
    bench = Bench()
    bench.turn("torch.threads", 2)
    names = vars(sys.modules["torch._C"])

    def handler(number: int) -> None:
        threads.set(number)
        raise KeyboardInterrupt

    names["set_num_threads"] = handler
    with pytest.raises(KeyboardInterrupt):
        bench.main_call.run_pending()
    names["set_num_threads"] = threads.set
    bench.knobs.second(time.monotonic_ns())
    bench.main_call.run_pending()
    assert bench.last == ("torch.threads", "on")
    assert bench.knobs.take_back("asked")
    assert threads.number == 8


def test_compiled_steps_are_not_compiled_again(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch._dynamo", "torch._dynamo.utils"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    vars(sys.modules["torch._dynamo.utils"])["_compilation_metrics"] = [object()]
    assert "compile again" in (Bench().turn("torch.threads", 2) or "")


def test_every_knob_says_its_name() -> None:
    assert all(knob.name == name for name, knob in KNOBS.items())
    assert os.getpid()
