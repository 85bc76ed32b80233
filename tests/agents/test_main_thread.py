"""Calls on the main thread: who makes them, when, and what must not be lost."""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import ModuleType

import pytest

from whyidle.agents import main_thread
from whyidle.agents.main_thread import MainThreadCall
from whyidle.agents.stacks import StackSampler
from whyidle.agents.steps import Steps

HOUR = 3600 * 10**9


@pytest.fixture
def main_call() -> MainThreadCall:
    return MainThreadCall(threading.get_ident())


@pytest.fixture
def came() -> list[str]:
    return []


def elsewhere(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end, "it never came"


@pytest.mark.skipif(not main_thread.COLLECTS_WHILE_LOCKED, reason="no lock is held meanwhile")
@pytest.mark.parametrize("threshold", [-1, 1, 10, 400, 100_000])
def test_no_garbage_is_collected_while_frames_are_made(
    threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter then holds a lock that what is collected may want."""
    collected: list[bool] = []
    inside = False

    def frames() -> dict[int, object]:
        nonlocal inside
        inside = True
        made = [set[int]() for _ in range(1000)]
        inside = False
        return dict(enumerate(made))

    def note(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            collected.append(inside)

    before = gc.get_threshold()
    off, real, on = main_thread._UNCOLLECTED
    assert real is sys._current_frames
    monkeypatch.setattr(main_thread, "_UNCOLLECTED", (off, frames, on))
    gc.callbacks.append(note)
    try:
        gc.set_threshold(threshold)
        assert len(main_thread.current_frames()) == 1000
        # The same beside it does collect, if the threshold is below that.
        assert not any(collected)
        frames()
        assert any(collected) is (threshold < 1000)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert gc.isenabled()


class Tensor:
    """What a job must have back when its function has ended."""


@pytest.mark.parametrize("collects", [True, False])
def test_what_was_seen_is_not_kept(*, collects: bool) -> None:
    """Not even until the next collection: a job may have switched that off."""

    def step() -> weakref.ref[Tensor]:
        tensor = Tensor()
        elsewhere(lambda: StackSampler(main, 0).sample(0))
        elsewhere(main_thread.current_frames)
        return weakref.ref(tensor)

    main = threading.get_ident()
    gc.collect()
    try:
        if not collects:
            gc.disable()
        assert step()() is None
        assert gc.isenabled() is collects
    finally:
        gc.enable()


@pytest.mark.skipif(not main_thread.COLLECTS_WHILE_LOCKED, reason="nothing is switched off")
def test_a_hook_of_the_jobs_that_refuses_leaves_collections_on() -> None:
    source = """
import gc, sys
from whyidle.agents.main_thread import current_frames
def refuse(event, given):
    if event == "sys._current_frames": raise RuntimeError
sys.addaudithook(refuse)
try: current_frames()
except RuntimeError: print(gc.isenabled())
"""
    line = [sys.executable, "-c", source]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == "True\n"


def test_what_is_wanted_is_done_once(main_call: MainThreadCall, came: list[str]) -> None:
    main_call.request(lambda: came.append("one"))
    for _ in range(3):
        main_call.run_pending()
    assert came == ["one"]


def test_the_last_word_counts_and_what_is_forgotten_is_not_done(
    main_call: MainThreadCall, came: list[str]
) -> None:
    main_call.request(lambda: came.append("one"))
    main_call.request(lambda: came.append("two"))
    main_call.run_pending()
    main_call.request(lambda: came.append("three"))
    main_call.cancel()
    main_call.run_pending()
    assert came == ["two"]


def test_another_thread_is_not_the_place(main_call: MainThreadCall, came: list[str]) -> None:
    main_call.request(lambda: came.append("one"))
    elsewhere(main_call.run_pending)
    assert not came
    main_call.run_pending()
    assert came == ["one"]


def test_it_is_not_done_before_it_is_due(main_call: MainThreadCall, came: list[str]) -> None:
    main_call.request(lambda: came.append("one"), time.monotonic_ns() + HOUR)
    main_call.run_pending()
    assert not came
    main_call.request(lambda: came.append("two"), time.monotonic_ns())
    main_call.run_pending()
    assert came == ["two"]


def test_a_tick_is_a_moment(came: list[str]) -> None:
    steps = Steps(threading.get_ident())
    tick, _ = steps.listen("optimizer")
    tick(0)
    steps.main_call.request(lambda: came.append("one"))
    elsewhere(lambda: tick(0))
    assert not came
    tick(0)
    assert came == ["one"]


def test_an_exception_of_the_jobs_own_goes_on_its_way(main_call: MainThreadCall) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    main_call.request(interrupted)
    with pytest.raises(KeyboardInterrupt):
        main_call.run_pending()
    main_call.run_pending()


def test_who_takes_no_steps_comes_by_in_a_hurry(main_call: MainThreadCall, came: list[str]) -> None:
    main_call.request(lambda: came.append("one"))
    elsewhere(main_call.interrupt)
    until(lambda: came)
    assert came == ["one"]
    assert not main_call.pending


def test_nobody_is_hurried_for_nothing(main_call: MainThreadCall, came: list[str]) -> None:
    main_call.interrupt()
    main_call.request(lambda: came.append("one"))
    for _ in range(1000):
        pass
    assert not came


class Graph:
    """Gradients that are computed, as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.task = 7
        self.asked = 0
        package, module = ModuleType("torch"), ModuleType("torch._C")
        vars(module)["_current_graph_task_id"] = self.read
        monkeypatch.setitem(sys.modules, "torch", package)
        monkeypatch.setitem(sys.modules, "torch._C", module)

    def read(self) -> int:
        self.asked += 1
        return self.task


def test_it_waits_while_gradients_are_computed(
    main_call: MainThreadCall, came: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(monkeypatch)
    main_call.request(lambda: came.append("one"))
    main_call.run_pending()
    assert not came
    assert not main_call.is_here()
    graph.task = -1
    main_call.run_pending()
    assert came == ["one"]


def test_it_is_asked_once_for_each_interruption_while_gradients_are_computed(
    main_call: MainThreadCall, came: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(monkeypatch)
    main_call.request(lambda: came.append("one"))
    elsewhere(main_call.interrupt)
    until(lambda: graph.asked)
    for _ in range(1000):
        until(lambda: True)
    assert graph.asked == 1
    graph.task = -1
    elsewhere(main_call.interrupt)
    until(lambda: came)
    assert came == ["one"]


def test_the_true_graph_of_torch_is_known(came: list[str]) -> None:
    torch = pytest.importorskip("torch")
    main_call = MainThreadCall(threading.get_ident())

    def grown(gradient: object) -> object:
        main_call.run_pending()
        came.append("inside")
        return gradient

    numbers = torch.ones(3, requires_grad=True)
    numbers.register_hook(grown)
    main_call.request(lambda: came.append("call"))
    (numbers * 2).sum().backward()
    main_call.run_pending()
    assert came == ["inside", "call"]


def test_a_main_thread_that_waits_for_another_is_woken_and_waits_on(
    main_call: MainThreadCall, came: list[str]
) -> None:
    def other() -> None:
        main_call.request(lambda: came.append("call"))
        while not came:
            main_call.interrupt()
            assert main_thread.wake(threading.main_thread().ident or 0)
            time.sleep(0.001)
        came.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    came.append("main")
    assert came == ["call", "other", "main"]


def test_no_signal_that_somebody_has_a_use_for_is_taken() -> None:
    with_handler = signal.SIGRTMAX - 1
    before = signal.signal(with_handler, lambda *_: None)
    try:
        found = main_thread._unused_signal(vars(ctypes))
        assert found is not None
        assert found != with_handler
        # The same one again, and not one more.
        assert main_thread._unused_signal(vars(ctypes)) == found
    finally:
        signal.signal(with_handler, before or signal.SIG_DFL)
