"""All GPUs of the machine: found once, read each tick on a thread that may safely hang."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from whyidle.monitor.core.errors import NoGpu
from whyidle.monitor.core.metrics import (
    GPU_POWER,
    GPU_POWER_LIMIT,
    GPU_SM_ACTIVITY,
    GPU_UTILISATION,
    GPU_XID,
    Scope,
    metrics_of,
)
from whyidle.monitor.core.reading import HUNG, LATE, LOST, NO_XID, Reading
from whyidle.monitor.sources.gpu import Gpu, GpuFacts, GpuReading, mig_enabled
from whyidle.monitor.sources.news import GpuEvent, News
from whyidle.monitor.sources.numa import Numa
from whyidle.monitor.sources.nvml import Nvml, Unknown, text
from whyidle.monitor.sources.worker import Worker
from whyidle.monitor.sources.xid import watch_xids

# The driver may take seconds to wake up if no other client holds it open.
OPEN_SECONDS = 10.0
# A lost GPU seldom returns without a reset; asking now and then is enough.
LOST_RETRY_SECONDS = 30.0
# A slow call is not a hang: the driver takes its time when a GPU starts or resets.
HUNG_SECONDS = 2.0
# Busy according to the driver; and a draw too low for a busy GPU (idle H100: 70 of 700 W).
BUSY, IDLE_POWER_SHARE = 0.99, 0.12


@dataclass(frozen=True, slots=True)
class _Late:
    """A worker that is still busy with one GPU."""

    worker: Worker[Gpu, GpuReading]
    since: float


class GpuProbe:
    """Reads every GPU once per tick; one that hangs or is lost does not hold up the others."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self.nvml = nvml or Nvml()
        self.gpus: list[Gpu] = []
        self._news = News()
        self._worker: Worker[Gpu, GpuReading] | None = None
        self._late: dict[str, _Late] = {}
        self._read_at: dict[str, float] = {}
        self._slow: set[str] = set()
        self._lost: dict[str, float] = {}
        self._xids: dict[str, int] = {}
        self._closing = threading.Event()

    def open(self, seconds: float = OPEN_SECONDS) -> None:
        """Connect and find the GPUs; raise a sentence if the driver does not answer in time."""
        found: list[list[Gpu]] = []
        failure: list[BaseException] = []
        ready = threading.Event()

        def connect() -> None:
            try:
                self.nvml.open()
                found.append(find_gpus(self.nvml))
            except BaseException as error:  # noqa: BLE001  carried to the caller's thread
                failure.append(error)
            ready.set()

        threading.Thread(target=connect, name="whyidle-nvml-open", daemon=True).start()
        if not ready.wait(seconds):
            what = (
                f"The NVIDIA driver did not answer for {seconds:g} s: nothing is known of the GPUs."
            )
            raise NoGpu(what, "Ask the driver itself: nvidia-smi")
        if failure:
            raise failure[0]
        self.gpus = found[0]
        watch_xids(self.nvml, self.gpus, self._closing, self._on_xid)

    def close(self) -> None:
        """Let the threads end. NVML stays open: shutting it down under a stuck call would crash."""
        self._closing.set()
        if self._worker is not None:
            self._worker.retire()

    def read(self, limit: float) -> dict[str, GpuReading]:
        """Return one reading per GPU within ``limit`` seconds, whatever NVML does."""
        now = time.monotonic()
        results = self._arrived(now)
        due = [
            g
            for g in self.gpus
            if g.facts.index not in {**results, **self._late} and not self._rests(g, now)
        ]
        # If one round does not fit into a tick: quick GPUs first, then those that waited longest.
        due.sort(key=lambda g: (g.facts.index in self._slow, self._read_at.get(g.facts.index, 0.0)))
        if due:
            results |= self._round(due, now, limit)
        for index, result in results.items():
            self._note(index, result, now)
        return {
            g.facts.index: results.get(g.facts.index) or self._why_silent(g, now) for g in self.gpus
        }

    def _rests(self, gpu: Gpu, now: float) -> bool:
        return now - self._lost.get(gpu.facts.index, float("-inf")) < LOST_RETRY_SECONDS

    def _round(self, gpus: list[Gpu], now: float, seconds: float) -> dict[str, GpuReading]:
        """Read these on the worker; if one takes too long, leave only that one to it."""
        self._worker = self._worker or Worker("whyidle-nvml", _read)
        done, slow = self._worker.work(gpus, seconds)
        results = {gpu.facts.index: result for gpu, result in done}
        self._read_at |= dict.fromkeys(results, now)
        self._slow -= results.keys()
        if slow is not None:
            self._slow.add(slow.facts.index)
            self._read_at[slow.facts.index] = now
            self._late[slow.facts.index] = _Late(self._worker, now)
            self._worker = None
        return results

    def _why_silent(self, gpu: Gpu, now: float) -> GpuReading:
        if self._rests(gpu, now):
            return _silent(LOST, lost=True)
        late = self._late.get(gpu.facts.index)
        return _silent(HUNG if late and now - late.since > HUNG_SECONDS else LATE)

    def _arrived(self, now: float) -> dict[str, GpuReading]:
        """Return what came too late for the last tick, and report GPUs that are silent for long."""
        results: dict[str, GpuReading] = {}
        for index, late in list(self._late.items()):
            if late.worker.idle:
                results |= {g.facts.index: r for g, r in late.worker.last()}
                late.worker.retire()
                del self._late[index]
                if now - late.since > HUNG_SECONDS:
                    said = f"NVML answers again for GPU {index}."
                    self._news.tell(GpuEvent("nvml_back", index, said, "info"))
            elif now - late.since > HUNG_SECONDS:
                said = f"NVML does not answer for GPU {index}; the other values go on."
                self._news.tell(GpuEvent("nvml_hung", index, said, "medium"))
        return results

    def _note(self, index: str, result: GpuReading, now: float) -> None:
        """Report what a reading says beside its numbers."""
        if result.lost:
            self._lost[index] = now
            said = f"GPU {index} is lost: the driver no longer reaches it."
            self._news.tell(GpuEvent("gpu_lost", index, said))
            return
        if self._lost.pop(index, None) is not None:
            self._news.tell(GpuEvent("gpu_back", index, f"GPU {index} answers again.", "info"))
        doubt = contradiction(result.reading)
        if doubt is not None:
            self._news.tell(GpuEvent("contradiction", index, f"GPU {index}: {doubt}", "low"))
        result.reading.put(GPU_XID, self._xids.get(index), NO_XID)

    def _on_xid(self, index: str, code: int) -> None:
        self._xids[index] = code
        self._news.tell(GpuEvent("xid", index, f"XID {code} on GPU {index}.", code=code))

    def silent(self, reason: str) -> dict[str, GpuReading]:
        """Return a reading for each GPU that only says why it has no values."""
        return {gpu.facts.index: _silent(reason) for gpu in self.gpus}

    def events(self) -> list[GpuEvent]:
        """Return what happened since the last call."""
        return self._news.take()


