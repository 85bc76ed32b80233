"""The memory of a job's devices: how much it may take, how much it took, and whether that is tight.

By what the framework's allocator counts: what the driver calls used is what an allocator keeps, and
JAX keeps three quarters of a GPU from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.finding import Evidence
from whyidle.monitor.core.measure import Measure
from whyidle.monitor.signals.window import Window

# From here on memory limits what a job can do.
NEAR: Final = 0.8


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What one process of the job has of its devices, all of them together."""

    # What it may take, and the most that it took.
    limit: float
    peak: float
    devices: int
    # Allocations that had to free what was kept first, a second; and those that failed meanwhile.
    retries: float = 0.0
    failed: float = 0.0

    @property
    def is_near(self) -> bool:
        """Whether it is nearly full."""
        return self.peak >= NEAR * self.limit

    @property
    def is_tight(self) -> bool:
        """Whether more was asked for than there was."""
        return self.retries > 0 or self.failed > 0

    @property
    def of_a_device(self) -> float:
        """What one device has."""
        return self.limit / self.devices

    def evidence(self, window: Window) -> list[Evidence]:
        """Return what shows it."""
        measure = window.job.measure
        found = [
            Evidence.of("most memory in use", measure(self.peak, "bytes")),
            Evidence.of("memory that it may take", measure(self.limit, "bytes")),
        ]
        if self.retries:
            tried = measure(self.retries, "1/s")
            found.append(Evidence.of("allocations that had to free memory first", tried))
        if self.failed:
            found.append(Evidence.of("allocations that failed", measure(self.failed, "count")))
        return found


def device_memory(window: Window) -> DeviceMemory | None:
    """Return it; ``None``: not on a GPU, or the allocator says nothing."""
    job = window.job
    peak = job.mean(m.PROCESS_POOL_PEAK)
    devices = _devices(window)
    limit = job.mean(m.PROCESS_POOL_LIMIT) or _by_the_driver(window, devices)
    if peak is None or limit is None or not limit.value:
        return None
    retries = job.mean(m.PROCESS_ALLOC_RETRIES)
    least, most = job.ranges.get(m.PROCESS_ALLOC_OOMS, (0.0, 0.0))
    return DeviceMemory(
        limit.value, peak.value, devices, retries.value if retries else 0.0, most - least
    )


def _devices(window: Window) -> int:
    """Return how many devices the process has memory on."""
    known = window.fact("devices" if window.uses("jax") else "devices_used")
    return known if isinstance(known, int) and known > 0 else 1


def _by_the_driver(window: Window, devices: int) -> Measure | None:
    """Return what its GPUs have, without what other processes hold on them."""
    rooms = [
        gpu.means[m.GPU_MEMORY_TOTAL] - sum(u.memory or 0.0 for u in gpu.users if not u.is_ours)
        for gpu in window.job.gpus
        if gpu.owned and m.GPU_MEMORY_TOTAL in gpu.means
    ]
    return window.job.measure(min(rooms) * devices, "bytes", "nvml") if rooms else None
