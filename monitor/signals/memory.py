"""The memory of a job: how much its devices and its host have left, and what taking it costs.

Of a device by what the framework's allocator counts: what the driver calls used is what an
allocator keeps, and JAX keeps three quarters of a GPU from the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.amounts import NEARLY_ALL
from whyidle.monitor.core.finding import Evidence, Need
from whyidle.monitor.libraries.frames import plays
from whyidle.monitor.libraries.table import Role
from whyidle.monitor.runs.stacks import Chain
from whyidle.monitor.signals.recorded import Recorded
from whyidle.monitor.signals.window import Window

# Bytes; the kernels that jobs run on have pages of this size (`getconf PAGESIZE`).
PAGE: Final = 4096
# To map and clear a page, to fetch it into the caches, and to give it back: 0.8 us on a machine of
# its own; in a virtual one, where each page is looked up twice, 1.3 to 2.4 us: that was the time in
# the kernel by the page, of convolutions, attention and plain arithmetic in three frameworks.
FAULT_S: Final = (0.8e-6, 2.5e-6)


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
        return self.peak >= NEARLY_ALL * self.limit

    @property
    def is_tight(self) -> bool:
        """Whether more was asked for than there was."""
        return self.retries > 0 or self.failed > 0

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


def known_memory(window: Window) -> DeviceMemory:
    """Return it; raises ``Lacking``."""
    need = Need.GPU if window.device == "cpu" else Need.INSIDE
    return window.needed(device_memory(window), need)


def device_memory(window: Window) -> DeviceMemory | None:
    """Return it; ``None``: not on a GPU, or the allocator says nothing."""
    job = window.job
    known = window.fact("devices" if window.uses("jax") else "devices_used")
    devices = known if isinstance(known, int) and known > 0 else 1
    peak, limit = job.mean(m.PROCESS_POOL_PEAK), job.mean(m.PROCESS_POOL_LIMIT)
    if limit is None:
        # By the driver what its GPUs have, without what other processes hold on them.
        rooms = [
            gpu.means[m.GPU_MEMORY_TOTAL] - sum(u.memory or 0.0 for u in gpu.users if not u.is_ours)
            for gpu in job.gpus
            if gpu.owned and m.GPU_MEMORY_TOTAL in gpu.means
        ]
        limit = job.measure(min(rooms) * devices, "bytes", "nvml") if rooms else None
    if peak is None or limit is None or not limit.value:
        return None
    retries = job.means.get(m.PROCESS_ALLOC_RETRIES, 0.0)
    least, most = job.ranges.get(m.PROCESS_ALLOC_OOMS, (0.0, 0.0))
    return DeviceMemory(limit.value, peak.value, devices, retries, most - least)


def room_on_host(window: Window, used: float = 0.0) -> list[float]:
    """Return what is free now: the mean of a time in which it grew would promise too much.

    ``used`` is what the job takes, where nothing else says so.
    """
    limit = window.job.means.get(m.JOB_MEMORY_LIMIT)
    # What processes share counts once there; their own sum has it once for each.
    taken = window.job.last(m.JOB_MEMORY_USED) or window.job.lasts.get(m.JOB_RSS, used)
    left = limit and max(0.0, limit - taken)
    return [room for room in (window.job.last(m.HOST_MEMORY_AVAILABLE), left) if room is not None]


def clearing(job: Recorded, pages: float) -> tuple[float, float]:
    """Return the least and the most that so many pages a second take of a core."""
    low, high = (pages * each for each in FAULT_S)
    # What the kernel does besides takes time as well.
    kernel = job.means.get(m.JOB_KERNEL, high)
    return min(low, kernel), min(high, kernel)


def new_pages(job: Recorded, most: float = math.inf) -> tuple[float, float] | None:
    """Return the least and the most of the job's time in which pages are cleared that do not stay.

    ``None``: not recorded. Who has less than a core may wait for something else, or for the core.
    ``most``: so many pages a second.
    """
    faults, cores = job.mean(m.JOB_MINOR_FAULTS), job.mean(m.JOB_CPU)
    growth = job.trends.get(m.JOB_RSS)
    if faults is None or cores is None or not cores.value:
        return None
    pages = faults.value - (0.0 if growth is None else max(0.0, growth.per_s) / PAGE)
    low, high = clearing(job, min(pages, most))
    return low / max(1.0, cores.value), high / cores.value


def in_checkpoint(chain: Chain) -> bool:
    """Tell whether a thread was found in what wraps layers to compute activations again."""
    return plays(Role.RECOMPUTE, chain.called, chain.leaf)