def contradiction(reading: Reading) -> str | None:
    """Return how two sources contradict each other: both are shown, and so is this."""
    use, active = reading.get(GPU_UTILISATION), reading.get(GPU_SM_ACTIVITY)
    power, limit = reading.get(GPU_POWER), reading.get(GPU_POWER_LIMIT)
    if use is None or use < BUSY:
        return None
    if active == 0.0:
        return (
            "utilisation says busy, the profiling counters say that no SM works; "
            "another profiler may hold them."
        )
    if power is not None and limit and power < IDLE_POWER_SHARE * limit:
        return f"utilisation says busy, but it draws only {power:.0f} W of {limit:.0f} W."
    return None


def _read(gpu: Gpu) -> GpuReading:
    try:
        return gpu.read(time.monotonic())
    except Exception as error:  # noqa: BLE001  a surprise on one GPU must not end the thread for all
        return _silent(f"{type(error).__name__}: {error}")


def _silent(reason: str, *, lost: bool = False) -> GpuReading:
    reading = Reading(unknown=dict.fromkeys(metrics_of(Scope.GPU), reason))
    return GpuReading(reading, processes_unknown=reason, lost=lost)


def find_gpus(nvml: Nvml) -> list[Gpu]:
    """Return every GPU, and in MIG mode its instances after it."""
    driver = text(nvml.get("nvmlSystemGetDriverVersion"))
    found: list[Gpu] = []
    for number in range(nvml.get("nvmlDeviceGetCount") or 0):
        try:
            handle = nvml.call("nvmlDeviceGetHandleByIndex", number)
        except Unknown:
            # A GPU that fell off the bus keeps its number; still read the others.
            continue
        facts = _facts(nvml, handle, str(number), driver)
        found.append(Gpu(nvml, facts, handle))
        found += _instances(nvml, handle, facts)
    if not found:
        what = "The NVIDIA driver is here but shows no GPU, so nothing is known of the GPUs."
        raise NoGpu(what, "Look at what the driver sees: nvidia-smi -L")
    return found


def _facts(nvml: Nvml, handle: Any, index: str, driver: str | None) -> GpuFacts:
    memory = nvml.get("nvmlDeviceGetMemoryInfo", handle)
    capability = nvml.get("nvmlDeviceGetCudaComputeCapability", handle)
    pci = nvml.get("nvmlDeviceGetPciInfo", handle)
    bus = text(pci.busId) if pci is not None else None
    return GpuFacts(
        index=index,
        name=text(nvml.get("nvmlDeviceGetName", handle)) or "unknown GPU",
        uuid=text(nvml.get("nvmlDeviceGetUUID", handle)),
        pci_bus_id=bus,
        numa_node=Numa().node_of_gpu(bus),
        memory_total=memory.total if memory is not None else None,
        driver=driver,
        compute_capability=".".join(map(str, capability)) if capability else None,
        pcie_generation_max=nvml.get("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width_max=nvml.get("nvmlDeviceGetMaxPcieLinkWidth", handle),
    )


def _instances(nvml: Nvml, parent: Any, facts: GpuFacts) -> list[Gpu]:
    if not mig_enabled(nvml, parent):
        return []
    found = []
    for number in range(nvml.get("nvmlDeviceGetMaxMigDeviceCount", parent) or 0):
        handle = nvml.get("nvmlDeviceGetMigDeviceHandleByIndex", parent, number)
        if handle is None:
            continue
        own = _facts(nvml, handle, f"{facts.index}:{number}", facts.driver)
        named = replace(own, name=own.name if "MIG" in own.name else f"{facts.name} MIG")
        instance = nvml.get("nvmlDeviceGetGpuInstanceId", handle)
        found.append(
            Gpu(
                nvml,
                replace(named, mig_of=facts.index, mig_instance=instance),
                handle,
                parent=parent,
                instance=instance,
            )
        )
    return found
