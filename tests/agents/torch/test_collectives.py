"""A rank that begins no collective any more says which one was its last; others say nothing."""

from __future__ import annotations

import threading
from _thread import get_ident
from collections.abc import Iterator
from pathlib import Path

import pytest

from whyidle.agents.context import ProbeContext
from whyidle.agents.timers import Timers
from whyidle.agents.torch import collectives
from whyidle.agents.torch.collectives import Collectives

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")


@pytest.fixture
def part() -> Collectives:
    found = Collectives(ProbeContext(Timers(), lambda _: None, lambda _: None, get_ident()))
    found.begin()
    return found


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_nothing_is_said_outside_of_a_group(part: Collectives) -> None:
    assert part.facts() == {}


@pytest.mark.usefixtures("group")
def test_the_last_one_is_said_once_none_was_begun_for_long(
    part: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist.all_reduce(torch.ones(3, 2))
    assert part.facts() == {"collective": None}
    assert part.facts() == {"collective": None}
    monkeypatch.setattr(collectives, "STANDS_NS", 0)
    dist.broadcast(torch.ones(5), 0)
    assert part.facts() == {"collective": None}
    last = part.facts()["collective"]
    assert last is not None
    assert last["name"] == "gloo:broadcast"
    assert last["sizes"] == [[5]]
    assert last["group"] == "default_pg"
    assert isinstance(last["number"], int)
    dist.all_reduce(torch.ones(1))
    assert part.facts() == {"collective": None}


@pytest.mark.usefixtures("group")
def test_all_of_them_are_asked_for_once_in_a_stall(
    part: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "STANDS_NS", 0)
    dist.all_reduce(torch.ones(1))
    asked: list[object] = []

    def last(recorder: object) -> dict[str, int]:
        asked.append(recorder)
        return {"number": 1}

    monkeypatch.setattr(collectives, "_last", last)
    for _ in range(5):
        part.facts()
    assert len(asked) == 1


@pytest.mark.usefixtures("group")
def test_a_torch_without_the_recorder_says_nothing(
    part: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (collectives.OF_NCCL, collectives.OF_OTHERS):
        monkeypatch.delattr(f"{collectives.RECORDER}.{name}", raising=False)
    assert part.facts() == {}


@pytest.mark.usefixtures("group")
def test_looking_while_others_exchange_changes_nothing(
    part: Collectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "STANDS_NS", 0)
    over, failed = threading.Event(), list[BaseException]()

    def look() -> None:
        try:
            while not over.is_set():
                part.facts()
        except BaseException as error:
            failed.append(error)
            raise

    looking = threading.Thread(target=look)
    looking.start()
    total = torch.zeros(64)
    for n in range(3000):
        each = torch.full((64,), float(n))
        dist.all_reduce(each)
        total += each
    over.set()
    looking.join()
    assert not failed
    assert total.tolist() == [sum(range(3000))] * 64
