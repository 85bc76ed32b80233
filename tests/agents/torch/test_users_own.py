"""Classes and modules of the user's own: none of their code runs because they are inspected."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agents.torch.inside import Observed, probe, run
from whyidle.agents import wire
from whyidle.agents.framework import Part
from whyidle.agents.torch import compiled_steps
from whyidle.agents.torch.introspect import attributes, class_name
from whyidle.agents.torch.model import Model
from whyidle.agents.torch.probe import TorchProbe

torch = pytest.importorskip("torch")


class AskedError(Exception):
    """Code of the user's own has run."""


class Nosy:
    """Notices each access to it."""

    def __getattribute__(self, name: str) -> Any:
        raise AskedError(name)


class Slotted:
    """Has no instance dict, and answers for every missing attribute."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = [[0], [1]]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.items)

    def __len__(self) -> int:
        return 2

    def __getattr__(self, name: str) -> Any:
        raise AskedError(name)


class Pretender:
    """Has something else for a dict."""

    @property
    def __dict__(self) -> Any:
        raise AskedError

    @property
    def __class__(self) -> Any:
        raise AskedError


def test_attributes_are_read_without_a_line_of_the_class() -> None:
    nosy = Nosy()
    object.__setattr__(nosy, "held", 1)
    assert attributes(nosy) == {"held": 1}
    for other in (Slotted(), Pretender(), 1, None):
        assert attributes(other) == {}
    assert class_name(Pretender) == "Pretender"


@pytest.mark.parametrize("sampler", [Slotted, Pretender])
def test_a_sampler_of_the_users_own_is_not_asked(sampler: type) -> None:
    batches = type("Batches", (sampler,), {"__iter__": lambda _: iter([[0], [1]])})()
    data = torch.utils.data.TensorDataset(torch.ones(8, 4))
    with probe() as observed:
        loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
        assert len(list(loader)) == 2
        found = observed.second()
        assert found[wire.LOADER_BATCHES] == 2
        assert found[wire.SAMPLES] is None


class Seen(torch.nn.Parameter):  # type: ignore[misc,name-defined]
    """A parameter whose attributes run code."""

    def numel(self) -> int:
        raise AskedError

    element_size = numel

    @property
    def dtype(self) -> Any:
        raise AskedError

    @property
    def device(self) -> Any:
        raise AskedError


class Wrapped(torch.Tensor):  # type: ignore[misc,name-defined]
    """A tensor whose size is computed by Python code."""

    asked: list[Any] = []  # noqa: RUF012  torch makes the class

    @staticmethod
    def __new__(cls: Any, like: Any) -> Any:
        policy = {"dispatch_sizes_strides_policy": "sizes", "requires_grad": True}
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, **policy)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return NotImplemented


class Stepping(torch.optim.SGD):  # type: ignore[misc,name-defined]
    """An optimizer that notices each read of its parameter groups."""

    threads: list[str] = []  # noqa: RUF012  torch makes the class

    def __getattribute__(self, name: str) -> Any:
        if name in {"__dict__", "param_groups"}:
            Stepping.threads.append(sys._getframe(1).f_code.co_name)
        return super().__getattribute__(name)


def complete_state(observed: Observed) -> dict[str, Any]:
    """Let it inspect the parameters until it has seen them all."""
    for _ in range(3):
        observed.second()
    while "dtypes" not in observed.state():
        observed.second()
    return observed.state()


def stepped(parameter: Any) -> Any:
    optimizer = Stepping([parameter], lr=0.1)
    optimizer.step()
    return optimizer


def test_a_parameter_of_the_users_own_class_is_counted_and_not_asked() -> None:
    with probe() as observed:
        optimizer = stepped(Seen(torch.ones(3)))
        state = complete_state(observed)
        assert (state["parameters"], state["parameter_bytes"]) == (3, 12)
        assert state["dtypes"] == {"float32": 3}
        assert observed.said == []
        assert not {"_groups", "second", "attributes"} & set(Stepping.threads)
    del optimizer


def test_a_tensor_that_would_see_the_look_is_left_out() -> None:
    with probe() as observed:
        optimizer = stepped(Wrapped(torch.ones(3)))
        Wrapped.asked.clear()
        state = complete_state(observed)
        assert Wrapped.asked == []
        assert "parameters" not in state
        assert observed.said == []
    del optimizer


def test_a_module_of_the_jobs_own_kind_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AskedError(name)

    monkeypatch.setitem(sys.modules, "lazy_of_the_job", Lazy("lazy_of_the_job"))
    monkeypatch.setattr(compiled_steps, "COMPILER", "torch")
    monkeypatch.setattr(compiled_steps, "_around", lambda: False)
    assert compiled_steps.step_is_compiled() is False


FUNCTION = """
import torch
def scripted(x: torch.Tensor):
    with torch.autocast("cpu", torch.bfloat16, True, True):
        return torch.mm(x, x)
"""
SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch
autocast = torch.amp.autocast_mode.autocast
plain = vars(autocast)["__enter__"]
# Its source must be a file.
with open(PARENT + "/scripted.py", "w") as file: file.write(FUNCTION)
sys.path.insert(0, PARENT)
from scripted import scripted
def works(): assert torch.jit.script(scripted)(torch.ones(2, 2)).dtype == torch.bfloat16
core = start(); until(reachable)
until(lambda: vars(autocast)["__enter__"] is not plain)
assert autocast.__enter__ is plain
works()
leave(); until(lambda: not core.alive())
assert vars(autocast)["__enter__"] is plain
works()
"""


def test_autocast_in_a_script_is_compiled_as_ever(tmp_path: Path) -> None:
    run(SCRIPT.replace("FUNCTION", repr(FUNCTION)), tmp_path)


def test_regions_of_all_classes_are_counted() -> None:
    with probe() as observed:
        before = observed.second()[wire.AUTOCASTS] or 0
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.amp.autocast("cpu"):
            pass
        with torch.autocast("cpu", enabled=False):
            pass
        assert torch.autocast("cpu")(lambda: 1)() == 1
        assert observed.second()[wire.AUTOCASTS] == before + 3


def test_a_python_without_its_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed()
    monkeypatch.setattr(sys, "abiflags", "t")
    why = observed.probe.begin()
    assert why == "it needs the GIL, and this Python was built without one"
    assert "item" not in vars(torch.Tensor)


def test_a_look_at_the_model_that_fails_ends_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AskedError

    monkeypatch.setattr(Model, "_sample", fails)
    observed = Observed()
    observed.context.main = _thread.get_ident()
    observed.begin()
    try:
        observed.timers.run(1 << 62)
        assert wire.OPTIMIZER_STEPS in observed.second()
        assert observed.said == ["no model: it failed: AskedError"]
        observed.timers.run(1 << 62)
    finally:
        observed.context.hooks.undo()


def test_a_part_that_cannot_be_made_ends_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Part):
        name = "broken part"

        def __init__(self, context: Any) -> None:
            raise AskedError(context)

    monkeypatch.setattr(TorchProbe, "parts", (Broken, *TorchProbe.parts))
    with probe() as observed:
        assert wire.OPTIMIZER_STEPS in observed.second()
        assert observed.said == ["no broken part: it failed: AskedError"]
