"""Waiting for another process, asleep or asking again and again: a class of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import toy_engine
from whyidle.monitor.core.host_class import HostClass
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.runs.stacks import Chain, CodeLine, StackSamples
from whyidle.monitor.signals.account import account_of
from whyidle.monitor.signals.blended import ON_OTHER_THREADS, ON_THIS_THREAD

PACKAGES = "/venv/lib/python3.11/site-packages"
PYTHON = "/usr/lib/python3.11"
TOY = Path(toy_engine.__file__)
LINES = TOY.read_text().splitlines()
YIELDS = next(n for n, text in enumerate(LINES, 1) if "os.sched_yield()" in text)
SPINS = Chain((CodeLine(str(TOY), YIELDS, "wait_for"),))


def shares(chain: Chain, slept: int) -> dict[HostClass, float]:
    samples = StackSamples()
    samples.samples = 100
    samples.count(chain, 100, 100, slept)
    account = account_of(samples, by_time=True)
    assert account is not None
    return {row.doing: row.share for row in account.rows}


@pytest.mark.parametrize(
    ("file", "function"),
    [
        (f"{PACKAGES}/vllm/v1/engine/core_client.py", "get_output"),
        (f"{PACKAGES}/zmq/sugar/socket.py", "recv_multipart"),
        (f"{PACKAGES}/ray/_private/worker.py", "get_objects"),
        (f"{PYTHON}/multiprocessing/connection.py", "_recv"),
    ],
)
def test_asleep_there_it_waits_for_another_process(file: str, function: str) -> None:
    leaf = CodeLine(file, 5, function)
    for frames in ((), (CodeLine("/job/generate.py", 5, "main"),)):
        assert shares(Chain(frames, leaf, leaf), 100) == {HostClass.PEER_WAIT: 1.0}
    # What runs there unpacks what has come.
    assert HostClass.PEER_WAIT not in shares(Chain((), leaf, leaf), 0)


def test_a_request_over_http_waits_for_its_server() -> None:
    leaf = CodeLine(f"{PYTHON}/socket.py", 700, "readinto")
    called = CodeLine(f"{PACKAGES}/requests/api.py", 115, "post")
    line = CodeLine("/job/rollout.py", 5, "ask")
    assert shares(Chain((line,), leaf, called), 100) == {HostClass.PEER_WAIT: 1.0}


def test_an_idle_scheduler_that_turns_works_at_nothing() -> None:
    leaf = CodeLine(f"{PACKAGES}/sglang/srt/managers/scheduler.py", 5, "self_check_during_idle")
    assert shares(Chain((), leaf, leaf), 0) == {HostClass.PEER_WAIT: 1.0}


@pytest.mark.parametrize("slept", [0, 100])
def test_who_spins_works_at_nothing(slept: int) -> None:
    leaf = CodeLine(
        f"{PACKAGES}/vllm/distributed/device_communicators/shm_broadcast.py", 5, "acquire_read"
    )
    assert shares(Chain((), leaf, leaf), slept) == {HostClass.PEER_WAIT: 1.0}
    assert shares(SPINS, slept) == {HostClass.PEER_WAIT: 1.0}


def test_a_loader_that_waits_for_its_workers_stays_a_loader() -> None:
    leaf = CodeLine(f"{PYTHON}/multiprocessing/connection.py", 5, "poll")
    called = CodeLine(f"{PACKAGES}/torch/utils/data/dataloader.py", 5, "__next__")
    line = CodeLine("/job/train.py", 5, "main")
    assert shares(Chain((line,), leaf, called), 100) == {HostClass.LOADER: 1.0}


def test_such_a_wait_is_never_compute() -> None:
    for meaning in (ON_THIS_THREAD, ON_OTHER_THREADS):
        assert meaning[HostClass.PEER_WAIT] is Slice.IDLE_OTHER_PROCESS
