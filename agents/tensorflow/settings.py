"""The part ``settings``: version, devices, memory, Keras, and switches that slow each step."""

from __future__ import annotations

import os
from contextlib import suppress

from ..framework import Part
from ..jax.devices import VISIBLE, gpus_present
from ..modules import loaded, need
from ..wire import DEBUG_MODES, POOL_PEAK_BYTES, POOL_USED_BYTES
from .calls import called
from .internals import CONTEXT, backend
from .optimizers import stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EAGERLY = "tensorflow.python.eager.polymorphic_function.eager_function_run"
DATA_DEBUG = "tensorflow.python.data.ops.debug_mode"
GROWTH = b"TF_FORCE_GPU_ALLOW_GROWTH"


class Settings(Part):
    """Reads them, and makes nothing: devices appear when the job has used one."""

    name = "settings"

    def begin(self) -> None:
        """Find TensorFlow's context."""
        self._names = need(CONTEXT)
        need(CONTEXT, "_context")

    def second(self, _now: int) -> dict[str, int | None]:
        """Count debugging modes, and add up the memory of the GPUs."""
        found: dict[str, int | None] = {DEBUG_MODES: sum(_debugging().values())}
        used = peak = 0
        context, gpus = self._context(), self._devices("GPU")
        known = False
        for device in gpus:
            # Another worker's GPU is a device here, too; and some allocators count nothing.
            with suppress(Exception):
                info = context.get_memory_info(device.name)
                used, peak = used + int(info["current"]), peak + int(info["peak"])
                known = True
        if known:
            found.update({POOL_USED_BYTES: used, POOL_PEAK_BYTES: peak})
        return found

    def facts(self) -> dict[str, Any]:
        """Return what seldom changes."""
        found: dict[str, Any] = {"version": (loaded("tensorflow") or {}).get("__version__")}
        found.update(_debugging())
        keras = loaded("keras.src.backend.config")
        if keras is not None:
            found["keras_backend"] = keras.get("_BACKEND")
            found["floatx"] = keras.get("_FLOATX")
            found["keras"] = (loaded("keras") or {}).get("__version__")
        kind = backend() if _computes() else None
        if kind is not None:
            found["backend"] = kind.lower()
            found["devices"] = len(self._devices(kind))
        if "backend" in found:
            found.update(self._choice())
        if found.get("backend") == "gpu":
            found.update(self._memory())
        return found

    def _context(self) -> Any:
        return self._names.get("_context")

    def _devices(self, kind: str) -> list[Any]:
        devices = getattr(self._context(), "_logical_devices", None) or ()
        return [each for each in list(devices) if each.device_type == kind]

    def _choice(self) -> dict[str, Any]:
        """Return which GPUs there could be, and whether the job wants none."""
        found: dict[str, Any] = {
            "gpus_present": gpus_present(),
            "gpus_visible": os.environ.get(VISIBLE),
        }
        context = self._context()
        there, wanted = (
            {each.device_type for each in list(getattr(context, name, None) or ())}
            for name in ("_physical_devices", "_visible_device_list")
        )
        found["works_ahead"] = bool(getattr(context, "_default_is_async", False))
        found["platforms_asked"] = "cpu" if "GPU" in there - wanted else None
        return found

    def _memory(self) -> dict[str, Any]:
        """Return whether the memory of the GPUs grows as needed, or has a limit."""
        context = self._context()
        growth = getattr(context, "_memory_growth_map", None)
        limits = getattr(context, "_virtual_device_map", None)
        found: dict[str, Any] = {}
        if isinstance(growth, dict):
            asked = getattr(os.environ, "_data", {}).get(GROWTH)
            forced = None if asked is None else asked.lower() in {b"true", b"1"}
            grows = [bool(v) for k, v in list(growth.items()) if k.device_type == "GPU"]
            found["memory_growth"] = forced if forced is not None else bool(grows) and all(grows)
        if isinstance(limits, dict):
            sizes = [
                limit
                for key, parts in list(limits.items())
                for limit in (getattr(part, "memory_limit", None) for part in parts or ())
                if key.device_type == "GPU" and limit
            ]
            found["memory_limited"] = bool(sizes)
        return found


def _computes() -> bool:
    """Tell whether TensorFlow computes here: many jobs of the others only read data with it.

    Keras may have loaded the others itself, and its optimizers may be theirs.
    """
    alone = loaded("jax") is None and loaded("torch") is None
    keras = (loaded("keras.src.backend.config") or {}).get("_BACKEND", "tensorflow")
    return bool(called) or alone or (stepped[0] and keras == "tensorflow")


def _debugging() -> dict[str, bool]:
    """Return the switches that slow each step."""
    places = {
        "run_functions_eagerly": (EAGERLY, "RUN_FUNCTIONS_EAGERLY"),
        "data_debug_mode": (DATA_DEBUG, "DEBUG_MODE"),
    }
    values = {name: (loaded(module) or {}).get(at) for name, (module, at) in places.items()}
    return {name: value for name, value in values.items() if isinstance(value, bool)}
