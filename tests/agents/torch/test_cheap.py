"""What keeps the hooks cheap changes nothing of what they tell."""

from __future__ import annotations

from _thread import get_ident

import pytest

from tests.agents.torch.inside import probe
from whyidle.agents import wire
from whyidle.agents.duties import Duties
from whyidle.agents.room import Room
from whyidle.agents.torch import steps as steps_module
from whyidle.agents.torch.loaders import LoaderWaits
from whyidle.agents.torch.reads import MANY, ONE_IN

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
    part._taken.extend((other, 100, 4, other, 10, -1))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 1, wire.LOADER_WAIT_NS: 110, wire.SAMPLES: 4
    }  # fmt: skip
    part._taken.extend((other, 1000, 4, main, 5, 4, other, 7, 4, main, 6, 4))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 5, wire.LOADER_WAIT_NS: 1121, wire.SAMPLES: 20
    }  # fmt: skip
    part._taken.extend((other, 9, 4, main, 1, 0))
    assert part.second(0) == {
        wire.LOADER_BATCHES: 7, wire.LOADER_WAIT_NS: 1122, wire.SAMPLES: None
    }  # fmt: skip
