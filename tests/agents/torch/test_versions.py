"""Another version of torch: what it lacks turns one part off, with a reason, and no other."""

from __future__ import annotations

import operator
import sys
from typing import Any

import pytest

from tests.agents.torch.inside import Observed, probe
from whyidle.agents import wire
from whyidle.agents.torch.probe import TorchProbe

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

# What each part relies on: the module, the path in it, and the parts that go.
RELIED_ON = [
    ("torch.optim.optimizer", "_global_optimizer_pre_hooks", "optimizer steps"),
    ("torch.optim.optimizer", "_global_optimizer_post_hooks", "optimizer steps"),
    ("torch.profiler.profiler", "profile", "profiler steps"),
    ("torch.profiler.profiler", "profile.step", "profiler steps"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "loader waits"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter.__next__", "loader waits"),
    ("torch", "Tensor", "padding, reads, parameters, optimizers"),
    ("torch._C", "TensorBase", "reads"),
    ("torch._C", "is_anomaly_enabled", "debugging modes"),
    ("torch.amp.autocast_mode", "autocast", "autocast"),
    ("torch.amp.autocast_mode", "autocast.__enter__", "autocast"),
    ("torch.cuda", "_initialized", "CUDA memory"),
    ("torch.cuda", "_is_in_bad_fork", "CUDA memory"),
    ("torch.distributed.distributed_c10d", "_world", "torch.distributed"),
    ("torch.distributed.distributed_c10d", "_world._default_pg", "torch.distributed"),
    ("torch._C", "DisableTorchFunctionSubclass", "padding, parameters, optimizers"),
    ("torch._C", "DisableTorchFunction", "padding"),
    ("ctypes", "_string_at", "padding"),
]
# What every part relies on that replaces something of the job's.
COMPILER = ["set_code_exec_strategy", "_FrameAction", "_FrameAction.SKIP", "_FrameExecStrategy"]
PATCHING = {
    "optimizer steps", "profiler steps", "loader waits", "padding", "reads", "autocast",
}  # fmt: skip
MODULES = sorted({module for module, _, _ in RELIED_ON if "." in module} - {"torch._C"})


def parts_on(observed: Observed) -> set[str]:
    return {part.name for part in observed.probe._on}


def take_away(monkeypatch: pytest.MonkeyPatch, module: str, path: str) -> None:
    *way, name = path.split(".")
    owner = sys.modules[module]
    for step in way:
        owner = getattr(owner, step)
    monkeypatch.delattr(owner, name)


@pytest.mark.parametrize(("module", "path", "part"), RELIED_ON)
def test_what_is_missing_turns_its_part_off(
    module: str, path: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        observed = Observed()
        take_away(patch, module, path)
        try:
            observed.begin()
            observed.second()
        finally:
            observed.context.hooks.undo()
        assert observed.said == [f"no {each}: no {module}.{path}" for each in part.split(", ")]


@pytest.mark.parametrize("path", COMPILER)
def test_where_the_compiler_cannot_be_told_nothing_is_put_in_its_way(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        observed = Observed()
        name, _, deeper = path.partition(".")
        place = sys.modules["torch._C._dynamo.eval_frame"]
        # What is deeper is part of C, and cannot be removed: the stand-in lacks it.
        patch.delattr(place, name)
        if deeper:
            patch.setattr(place, name, object(), raising=False)
        try:
            observed.begin()
            observed.second()
            assert {kind.name for kind in TorchProbe.parts} - parts_on(observed) == PATCHING
        finally:
            observed.context.hooks.undo()
        assert set(observed.said) == {
            f"no {part}: no torch._C._dynamo.eval_frame.{path}" for part in PATCHING
        }


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_is_elsewhere_turns_off_no_more(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {kind.name for kind in TorchProbe.parts}
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, module)
        with probe() as observed:
            observed.second()
            gone = everything - parts_on(observed)
        assert gone <= {part for where, _, part in RELIED_ON if where == module}
        assert all(said.startswith("no ") for said in observed.said)


def test_nothing_is_missing_in_this_version() -> None:
    with probe() as observed:
        observed.second()
        assert parts_on(observed) == {kind.name for kind in TorchProbe.parts}
        assert observed.said == []


@pytest.mark.parametrize("kept", [[], {}])
def test_hooks_that_are_kept_in_another_way_are_left_alone(
    kept: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = sys.modules["torch.optim.optimizer"]
    monkeypatch.setattr(hooks, "_global_optimizer_post_hooks", kept)
    with probe() as observed:
        why = "torch.optim.optimizer keeps its hooks in another way"
        assert observed.said == [f"no optimizer steps: {why}"]
        assert not hooks._global_optimizer_pre_hooks


def test_methods_that_somebody_replaced_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def item(self: object) -> str:
        return "theirs"

    monkeypatch.setattr(torch.Tensor, "item", item)
    with probe() as observed:
        assert torch.ones(()).item() == "theirs"
        assert vars(torch.Tensor)["item"] is item
        assert bool(torch.ones(()))
        assert observed.second()[wire.SYNCS] == 1


STATS = {
    "num_alloc_retries": 2,
    "num_ooms": 1,
    "allocated_bytes": {"all": {"current": 100, "peak": 150}, "small_pool": {}},
    "reserved_bytes": {"all": {"current": 200, "peak": 250}},
    "inactive_split_bytes": {"all": {"current": 30, "peak": 40}},
}
IDLE: dict[str, Any] = {
    "num_alloc_retries": 0,
    "num_ooms": 0,
    "allocated_bytes": {"all": {"current": 0, "peak": 0}},
    "reserved_bytes": {"all": {"current": 0, "peak": 0}},
    "inactive_split_bytes": {"all": {"current": 0, "peak": 0}},
}


def with_cuda(monkeypatch: pytest.MonkeyPatch, *, initialized: bool, asked: list[int]) -> None:
    def stats(device: int) -> dict[str, Any]:
        asked.append(device)
        return STATS if device < 2 else IDLE

    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 4, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", stats, raising=False)
    monkeypatch.setattr(torch.cuda, "_initialized", initialized)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)


def test_the_allocators_of_all_devices_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    with_cuda(monkeypatch, initialized=True, asked=asked)
    with probe() as observed:
        for _ in range(9):
            found = observed.second()
        assert [found[name] for name in (wire.POOL_USED_BYTES, wire.POOL_PEAK_BYTES)] == [200, 300]
        assert [found[name] for name in (wire.POOL_RESERVED_BYTES, wire.POOL_SPLIT_BYTES)] == [
            400, 60
        ]  # fmt: skip
        assert (found[wire.ALLOC_RETRIES], found[wire.ALLOC_OOMS]) == (4, 2)
        assert (observed.state()["devices"], observed.state()["devices_used"]) == (4, 2)
        # Devices without memory statistics are queried seldom.
        assert [operator.countOf(asked, device) for device in range(4)] == [9, 9, 1, 1]


def test_a_figure_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cuda(monkeypatch, initialized=True, asked=[])
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", lambda _device: {"num_ooms": 3, "new": 1})
    with probe() as observed:
        found = observed.second()
        assert found[wire.ALLOC_OOMS] == 12
        assert wire.POOL_USED_BYTES not in found


def test_cuda_that_is_not_initialised_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    with_cuda(monkeypatch, initialized=False, asked=asked)
    with probe() as observed:
        found = observed.second()
        assert wire.POOL_USED_BYTES not in found
        assert observed.state()["cuda_initialized"] is False
    assert asked == []
