"""With the reads being counted, everything else about a tensor is as it was."""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import pickle
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tests.agents.torch.inside import Observed, probe
from whyidle.agents import wire
from whyidle.agents.torch import reads as reads_module
from whyidle.agents.torch.read_hooks import IMPLICIT
from whyidle.agents.torch.reads import METHODS

torch = pytest.importorskip("torch")
NAMES = list(METHODS)


def count(observed: Observed) -> int:
    found = observed.second()[wire.SYNCS]
    assert found is not None
    return found


def test_each_way_to_read_a_value_is_counted_and_timed() -> None:
    one = torch.tensor(1.5)
    with probe() as observed:
        ways: list[Callable[[], Any]] = [
            one.item, one.tolist, one.cpu, lambda: bool(one), lambda: float(one), lambda: int(one)
        ]  # fmt: skip
        for number, way in enumerate(ways, 1):
            way()
            assert count(observed) == number
        assert (one.item(), one.tolist(), bool(one), float(one), int(one)) == (
            1.5,
            1.5,
            True,
            1.5,
            1,
        )
        assert 0 < (observed.second()[wire.SYNC_NS] or 0) < 10**10


def test_what_an_optimizer_reads_of_its_own_is_not_counted() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.Adam([parameter], foreach=False)
    with probe() as observed:
        before = count(observed)
        for _ in range(5):
            parameter.sum().backward()
            optimizer.step()
        assert count(observed) == before
        parameter.detach().sum().item()
        assert count(observed) == before + 1


def by_itself(optimizer: Any, closure: Callable[[], Any]) -> None:
    optimizer.step(closure)


def by_name(optimizer: Any, closure: Callable[[], Any]) -> None:
    optimizer.step(closure=closure)


class Model:
    """Something that can be called, as Lightning has it."""

    def __init__(self, closure: Callable[[], Any]) -> None:
        self.closure = closure

    def __call__(self) -> Any:
        return self.closure()


@pytest.mark.parametrize("steps", [by_itself, by_name, lambda o, c: o.step(Model(c))])
@pytest.mark.parametrize("kind", ["Adam", "SGD", "LBFGS"])
def test_what_a_closure_reads_within_a_step_is_the_jobs_own(
    steps: Callable[[Any, Any], None], kind: str
) -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    options = {"max_iter": 1} if kind == "LBFGS" else {"foreach": False}
    optimizer = getattr(torch.optim, kind)([parameter], lr=0.1, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = parameter.sum()
        loss.backward()
        # In this case Adam reads its own number of steps, too.
        losses.append(loss.item())
        return loss

    losses: list[float] = []
    with probe() as observed:
        before = count(observed)
        for _ in range(5):
            steps(optimizer, closure)
        found = observed.second()
        assert (found[wire.SYNCS], found[wire.OPTIMIZER_STEPS]) == (before + len(losses), 5)
        # How long the model takes is not what the optimizer takes.
        assert found[wire.OPTIMIZER_NS] is None
        assert len(losses) >= 5


def test_beside_steps_with_a_closure_the_others_are_timed() -> None:
    one, other = (torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=0.1) for _ in range(2))
    with probe() as observed:
        for _ in range(3):
            one.step(lambda: time.sleep(0.05))
            other.step()
            other.step(closure=None)
        found = observed.second()
        assert found[wire.OPTIMIZER_STEPS] == 9
        assert 0 < (found[wire.OPTIMIZER_NS] or 0) < 50_000_000


def test_the_lines_that_read_values_are_recorded() -> None:
    one = torch.tensor(1.5)
    with probe() as observed:
        for _ in range(3):
            one.item()
        while not [r for r in observed.records if r[0] == "reads"]:
            observed.second()
        (kind, [[number, ns, frame]]) = next(r[2:] for r in observed.records if r[0] == "reads")
        assert (kind, number) == ("item", 3)
        assert ns > 0
        assert frame[0] == __file__
        assert frame[2] == "test_the_lines_that_read_values_are_recorded"


def test_of_many_reads_few_are_located_and_stand_for_all() -> None:
    one = torch.tensor(1.5)
    with probe() as observed:
        for _ in range(4):
            for _ in range(800):
                one.item()
            observed.second()
        observed.second()
        (_, [[number, _, _]]) = next(r[2:] for r in observed.records if r[0] == "reads")
        assert 0.9 * 3200 <= number <= 1.1 * 3200


