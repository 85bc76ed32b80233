"""Calls on the main thread: who makes them, when, and what must not be lost."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from whyidle.agents import main_thread
from whyidle.agents.main_thread import MainThreadCall
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


@pytest.fixture
def many_threads() -> Iterator[int]:
    """Threads that wait, whose frames nobody has asked for yet."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(40)]
    for thread in threads:
        thread.start()
    yield len(threads)
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.skipif(not main_thread.MAKES_FRAMES, reason="makes the frames with the threads")
@pytest.mark.parametrize("room", [0, 5, 30, 60, 100])
def test_no_garbage_is_collected_while_frames_are_made(many_threads: int, room: int) -> None:
    """The interpreter then holds a lock that what is collected may want."""
    main_thread.current_frames()
    collected: list[str] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            collected.append(sys._getframe(1).f_code.co_name)

    before = gc.get_threshold()
    made: list[object] = []
    try:
        gc.collect()
        gc.callbacks.append(note)
        gc.set_threshold(400)
        made += [set() for _ in range(400 - room - gc.get_count()[0])]
        for _ in range(20):
            found = main_thread.current_frames()
            assert len(found) >= many_threads
            made += [found, set()]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert collected
    assert "current_frames" not in collected


@pytest.mark.skipif(not main_thread.MAKES_FRAMES, reason="makes the frames with the threads")
def test_none_is_asked_for_where_any_object_may_be_the_last(many_threads: int) -> None:
    main_thread.current_frames()
    before = gc.get_threshold()
    try:
        gc.set_threshold(many_threads)
        assert main_thread.current_frames() == {}
        gc.disable()
        assert len(main_thread.current_frames()) >= many_threads
    finally:
        gc.enable()
        gc.set_threshold(*before)


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
