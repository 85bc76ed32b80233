"""What is read of TensorFlow's context, where it does not answer everything."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whyidle.agents import wire
from whyidle.agents.tensorflow.internals import CONTEXT
from whyidle.agents.tensorflow.settings import Settings


class Context:
    """Of its two GPUs one belongs to another worker."""

    def __init__(self, *known: str) -> None:
        self._known = known
        self._logical_devices = [SimpleNamespace(device_type="GPU", name=n) for n in ("a", "b")]

    def get_memory_info(self, name: str) -> dict[str, int]:
        if name not in self._known:
            raise ValueError(name)
        return {"current": 3, "peak": 5}


@pytest.mark.parametrize(
    ("known", "used"),
    [
        (("a", "b"), {wire.POOL_USED_BYTES: 6, wire.POOL_PEAK_BYTES: 10}),
        (("a",), {wire.POOL_USED_BYTES: 3, wire.POOL_PEAK_BYTES: 5}),
        ((), {}),
    ],
)
def test_a_gpu_whose_memory_is_not_counted_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...], used: dict[str, int]
) -> None:
    module: Any = ModuleType(CONTEXT)
    module._context = Context(*known)
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    monkeypatch.setitem(sys.modules, CONTEXT, module)
    settings = Settings(SimpleNamespace())  # type: ignore[arg-type]
    settings.begin()
    assert settings.second(0) == {wire.DEBUG_MODES: 0, **used}