def test_too_many_reads_end_the_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "SHARE", 0)
    one = torch.tensor(1.5)
    with probe() as observed:
        for _ in range(6):
            one.item()
            found = observed.second()
        assert any(said.startswith("no reads: counting ") for said in observed.said)
        assert wire.SYNCS not in found
        assert wire.OPTIMIZER_STEPS in found
        assert not [name for name in NAMES if name in vars(torch.Tensor)]


def test_too_many_reads_of_an_optimizer_end_the_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    optimizer = torch.optim.Adam([parameter], foreach=False)
    with probe() as observed:
        observed.second()
        monkeypatch.setattr(reads_module, "SHARE", 0)
        for _ in range(6):
            optimizer.step()
            observed.second()
        assert any(said.startswith("no reads: counting ") for said in observed.said)


@pytest.mark.parametrize("name", NAMES)
def test_the_class_shows_the_original(name: str) -> None:
    before = getattr(torch.Tensor, name)
    with probe():
        assert getattr(torch.Tensor, name) is before
        assert getattr(torch.nn.Parameter, name) is before
        assert name in vars(torch.Tensor)
        if name not in IMPLICIT:
            bound = getattr(torch.ones(()), name)
            assert bound.__name__ == name
            assert inspect.getdoc(bound) == inspect.getdoc(before)
    assert name not in vars(torch.Tensor)
    assert getattr(torch.Tensor, name) is before


def test_a_method_that_was_taken_hold_of_works_again_and_again() -> None:
    one = torch.tensor(1.5)
    with probe() as observed:
        held = [getattr(one, name) for name in NAMES]
        before = count(observed)
        found = [[way() for way in held] for _ in range(3)]
        assert found == [[1.5, 1.5, one, True, 1.5, 1]] * 3
        assert count(observed) == before + 3 * len(NAMES)


