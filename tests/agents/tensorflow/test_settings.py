"""What is read of TensorFlow's context, where it does not answer everything."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whyidle.agents import wire
from whyidle.agents.tensorflow import settings as module
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
    context: Any = ModuleType(CONTEXT)
    context._context = Context(*known)
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    monkeypatch.setitem(sys.modules, CONTEXT, context)
    settings = Settings(SimpleNamespace())  # type: ignore[arg-type]
    settings.begin()
    assert settings.second(0) == {wire.DEBUG_MODES: 0, **used}


@pytest.mark.parametrize(
    ("keras", "steps", "computes"),
    [
        # Eager code beside another framework: Keras' own optimizer of TensorFlow, or an older one.
        ("tensorflow", True, True),
        (None, True, True),
        # Healthy twins: data is read, or Keras computes with another.
        ("tensorflow", False, False),
        ("jax", True, False),
    ],
)
def test_who_computes_beside_another_framework(
    monkeypatch: pytest.MonkeyPatch, keras: str | None, *, steps: bool, computes: bool
) -> None:
    context: Any = ModuleType(CONTEXT)
    context._context = SimpleNamespace(_logical_devices=[SimpleNamespace(device_type="CPU")])
    for name in ("tensorflow", "jax"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, CONTEXT, context)
    if keras is not None:
        config: Any = ModuleType("keras.src.backend.config")
        config._BACKEND, config._FLOATX = keras, "float32"
        monkeypatch.setitem(sys.modules, "keras", ModuleType("keras"))
        monkeypatch.setitem(sys.modules, config.__name__, config)
    monkeypatch.setattr(module, "stepped", [steps])
    settings = Settings(SimpleNamespace())  # type: ignore[arg-type]
    settings.begin()
    assert settings.facts().get("backend") == ("cpu" if computes else None)
