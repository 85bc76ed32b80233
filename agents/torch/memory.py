"""The part ``CUDA memory``: what torch's own allocator holds, and how hard it had to try.

The figures lie in the process: reading them neither asks the driver nor waits for a device.
"""

from __future__ import annotations

import os

from ..framework import Part
from ..modules import loaded, need
from ..wire import (
    ALLOC_OOMS,
    ALLOC_RETRIES,
    POOL_PEAK_BYTES,
    POOL_RESERVED_BYTES,
    POOL_SPLIT_BYTES,
    POOL_USED_BYTES,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Unused devices are read this seldom: 60 figures each.
SECONDS_BETWEEN = 10
MOST_DEVICES = 64
GPUS = "/proc/driver/nvidia/gpus"
# Where the allocator keeps them: a number, or the path to one.
FIGURES = {
    POOL_USED_BYTES: ("allocated_bytes", "all", "current"),
    POOL_PEAK_BYTES: ("allocated_bytes", "all", "peak"),
    POOL_RESERVED_BYTES: ("reserved_bytes", "all", "current"),
    POOL_SPLIT_BYTES: ("inactive_split_bytes", "all", "current"),
    ALLOC_RETRIES: ("num_alloc_retries",),
    ALLOC_OOMS: ("num_ooms",),
}


class CudaMemory(Part):
    """Reads the allocator's figures of each device."""

    name = "CUDA memory"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._seconds = 0
        self._devices = 0
        self._figures: dict[int, dict[str, int]] = {}
        self._present = _gpus()

    def begin(self) -> None:
        """Find the allocator; a build without CUDA has none."""
        need("torch.cuda", "_initialized")
        need("torch.cuda", "_is_in_bad_fork")
        self._read: Callable[[int], Any] | None = None
        if "_cuda_getDeviceCount" in (loaded("torch._C") or {}):
            self._read = need("torch._C", "_cuda_memoryStats")
            self._count = need("torch._C", "_cuda_getDeviceCount")

    def second(self, _now: int) -> dict[str, int | None]:
        """Read what is due."""
        if self._read is None or not _is_initialized():
            return {}
        if not self._devices:
            self._devices = min(int(self._count()), MOST_DEVICES)
        for device in range(self._devices):
            # A process of a parallel job uses one of many.
            if self._uses(device) or self._seconds % SECONDS_BETWEEN == 0:
                self._figures[device] = _flat(self._read(device))
        self._seconds += 1
        return {
            name: sum(figures[name] for figures in self._figures.values())
            for name in FIGURES
            if self._figures and all(name in figures for figures in self._figures.values())
        }

    def facts(self) -> dict[str, Any]:
        """Say which devices there are, and which are used."""
        found: dict[str, Any] = {"gpus_present": self._present}
        version = (loaded("torch.version") or {}).get("cuda", "")
        found["cuda_version"] = version
        found["cuda_initialized"] = _is_initialized()
        if self._devices:
            found["devices"] = self._devices
            found["devices_used"] = sum(map(self._uses, range(self._devices)))
        return found

    def _uses(self, device: int) -> bool:
        return self._figures.get(device, {}).get(POOL_RESERVED_BYTES, 0) > 0


def _is_initialized() -> bool:
    names = loaded("torch.cuda") or {}
    # In a forked child of a process that uses CUDA, it only looks so.
    return bool(names.get("_initialized")) and not names["_is_in_bad_fork"]()


def _flat(stats: Any) -> dict[str, int]:
    found = {}
    for name, path in FIGURES.items():
        at = stats
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        if isinstance(at, int):
            found[name] = at
    return found


def _gpus() -> int | None:
    """Return how many GPUs the driver has; ``None`` where there is no such driver."""
    try:
        return len(os.listdir(GPUS))
    except OSError:
        return None
