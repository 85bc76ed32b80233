"""What keeps the hooks cheap does not change what they report."""

from __future__ import annotations

import time
from _thread import get_ident
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.torch.inside import probe
from whyidle.agents import downsampling, wire
from whyidle.agents.context import ProbeContext
from whyidle.agents.leading import Leading
from whyidle.agents.timers import Timers
from whyidle.agents.torch import reads as reads_module
from whyidle.agents.torch import steps as steps_module
from whyidle.agents.torch.loaders import FIRST, LoaderWaits
from whyidle.agents.torch.loaders import LONG_NS as LONG_WAIT_NS
from whyidle.agents.torch.loaders import MANY as MANY_BATCHES
from whyidle.agents.torch.read_hooks import LONG_NS, MANY, ONE_IN
from whyidle.agents.torch.reads import VERY_MANY, Reads
from whyidle.agents.torch.stepped_optimizers import MOST_OPTIMIZERS, SteppedOptimizers, stepped

torch = pytest.importorskip("torch")


def test_a_step_in_whose_middle_the_hooks_came_is_not_counted() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with probe() as observed:
        # As when only the end of a step is noticed.
        unheard = optimizer.register_step_pre_hook(lambda *_: steps_module.inside.clear())
        optimizer.step()
        unheard.remove()
        found = observed.second()
        assert (found[wire.OPTIMIZER_STEPS], found[wire.OPTIMIZER_NS]) == (0, 0)
        optimizer.step()
        found = observed.second()
        assert found[wire.OPTIMIZER_STEPS] == 1
        assert (found[wire.OPTIMIZER_NS] or 0) > 0


def optimizer() -> Any:
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    return torch.optim.SGD([parameter], lr=0.1)


def test_an_optimizer_that_comes_later_is_met_too() -> None:
    first, later = optimizer(), optimizer()
    with probe() as observed:
        first.step()
        assert stepped.keys() == {id(first)}
        observed.second()
        # Nothing is checked now; a new optimizer is known by its steps.
        later.step()
        assert stepped.keys() == {id(first)}
        observed.second()
        later.step()
        assert stepped.keys() == {id(first), id(later)}
        observed.second()
        assert not stepped.unknown


def test_an_optimizer_that_steps_seldom_is_met_between_those_that_step_often() -> None:
    often, seldom = optimizer(), optimizer()
    with probe() as observed:
        for _ in range(2):
            often.step()
            observed.second()
            observed.second()
            seldom.step()
            observed.second()
        assert stepped.keys() == {id(often), id(seldom)}


def test_optimizers_that_went_before_they_were_met_are_forgotten() -> None:
    found = SteppedOptimizers()
    for key in range(10 * MOST_OPTIMIZERS):
        found.seen({key})
        assert found.unknown
    assert len(found._missing) <= MOST_OPTIMIZERS


def test_many_reads_are_located_less_often_within_the_first_second() -> None:
    one = torch.tensor(1.5)
    with probe() as observed:
        number = MANY + 50 * ONE_IN
        for _ in range(number):
            one.item()
        assert observed.second()[wire.SYNCS] == number
        while not (read_records := [record for record in observed.records if record[0] == "reads"]):
            observed.second()
        (row,) = read_records[0][3]
        assert abs(row[0] - number) <= ONE_IN + 1


def test_waits_of_other_threads_count_until_the_main_one_waits() -> None:
    main, other = get_ident(), -5
    part = LoaderWaits(ProbeContext(Timers(), lambda _: None, lambda _: None, main))
    part._taken.extend((other, 1, 100, 4, other, 2, 10, -1))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 1, wire.MOST_BATCHES: 1, wire.LOADER_WAIT_NS: 110, wire.SAMPLES: 4
    }  # fmt: skip
    part._taken.extend((other, 3, 1000, 4, main, 4, 5, 4, other, 3, 7, 4, main, 10, 6, 4))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 5, wire.MOST_BATCHES: 5, wire.LOADER_WAIT_NS: 1121, wire.SAMPLES: 20
    }  # fmt: skip
    part._taken.extend((other, 5, 9, 4, main, 20, 1, 0))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 7, wire.MOST_BATCHES: 7, wire.LOADER_WAIT_NS: 1122, wire.SAMPLES: None
    }  # fmt: skip


