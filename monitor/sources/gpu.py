"""One GPU (or MIG instance), read with few calls per tick; unknown values have a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core import pcie
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import BLANK, IDLE, LOST, NOT_JOINED, UNSUPPORTED, Reading
from whyidle.monitor.sources.fields import Fields
from whyidle.monitor.sources.gpm import Gpm
from whyidle.monitor.sources.lifetime import Lifetime, LifetimeProbe
from whyidle.monitor.sources.nvml import PERMANENT, SENTINELS, Nvml, Unknown

# The link and the cap change rarely; a call saved is a call that cannot hang.
SLOW_EVERY_SECONDS = 5.0
MEMORY_V2 = 0x02000028
MIG_MODE = "not reported in MIG mode"


@dataclass(frozen=True)
class GpuFacts:
    """What does not change while a job runs."""

    index: str
    name: str
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_total: int | None = None
    driver: str | None = None
    compute_capability: str | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    mig_of: str | None = None
    # The driver's number of the instance.
    mig_instance: int | None = None
    # Of several in the machine; ``None``: not known, or there is only one.
    numa_node: int | None = None


def innermost(held: Collection[str], facts: Sequence[GpuFacts]) -> frozenset[str]:
    """Drop a GPU if the job holds one of its MIG instances: it has only that part."""
    parents = {f.mig_of for f in facts if f.index in held and f.mig_of is not None}
    return frozenset(held) - parents


@dataclass(slots=True)
class GpuReading:
    """One GPU at one tick, with the processes that NVML names on it."""

    reading: Reading = field(default_factory=Reading)
    processes: dict[int, Reading] = field(default_factory=dict)
    processes_unknown: str | None = None
    lost: bool = False
    # ``None``: nobody asked for it.
    lifetime: Lifetime | None = None


class Gpu:
    """Reads one device. Never raises; a lost device says so in every metric."""

    def __init__(
        self,
        nvml: Nvml,
        facts: GpuFacts,
        handle: Any,
        *,
        parent: Any = None,
        instance: int | None = None,
    ) -> None:
        self.facts = facts
        self.handle = handle
        self._nvml = nvml
        self._is_mig = parent is not None
        self._hides_use = self._is_mig or mig_enabled(nvml, handle)
        self._gpm = Gpm(nvml, parent if self._is_mig else handle, instance)
        link = pcie.limit(facts.pcie_generation_max, facts.pcie_width_max)
        self._fields = Fields(nvml, handle, link)
        self._lifetime: LifetimeProbe | None = None
        self._never: dict[str, str] = {}
        self._slow_at: float | None = None
        # The driver keeps seconds of samples: the first reading already has the latest one.
        self._seen_us = int((time.time() - 1.0) * 1e6)

    def add_lifetime(self) -> None:
        """From now on read also what only an exporter shows."""
        self._lifetime = LifetimeProbe(self._nvml, self.handle)

    def read(self, now: float) -> GpuReading:
        """Return this tick's values; ``now`` is monotonic seconds."""
        result = GpuReading()
        reading = result.reading
        self._memory(reading)
        if LOST in reading.unknown.values():
            return _all_lost(result)
        self._use(reading)
        if not self._is_mig:
            self._fields.read(now, reading)
            self._power(reading)
            self._clocks(reading)
            self._slow(reading, now)
        self._gpm.read(now, reading)
        self._processes(result)
        if self._lifetime is not None:
            result.lifetime = self._lifetime.read()
        reading.unknown[m.GPU_MEMORY_UNCLAIMED] = NOT_JOINED
        return result

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Ask about this device; do not repeat a question that it will never answer."""
        key = function + repr(arguments)
        if key in self._never:
            raise Unknown(self._never[key])
        try:
            return self._nvml.call(function, self.handle, *arguments)
        except Unknown as unknown:
            if unknown.reason in PERMANENT:
                self._never[key] = unknown.reason
            raise

    def _one(
        self, reading: Reading, metric: Metric, ask: Callable[[], float], factor: float = 1.0
    ) -> None:
        try:
            value = ask()
        except Unknown as unknown:
            reading.unknown.setdefault(metric, unknown.reason)
        else:
            sane = None if value in SENTINELS else value * factor
            reading.put(metric, sane, BLANK)

    def _memory(self, reading: Reading) -> None:
        try:
            info = self._ask("nvmlDeviceGetMemoryInfo", MEMORY_V2)
        except Unknown:
            try:
                info = self._ask("nvmlDeviceGetMemoryInfo")
            except Unknown as unknown:
                reading.unknown[m.GPU_MEMORY_USED] = unknown.reason
                reading.unknown[m.GPU_MEMORY_TOTAL] = unknown.reason
                return
        for metric, value in ((m.GPU_MEMORY_USED, info.used), (m.GPU_MEMORY_TOTAL, info.total)):
            reading.put(metric, None if value in SENTINELS else value, BLANK)

    def _use(self, reading: Reading) -> None:
        try:
            use = None if self._hides_use else self._ask("nvmlDeviceGetUtilizationRates")
        except Unknown as unknown:
            reading.unknown[m.GPU_UTILISATION] = unknown.reason
            reading.unknown[m.GPU_MEMORY_BANDWIDTH] = unknown.reason
            return
        for metric, share in (
            (m.GPU_UTILISATION, use and use.gpu),
            (m.GPU_MEMORY_BANDWIDTH, use and use.memory),
        ):
            sane = share / 100 if share is not None and share <= 100 else None
            reading.put(metric, sane, MIG_MODE if use is None else BLANK)

    def _clocks(self, reading: Reading) -> None:
        sm, memory = 1, 2
        self._one(reading, m.GPU_SM_CLOCK, lambda: self._ask("nvmlDeviceGetClockInfo", sm))
        self._one(reading, m.GPU_MEMORY_CLOCK, lambda: self._ask("nvmlDeviceGetClockInfo", memory))
        self._one(reading, m.GPU_TEMPERATURE, lambda: self._ask("nvmlDeviceGetTemperature", 0))

    def _slow(self, reading: Reading, now: float) -> None:
        if self._slow_at is not None and now - self._slow_at < SLOW_EVERY_SECONDS:
            return
        self._slow_at = now
        for metric, function, factor in (
            (m.GPU_PCIE_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration", 1.0),
            (m.GPU_PCIE_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth", 1.0),
            (m.GPU_POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", 1e-3),
        ):
            self._one(reading, metric, lambda f=function: self._ask(f), factor)  # type: ignore[misc]

    def _power(self, reading: Reading) -> None:
        """Read the power by a separate call, the only way in older drivers."""
        if m.GPU_POWER not in reading.values:
            reading.unknown.pop(m.GPU_POWER, None)
            self._one(reading, m.GPU_POWER, lambda: self._ask("nvmlDeviceGetPowerUsage"), 1e-3)

    def _processes(self, result: GpuReading) -> None:
        try:
            running = self._ask("nvmlDeviceGetComputeRunningProcesses")
        except Unknown as unknown:
            result.processes_unknown = unknown.reason
            return
        shares = self._shares()
        for process in running:
            reading = Reading()
            used = process.usedGpuMemory
            reading.put(m.PROCESS_GPU_MEMORY, None if used in SENTINELS else used, UNSUPPORTED)
            share = shares if isinstance(shares, str) else shares.get(process.pid)
            if isinstance(share, float):
                reading.values[m.PROCESS_SM_SHARE] = share
            else:
                reading.unknown[m.PROCESS_SM_SHARE] = share or IDLE
            result.processes[process.pid] = reading

    def _shares(self) -> dict[int, float] | str:
        """Return the SM share by pid since the last call, or why there is none."""
        if self._hides_use:
            return MIG_MODE
        try:
            samples = self._ask("nvmlDeviceGetProcessUtilization", self._seen_us)
        except Unknown as unknown:
            return unknown.reason
        # Samples from before the last call and shares over 100 are leftovers in the driver's ring.
        fresh = [s for s in samples if s.timeStamp > self._seen_us and s.smUtil <= 100]
        by_pid: dict[int, list[int]] = {}
        for sample in fresh:
            by_pid.setdefault(sample.pid, []).append(sample.smUtil)
        self._seen_us = max((s.timeStamp for s in fresh), default=self._seen_us)
        return {pid: sum(shares) / len(shares) / 100 for pid, shares in by_pid.items()}


def mig_enabled(nvml: Nvml, handle: Any) -> bool:
    """Tell whether the GPU is split into instances."""
    mode = nvml.get("nvmlDeviceGetMigMode", handle)
    return bool(mode and mode[0] == 1)


def _all_lost(result: GpuReading) -> GpuReading:
    result.lost = True
    result.processes_unknown = LOST
    result.reading = Reading(unknown=dict.fromkeys(m.metrics_of(m.Scope.GPU), LOST))
    return result
