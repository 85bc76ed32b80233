"""What keeps the hooks cheap changes nothing of what they tell."""

from __future__ import annotations

import time
from _thread import get_ident
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.torch.inside import probe
from whyidle.agents import thinning, wire
from whyidle.agents.duties import Duties
from whyidle.agents.room import Room
from whyidle.agents.torch import steps as steps_module
from whyidle.agents.torch.loaders import FIRST, LoaderWaits
from whyidle.agents.torch.read_hooks import MANY, ONE_IN
from whyidle.agents.torch.reads import Reads

torch = pytest.importorskip("torch")


def test_a_step_in_whose_middle_the_hooks_came_is_not_counted() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with probe() as told:
        # As it is when only the end of a step is heard.
        unheard = optimizer.register_step_pre_hook(lambda *_: steps_module.inside.clear())
        optimizer.step()
        unheard.remove()
        found = told.second()
        assert (found[wire.OPTIMIZER_STEPS], found[wire.OPTIMIZER_NS]) == (0, 0)
        optimizer.step()
        found = told.second()
        assert found[wire.OPTIMIZER_STEPS] == 1
        assert (found[wire.OPTIMIZER_NS] or 0) > 0


def test_many_reads_tell_less_often_where_before_anybody_looks() -> None:
    one = torch.tensor(1.5)
    with probe() as told:
        number = MANY + 50 * ONE_IN
        for _ in range(number):
            one.item()
        assert told.second()[wire.SYNCS] == number
        while not (told_of := [record for record in told.records if record[0] == "reads"]):
            told.second()
        (row,) = told_of[0][3]
        assert abs(row[0] - number) <= ONE_IN + 1


def test_waits_of_other_threads_count_until_the_main_one_waits() -> None:
    main, other = get_ident(), -5
    part = LoaderWaits(Room(Duties(), lambda _: None, lambda _: None, main))
    part._taken.extend((other, 1, 100, 4, other, 2, 10, -1))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 1, wire.LOADER_WAIT_NS: 110, wire.SAMPLES: 4
    }  # fmt: skip
    part._taken.extend((other, 3, 1000, 4, main, 4, 5, 4, other, 3, 7, 4, main, 10, 6, 4))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 5, wire.LOADER_WAIT_NS: 1121, wire.SAMPLES: 20
    }  # fmt: skip
    part._taken.extend((other, 5, 9, 4, main, 20, 1, 0))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 7, wire.LOADER_WAIT_NS: 1122, wire.SAMPLES: None
    }  # fmt: skip


def test_of_very_many_reads_some_are_looked_at_and_stand_for_all() -> None:
    one = torch.tensor(1.5)
    assert Reads(Room(Duties(), lambda _: None, lambda _: None, None)).facts() == {}
    with probe() as told:
        number = 20 * thinning.ROUND
        for _ in range(number):
            one.item()
        # All of those were looked at: nobody knew that there would be so many.
        assert told.second()[wire.SYNCS] == number
        for _ in range(number):
            one.item()
        found = told.second()
        assert abs((found[wire.SYNCS] or 0) - 2 * number) <= 2
        assert (found[wire.SYNC_NS] or 0) > 0
        while not (told_of := [record for record in told.records if record[0] == "reads"]):
            found = told.second()
        assert found[wire.SYNCS] == pytest.approx(2 * number, abs=2)
        counted = sum(row[0] for record in told_of for row in record[3])
        assert counted == pytest.approx(2 * number, rel=0.1)
        shares = {record[3].get("timed_reads") for record in told.records if record[0] == "state"}
        assert round(thinning.SOME / thinning.ROUND, 3) in shares
        assert all(type(each) is int for record in told_of for row in record[3] for each in row[:2])


def test_of_very_many_batches_some_are_looked_at_and_the_first_of_each_iterator() -> None:
    length = 4 * thinning.ROUND
    loader = torch.utils.data.DataLoader(range(length), batch_size=None)
    with probe() as told:
        assert len(list(loader)) == length
        first = told.second()
        assert first[wire.LOADER_BATCHES] == length
        for _ in range(5):
            assert len(list(loader)) == length
        found = told.second()
        assert found[wire.LOADER_BATCHES] == pytest.approx(6 * length, rel=0.02)
        assert found[wire.LOADER_WAIT_NS] == pytest.approx(
            6 * (first[wire.LOADER_WAIT_NS] or 0), rel=0.9
        )


def test_a_long_wait_for_the_first_batch_counts_once_however_many_come_after() -> None:
    part = LoaderWaits(Room(Duties(), lambda _: None, lambda _: None, get_ident()))
    part._taken.extend((get_ident(), 0, 5_000, FIRST - 4))
    for number in range(2 * thinning.MANY):
        part._taken.extend((get_ident(), 6_000 + 10 * number, 10, 4))
        part._thinning.number()
    assert part._thinning.number() == 2 * thinning.MANY
    found = part.second(time.monotonic_ns())
    assert part._thinning.is_on
    assert found[wire.LOADER_WAIT_NS] == 5_000 + 20 * thinning.MANY
    # Of the next second one first batch and a tenth of the others are seen.
    part._taken.extend((get_ident(), 90_000, 7_000, FIRST - 4))
    for number in range(2 * thinning.MANY):
        part._thinning.number()
        if not number % 10:
            part._taken.extend((get_ident(), 100_000 + number, 10, 4))
    part._thinning.number()
    before, found = found, part.second(time.monotonic_ns())
    added = {name: (found[name] or 0) - (before[name] or 0) for name in found}
    assert added == {
        wire.LOADER_BATCHES: 1 + 2 * thinning.MANY,
        wire.LOADER_WAIT_NS: 7_000 + 20 * thinning.MANY,
        wire.SAMPLES: 4 * (1 + 2 * thinning.MANY),
    }


def test_a_loader_that_feeds_another_has_its_wait_told_once() -> None:
    part = LoaderWaits(Room(Duties(), lambda _: None, lambda _: None, get_ident()))
    main, other = get_ident(), -5
    # Two inside of the first, of which one was told a second ago; another thread is no matter.
    part._taken.extend((main, 1_000, 100, 4))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 1, wire.LOADER_WAIT_NS: 100, wire.SAMPLES: 4
    }  # fmt: skip
    part._taken.extend((other, 400, 50, 4, main, 1_200, 200, 4, main, 900, 700, 4))
    found = part.second(0)
    assert found[wire.LOADER_WAIT_NS] == 700
    assert found[wire.SAMPLES] is None
    part._taken.extend((main, 2_000, 30, 4))
    assert part.second(0)[wire.LOADER_WAIT_NS] == 730


def test_a_live_loader_over_a_loader_waits_once() -> None:
    class Slow(torch.utils.data.Dataset):  # type: ignore[type-arg,name-defined,misc,unused-ignore]
        def __len__(self) -> int:
            return 8

        def __getitem__(self, _index: int) -> int:
            time.sleep(0.005)
            return 1

    class Fed(torch.utils.data.IterableDataset):  # type: ignore[type-arg,name-defined,misc,unused-ignore]
        def __iter__(self) -> Iterator[Any]:
            return iter(torch.utils.data.DataLoader(Slow(), batch_size=2))

    with probe(get_ident()) as told:
        began = time.monotonic_ns()
        assert len(list(torch.utils.data.DataLoader(Fed(), batch_size=None))) == 4
        took = time.monotonic_ns() - began
        found = told.second()
    assert 40_000_000 <= (found[wire.LOADER_WAIT_NS] or 0) <= took
    assert found[wire.SAMPLES] is None