def test_of_very_many_reads_some_are_sampled_and_stand_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine makes some of them long, and then all would be sampled.
    monkeypatch.setattr(reads_module, "UNEVEN", 1.0)
    one = torch.tensor(1.5)
    number = 2 * VERY_MANY
    with probe() as observed:
        # All of those are sampled: it is not known yet that there will be so many.
        observed.second()
        for _ in range(number):
            one.item()
        assert observed.second()[wire.SYNCS] == number
        for _ in range(number):
            one.item()
        found = observed.second()
        assert found[wire.SYNCS] == pytest.approx(2 * number, rel=0.02)
        assert (found[wire.SYNC_NS] or 0) > 0
        while not (read_records := [record for record in observed.records if record[0] == "reads"]):
            observed.second()
        counted = sum(row[0] for record in read_records for row in record[3])
        assert counted == pytest.approx(2 * number, rel=0.1)
        assert observed.state()["timed_reads"] == round(downsampling.BURST / downsampling.ROUND, 3)
        assert all(
            type(each) is int for record in read_records for row in record[3] for each in row[:2]
        )


def test_to_ask_for_a_read_without_reading_is_no_read() -> None:
    one = torch.tensor(1.5)
    number = VERY_MANY
    with probe() as observed:
        observed.second()
        for _ in range(3):
            for _ in range(number):
                _ = hasattr(one, "item") and one.item()
            found = observed.second()
    assert found[wire.SYNCS] == pytest.approx(3 * number, rel=0.05)


def test_reads_of_which_few_are_long_are_all_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Reads(ProbeContext(Timers(), lambda _: None, lambda _: None, None))
    monkeypatch.setattr(part, "_check_cost", lambda *_: None)
    quick, long = 1_000, 50 * LONG_NS

    def second(*times: int) -> None:
        if part._downsampler.is_on:
            for _ in times:
                part._downsampler.number()
        part._took.extend(times)
        second.now += 1_000_000_000  # type: ignore[attr-defined]
        part.second(second.now)  # type: ignore[attr-defined]

    second.now = time.monotonic_ns()  # type: ignore[attr-defined]
    second(*[quick] * 2 * VERY_MANY)
    second(*[quick] * 2 * VERY_MANY)
    assert part._downsampler.is_on
    second(*[quick] * 2 * VERY_MANY, long)
    assert not part._downsampler.is_on


@pytest.mark.parametrize(("span", "one_in"), [(0.1, ONE_IN), (1.0, ONE_IN), (10.0, 1)])
def test_how_many_reads_are_located_depends_on_their_pace(span: float, one_in: int) -> None:
    part = Reads(ProbeContext(Timers(), lambda _: None, lambda _: None, None))
    now = part._last
    for _ in range(2):
        now += int(span * 1e9)
        # As many between two checks, however long that is.
        part._took.extend([1000] * 2 * MANY)
        part.second(now)
        assert part._one_in == [one_in]


def test_batches_that_come_fast_are_counted_by_some_of_them() -> None:
    length = 10 * downsampling.ROUND
    loader = torch.utils.data.DataLoader(range(length), batch_size=None)
    with probe(get_ident()) as observed:
        assert len(list(loader)) == length
        first = observed.second()
        assert first[wire.LOADER_BATCHES] == length
        for _ in range(5):
            assert len(list(loader)) == length
        found = observed.second()
        # Except for the ends of the data that were not seen.
        assert abs((found[wire.LOADER_BATCHES] or 0) - 6 * length) <= 5


def test_batches_of_the_loaders_that_give_most_are_told_from_all_others() -> None:
    with probe(get_ident()) as observed:
        for _ in range(3):
            # Made again for each pass, as many do.
            train = torch.utils.data.DataLoader(range(40), batch_size=4, shuffle=True)
            valid = torch.utils.data.DataLoader(range(12), batch_size=4)
            assert len([*train, *valid]) == 13
        found = observed.second()
        assert found[wire.SAMPLES] == 3 * 52
        assert found[wire.LOADER_BATCHES] == 39
        assert found[wire.MOST_BATCHES] == 30


