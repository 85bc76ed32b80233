"""Which devices the process can use, and its allocator's own figures of their memory."""

from __future__ import annotations

import os

from ..framework import Part
from ..modules import loaded, need
from ..wire import (
    POOL_LIMIT_BYTES,
    POOL_PEAK_BYTES,
    POOL_RESERVED_BYTES,
    POOL_SPLIT_BYTES,
    POOL_USED_BYTES,
)
from .internals import clients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIGURES = {
    POOL_USED_BYTES: "bytes_in_use",
    POOL_PEAK_BYTES: "peak_bytes_in_use",
    POOL_RESERVED_BYTES: "pool_bytes",
    POOL_LIMIT_BYTES: "bytes_limit",
}
# By so much a whole pool may be less than its limit: the allocator rounds to its own units.
ROUNDED = 1 << 20
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Devices(Part):
    """The backends that the job has initialised."""

    name = "devices"

    def begin(self) -> None:
        """Check that the names are there."""
        clients()
        need("jax._src.xla_bridge", "_default_backend")
        self._gpus: int | None = None
        self._has_figures = True
        self._last: dict[str, Any] = {}

    def second(self, _now: int) -> dict[str, int | None]:
        """Return the figures of the memory, where there are any."""
        if not self._has_figures:
            return {}
        try:
            stats = [
                device.memory_stats()
                for client in clients().values()
                for device in client.local_devices()
            ]
        except Exception as error:
            self._has_figures = False
            self.context.tell(f"no figures of device memory: {type(error).__name__}")
            return {}
        return _sum([each for each in stats if each])

    def facts(self) -> dict[str, Any]:
        """Return which devices there are, and which there could be."""
        known = clients()
        default = need("jax._src.xla_bridge", "_default_backend")
        found: dict[str, Any] = {"version": (loaded("jax.version") or {}).get("__version__")}
        if default is None or not known:
            # None is initialised yet, and we initialise none; or the job ends, and all are gone.
            return self._last or found
        if self._gpus is None:
            self._gpus = gpus_present()
        found["backend"] = default.platform
        found["backends"] = sorted(known)
        found["devices"] = len(default.local_devices())
        found["devices_of_all"] = default.device_count()
        found["processes"] = 1 + max((d.process_index for d in default.devices()), default=0)
        found["rank"] = default.process_index() if found["processes"] > 1 else None
        found["gpus_present"] = self._gpus
        found["gpus_visible"] = os.environ.get(VISIBLE)
        found["platforms_asked"] = _platforms_asked()
        self._last = found
        return found


def gpus_present() -> int | None:
    """Return how many NVIDIA GPUs the job could open; ``None`` where that cannot be seen."""
    try:
        names = os.listdir("/dev")
    except OSError:
        return None
    return sum(name.startswith("nvidia") and name[6:].isdigit() for name in names)


def _platforms_asked() -> str | None:
    """Return the platforms that the user chose himself."""
    state = (loaded("jax._src.config") or {}).get("jax_platforms")
    value = getattr(state, "value", None)
    return value if isinstance(value, str) and value else None


def _sum(stats: list[dict[str, int]]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for gauge, name in FIGURES.items():
        values = [each[name] for each in stats if name in each]
        if values:
            found[gauge] = sum(values)
    split = [_split(each) for each in stats]
    if split and None not in split:
        found[POOL_SPLIT_BYTES] = sum(each or 0 for each in split)
    return found


def _split(stats: dict[str, int]) -> int | None:
    """Return what is free but not in the largest free block.

    A pool that still grows is no region but several, each with a free block of its own: on an H100
    a small healthy job had half of what was free in others than the largest.
    """
    try:
        if stats["bytes_limit"] - stats["pool_bytes"] > ROUNDED:
            return None
        free = stats["pool_bytes"] - stats["bytes_in_use"]
        return max(0, free - stats["largest_free_block_bytes"])
    except KeyError:
        return None