def warned_of(act: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return the warnings, and the file whose line was named as the cause."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            act()
        finally:
            torch.set_warn_always(False)
    return [(str(w.message), w.filename) for w in caught]


def test_a_warning_is_still_of_the_jobs_own_line() -> None:
    loss = torch.ones(1, requires_grad=True) * 2
    before = warned_of(lambda: float(loss))
    assert [file for _, file in before] == [__file__]
    with probe():
        assert warned_of(lambda: float(loss)) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_traced_read_is_warned_of_at_the_jobs_own_line(name: str) -> None:
    def read(x: Any) -> Any:
        getattr(x.sum(), name)()
        return x

    def act() -> Any:
        return torch.jit.trace(read, torch.ones(3), check_trace=False)

    before = warned_of(act)
    with probe():
        assert warned_of(act) == before


def test_where_torch_warns_of_each_read_they_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = [0]
    monkeypatch.setattr(torch._C, "_cuda_get_sync_debug_mode", lambda: mode[0], raising=False)
    one = torch.tensor(1.5)
    with probe() as observed:
        before = count(observed)
        one.item()
        mode[0] = 1
        assert one.item() == 1.5
        assert count(observed) == before + 1


class Loud(torch.Tensor):  # type: ignore[misc,name-defined]
    """A tensor subclass of the user's own, which sees what is done to it."""

    heard: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_class_of_the_users_own_is_handed_the_originals() -> None:
    def heard() -> list[Any]:
        loud = torch.ones(()).as_subclass(Loud)
        Loud.heard.clear()
        for name in NAMES:
            getattr(loud, name)()
        return list(Loud.heard)

    before = heard()
    with probe():
        during = heard()
    assert list(map(id, before)) == list(map(id, during))
    assert torch.Tensor.item in before


def test_a_mode_of_the_users_own_is_handed_the_originals() -> None:
    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[Any] = []

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.heard.append(func)
            return func(*args, **(kwargs or {}))

    def heard() -> list[Any]:
        one = torch.ones(())
        with Mode() as mode:
            one.item()
            bool(one)
            one.cpu()
        return mode.heard

    before = heard()
    with probe():
        assert heard() == before


def test_copies_and_pickles_are_the_same() -> None:
    one = torch.arange(4.0)
    with probe():
        assert torch.equal(copy.deepcopy(one), one)
        assert torch.equal(pickle.loads(pickle.dumps(one)), one)
        assert pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor
        assert pickle.loads(pickle.dumps(one.sum().item))() == 6.0
        assert pickle.loads(pickle.dumps(torch.nn.Parameter(one))).tolist() == [0, 1, 2, 3]


def test_refusals_are_the_same() -> None:
    def refusal(act: Callable[[], Any]) -> tuple[type, str]:
        with pytest.raises((RuntimeError, TypeError, ValueError)) as caught:
            act()
        return caught.type, str(caught.value)

    acts: list[Callable[[], Any]] = [
        torch.ones(3).item,
        lambda: bool(torch.ones(3)),
        lambda: float(torch.ones(3)),
        lambda: torch.ones(()).item(1),
        lambda: torch.ones(()).tolist(a=1),
        lambda: torch.vmap(lambda x: x.item())(torch.ones(3)),
        lambda: torch.vmap(lambda x: x if x > 0 else -x)(torch.ones(3)),
        lambda: torch.ones((), device="meta").item(),
        lambda: operator.index(torch.tensor(1.5)),
    ]
    before = [refusal(act) for act in acts]
    with probe():
        assert [refusal(act) for act in acts] == before


def test_derivatives_by_functions_are_the_same() -> None:
    def act() -> list[Any]:
        square = torch.func.grad(lambda x: (x**2).sum())(torch.ones(3))
        mapped = torch.vmap(lambda x: x.cpu() * 2)(torch.ones(3))
        return [
            square.tolist(),
            mapped.tolist(),
            torch.func.jacrev(torch.sin)(torch.ones(2)).tolist(),
        ]

    before = act()
    with probe():
        assert act() == before


def branchy(x: Any) -> Any:
    if x.sum() > 0:
        return x * x.sum().item()
    return x - float(x.max())


def test_a_traced_function_is_the_same() -> None:
    def act() -> tuple[str, list[Any]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # Deprecated, and used.
            traced = torch.jit.trace(branchy, torch.ones(3))
        observed = sorted(str(w.message).partition("\n")[0] for w in caught)
        return traced.code + "\n".join(observed), traced(torch.ones(3)).tolist()

    before = act()
    with probe():
        assert act() == before


SCRIPT = """
def f(x: Tensor) -> float:
    if bool(x.sum() > 0):
        return float(x.sum().item())
    return float(x.max())
"""


def test_a_scripted_function_is_the_same() -> None:
    def act() -> tuple[str, float]:
        unit = torch.jit.CompilationUnit(SCRIPT)
        return unit.f.code, unit.f(torch.ones(3))

    before = act()
    with probe():
        assert act() == before


def test_tensors_without_values_are_the_same() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

    def act() -> list[Any]:
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(torch.ones(3))
            refused: list[Any] = []
            for way in (lambda: fake.sum().item(), lambda: bool(fake.sum() > 0), fake.tolist):
                with contextlib.suppress(Exception):
                    way()
                    refused.append(None)
            found = [tuple(fake.cpu().shape), len(refused)]
        graph = make_fx(lambda x: x.sin().cpu() * 2)(torch.ones(3))
        return [*found, graph.code]

    before = act()
    with probe():
        assert act() == before


def test_a_default_device_is_the_same() -> None:
    torch.set_default_device("cpu")
    try:
        with probe() as observed:
            before = count(observed)
            assert torch.ones(()).item() == 1.0
            assert count(observed) > before
    finally:
        torch.set_default_device(None)


def test_waiting_for_a_gpu_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait() -> None:
        time.sleep(0.002)

    def of_event(_event: object) -> None:
        time.sleep(0.002)

    monkeypatch.setattr(torch._C, "_cuda_synchronize", wait, raising=False)
    monkeypatch.setattr(torch.cuda.streams.Event, "synchronize", of_event)
    with probe() as observed:
        before = observed.second()
        torch._C._cuda_synchronize()
        torch.cuda.streams.Event.synchronize(object())
        after = observed.second()
        assert after[wire.SYNCS] == (before[wire.SYNCS] or 0) + 2
        assert (after[wire.SYNC_NS] or 0) - (before[wire.SYNC_NS] or 0) >= 4_000_000
    assert torch._C._cuda_synchronize is wait
    assert torch.cuda.streams.Event.synchronize is of_event