def test_of_those_that_count_another_may_take_over() -> None:
    leading = Leading(0.93)
    for _ in range(30):
        before = leading.second({1: 100, 2: 20})
    assert before == 3000
    # The first has ended: what the other counts is missed until it has counted more lately.
    for _ in range(60):
        after = leading.second({2: 20})
    assert 3000 + 20 * 20 < after <= 3000 + 20 * 60
    # Many, each for a while, as a callback of each program that a sweep compiles.
    for who in range(500):
        last = leading.second({who: 50})
    assert last - after > 0.4 * 50 * 500


def test_long_waits_among_fast_batches_are_all_counted() -> None:
    length, pause = 2000, 0.02

    class Stalls(torch.utils.data.Dataset):  # type: ignore[type-arg,name-defined,misc,unused-ignore]
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: int) -> int:
            # Twice between the sampled ones, wherever these lie.
            if index in {700, 1200, 1500}:
                time.sleep(pause)
            return index

    loader = torch.utils.data.DataLoader(Stalls(), batch_size=None)
    with probe(get_ident()) as observed:
        list(loader)
        before = observed.second()[wire.LOADER_WAIT_NS] or 0
        list(loader)
        waited = (observed.second()[wire.LOADER_WAIT_NS] or 0) - before
    assert 3 * pause * 1e9 <= waited <= 3 * pause * 1e9 + 8 * length * 20_000


def test_a_first_batch_stands_for_itself_and_so_does_a_long_wait() -> None:
    part = LoaderWaits(ProbeContext(Timers(), lambda _: None, lambda _: None, get_ident()))
    main, now = get_ident(), time.monotonic_ns()
    for number in range(2 * MANY_BATCHES):
        part._taken.extend((main, 10 * number, 10, 4))
    found = part.second(now + 1_000_000_000)
    assert part._downsampler.is_on
    weight = downsampling.ROUND / downsampling.BURST
    part._taken.extend((main, 1_000_000, 7_000, FIRST - 4))
    part._taken.extend((main, 2_000_000, LONG_WAIT_NS + 1, 4))
    part._taken.extend((main, 3_000_000, 100, 4))
    for _ in range(12):
        part._downsampler.number()
    before, found = found, part.second(now + 2_000_000_000)
    added = {name: (found[name] or 0) - (before[name] or 0) for name in found}
    assert added == {
        # Each was asked for by its number, however many the sampled ones stand for.
        wire.LOADER_BATCHES: 12,
        wire.MOST_BATCHES: 12,
        wire.LOADER_WAIT_NS: 7_000 + LONG_WAIT_NS + 1 + round(100 * weight),
        wire.SAMPLES: 48,
    }


def test_a_loader_that_feeds_another_has_its_wait_counted_once() -> None:
    part = LoaderWaits(ProbeContext(Timers(), lambda _: None, lambda _: None, get_ident()))
    main, other = get_ident(), -5
    # Two inside of the first, one of them reported a second ago; another thread does not matter.
    part._taken.extend((main, 1_000, 100, 4))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 1, wire.MOST_BATCHES: 1, wire.LOADER_WAIT_NS: 100, wire.SAMPLES: 4
    }  # fmt: skip
    part._taken.extend((other, 400, 50, 4, main, 1_200, 200, 4, main, 900, 700, 4))
    found = part.second(0)
    assert found[wire.LOADER_WAIT_NS] == 700
    assert found[wire.SAMPLES] is None
    part._taken.extend((main, 2_000, 30, 4))
    assert part.second(0)[wire.LOADER_WAIT_NS] == 730
    # However fast they come: the outer wait would not know of an inner one that was not noted.
    for at in range(3_000, 3_000 + 2 * MANY_BATCHES):
        part._taken.extend((main, at, 0, 4))
    part.second(time.monotonic_ns() + 10_000_000_000)
    assert not part._downsampler.is_on


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

    with probe(get_ident()) as observed:
        began = time.monotonic_ns()
        assert len(list(torch.utils.data.DataLoader(Fed(), batch_size=None))) == 4
        took = time.monotonic_ns() - began
        found = observed.second()
    assert 40_000_000 <= (found[wire.LOADER_WAIT_NS] or 0) <= took
    assert found[wire.SAMPLES] is None
