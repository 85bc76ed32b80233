"""What the agent says of the optimizers: how each goes through its parameters, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.agents.torch.inside import probe

torch = pytest.importorskip("torch")


def said(*optimizers: Any) -> list[dict[str, Any]]:
    """Let each step once, and return what the probe says of them."""
    with probe() as observed:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for each in group["params"]:
                    each.grad = torch.ones_like(each)
            optimizer.step()
        observed.second()
        assert observed.said == []
        found: list[dict[str, Any]] = observed.state().get("optimizers", [])
        return found


def parameters(number: int) -> list[Any]:
    return [torch.nn.Parameter(torch.ones(3)) for _ in range(number)]


@pytest.mark.parametrize(
    ("make", "foreach", "fused"),
    [
        (torch.optim.AdamW, None, None),
        (lambda them: torch.optim.AdamW(them, foreach=False), False, None),
        (lambda them: torch.optim.SGD(them, foreach=True), True, None),
        (lambda them: torch.optim.Adam(them, fused=True), None, True),
        # It has one of the flags only.
        (lambda them: torch.optim.RMSprop(them, foreach=False), False, "absent"),
    ],
)
def test_the_flags_are_those_of_the_groups(
    make: Callable[[Any], Any], foreach: object, fused: object
) -> None:
    (found,) = said(optimizer := make(parameters(3)))
    assert found["kind"] == type(optimizer).__name__
    assert (found["of_torch"], found["tensors"]) == (True, 3)
    assert (found["foreach"], found["fused"]) == (foreach, fused)
    assert found["device"] == "cpu"


def test_the_largest_group_speaks_and_its_state_says_where_it_lies() -> None:
    few, many = parameters(1), parameters(4)
    groups = [{"params": few, "foreach": True}, {"params": many, "foreach": False}]
    (found,) = said(torch.optim.AdamW(groups))
    assert (found["tensors"], found["foreach"], found["state_device"]) == (5, False, "cpu")


def test_one_without_a_state_has_no_place_for_it() -> None:
    (found,) = said(torch.optim.SGD(parameters(2)))
    assert found["state_device"] is None


def test_an_optimizer_of_the_users_own() -> None:
    class Mine(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.1})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for each in group["params"]:
                    each.data.sub_(each.grad, alpha=group["lr"])

    (found,) = said(Mine(parameters(2)))
    assert (found["kind"], found["of_torch"]) == ("Mine", False)
    assert (found["foreach"], found["fused"]) == ("absent", "absent")


def test_several_stand_the_largest_first() -> None:
    found = said(torch.optim.SGD(parameters(2)), torch.optim.AdamW(parameters(7)))
    assert [each["kind"] for each in found] == ["AdamW", "SGD"]


def test_nothing_of_the_users_runs_for_it() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, *_args: Any, **_more: Any) -> Any:
            raise AssertionError(function)

    class Shy:
        @property
        def __class__(self) -> Any:
            raise AssertionError

    optimizer = torch.optim.SGD(parameters(1), lr=0.1)
    with probe() as observed:
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        optimizer.step()
        optimizer.state[0] = {"loud": torch.ones(3).as_subclass(Loud), "shy": Shy(), "number": 1}
        observed.second()
        assert observed.said == []
        (found,) = observed.state()["optimizers"]
        assert found["state_device"] == "cpu"


@pytest.mark.parametrize("broken", [None, [], [{}], [{"params": ()}], [{"params": [object()]}]])
def test_groups_that_are_none(broken: Any) -> None:
    optimizer = torch.optim.SGD(parameters(1), lr=0.1)
    with probe() as observed:
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        optimizer.step()
        optimizer.param_groups = broken
        observed.second()
        assert observed.said == []
        assert observed.state().get("optimizers", [{"device": None}])[0]["device"] is None
