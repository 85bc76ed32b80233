"""A dict that a thread is iterating over changes only where that thread does not notice."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from tests.agents.torch.inside import TRAINING, probe, run
from whyidle.agents import wire
from whyidle.agents.torch import steps as steps_module
from whyidle.agents.torch.live_dict import add, remove

torch = pytest.importorskip("torch")
optimizers = sys.modules["torch.optim.optimizer"]


def hooks() -> tuple[int, int]:
    """Return how many there are before and after a step; a kept reference would show."""
    before, after = (len(vars(optimizers)[name]) for name in steps_module.PLACES)
    return before, after


def going(number: int) -> tuple[dict[str, Any], Any]:
    """Return a dict of so many items, and an iterator that is at the first."""
    names = {"hooks": OrderedDict((key, str(key)) for key in range(number))}
    through = iter(names["hooks"].values())
    next(through, None)
    return names, through


@pytest.mark.parametrize("number", [0, 1])
def test_the_last_one_may_be_followed_by_another(number: int) -> None:
    names, through = going(number)
    assert add(names, "hooks", -1, "ours")
    assert list(through) == []
    assert list(names["hooks"])[-1] == -1


def test_nothing_is_added_while_somebody_goes_through_several() -> None:
    names, through = going(2)
    assert not add(names, "hooks", -1, "ours")
    assert list(through) == ["1"]
    del through
    assert add(names, "hooks", -1, "ours")


def test_nothing_is_removed_while_somebody_goes_through_several() -> None:
    names, through = going(2)
    assert not remove(names, "hooks", 1)
    assert list(through) == ["1"]
    del through
    assert remove(names, "hooks", 1)
    assert list(names["hooks"]) == [0]


def test_the_only_one_is_removed_under_who_has_it() -> None:
    names, through = going(1)
    assert remove(names, "hooks", 0)
    assert list(through) == []


@pytest.fixture
def optimizer() -> Any:
    """Return an optimizer that can step."""
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    return torch.optim.SGD([parameter], lr=0.1)


def test_a_probe_that_comes_while_a_step_goes_through_hooks_waits(optimizer: Any) -> None:
    coming: list[Any] = []

    def meanwhile(*_: object) -> None:
        if not coming:
            coming.append(probe())
            coming.append(coming[0].__enter__())
            coming[1].second()

    handles = [optimizers.register_optimizer_step_post_hook(meanwhile) for _ in range(2)]
    try:
        optimizer.step()
        context, observed = coming
        assert hooks() == (0, 2)
        observed.second()
        assert hooks() == (1, 3)
        optimizer.step()
        assert observed.second()[wire.OPTIMIZER_STEPS] == 1
        context.__exit__(None, None, None)
        assert hooks() == (0, 2)
    finally:
        for handle in handles:
            handle.remove()


def test_a_probe_that_never_finds_a_moment_says_so() -> None:
    handles = [optimizers.register_optimizer_step_post_hook(print) for _ in range(2)]
    try:
        through = iter(vars(optimizers)[steps_module.PLACES[1]].values())
        with probe() as observed:
            for _ in range(steps_module.MOST_TRIES + 2):
                observed.second()
            why = "the job is inside of hooks of its own whenever we look"
            assert observed.said == [f"no optimizer steps: {why}"]
        assert len(list(through)) == 2
    finally:
        for handle in handles:
            handle.remove()


def test_a_probe_that_goes_while_a_step_goes_through_hooks_rests(optimizer: Any) -> None:
    gone: list[int] = []
    context = probe()
    observed = context.__enter__()

    def meanwhile(*_: object) -> None:
        if not gone:
            gone.append(1)
            context.__exit__(None, None, None)

    handles = [optimizers.register_optimizer_step_post_hook(meanwhile) for _ in range(2)]
    try:
        # Ours is the first of three: a step is at the second when it goes.
        optimizer.step()
        assert hooks() == (0, 3)
        optimizer.step()
        assert observed.second() == {}
        with probe() as again:
            optimizer.step()
            assert hooks() == (1, 3)
            assert again.second()[wire.OPTIMIZER_STEPS] == 1
    finally:
        for handle in handles:
            handle.remove()
        vars(optimizers)[steps_module.PLACES[1]].clear()


SLOW = """
def slow(*_): time.sleep(0.2)
def other(*_): pass
def theirs():
    for each in (slow, other): hooks.register_optimizer_step_post_hook(each)
if BEFORE: theirs()
core = start(grace=1.5); until(reachable)
if not BEFORE:
    until(lambda: hooks._global_optimizer_pre_hooks)
    theirs()
def steps():
    train(*data[:16])
    return not core.alive()
until(steps, 40)
train(*data[:16])
"""


@pytest.mark.parametrize("before", [True, False])
def test_steps_with_slow_hooks_of_the_jobs_own_go_on(tmp_path: Path, *, before: bool) -> None:
    run(TRAINING + SLOW.replace("BEFORE", str(before)), tmp_path)
