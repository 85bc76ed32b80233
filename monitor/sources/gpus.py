"""All GPUs of the machine: found once, read each tick on a thread that may hang without harm."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from whyidle.monitor.errors import NoGpu
from whyidle.monitor.metrics import (
    GPU_POWER,
    GPU_POWER_LIMIT,
    GPU_SM_ACTIVITY,
    GPU_UTILISATION,
    GPU_XID,
    Scope,
    metrics_of,
)
from whyidle.monitor.reading import HUNG, LOST, NO_XID, Reading
from whyidle.monitor.sources.gpu import Gpu, GpuFacts, GpuReading
from whyidle.monitor.sources.nvml import Nvml, Unknown, text
from whyidle.monitor.sources.worker import Worker
from whyidle.monitor.sources.xid import watch_xids

# The driver may take seconds to wake when no other client holds it open.
OPEN_SECONDS = 10.0
# A lost GPU seldom comes back before a reset; asking now and then is enough.
LOST_RETRY_SECONDS = 30.0
# Busy by the driver's word; and a draw that no GPU at work has (idle H100: 70 of 700 W).
BUSY, IDLE_POWER_SHARE = 0.99, 0.12


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something that happened to a GPU, once."""

    kind: str
    index: str
    text: str
    severity: str = "high"
    code: int | None = None


class GpuProbe:
    """Reads every GPU once per tick; one that hangs or is lost does not hold up the others."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self.nvml = nvml or Nvml()
        self.gpus: list[Gpu] = []
        self._events: SimpleQueue[GpuEvent] = SimpleQueue()
        self._worker: Worker[Gpu, GpuReading] | None = None
        self._stuck: dict[str, Worker[Gpu, GpuReading]] = {}
        self._lost: dict[str, float] = {}
        self._xids: dict[str, int] = {}
        self._doubted: set[str] = set()
        self._closing = threading.Event()

    def open(self, seconds: float = OPEN_SECONDS) -> None:
        """Connect and find the GPUs; a driver that does not answer is one sentence, no wait."""
        failure: list[BaseException] = []
        ready = threading.Event()

        def connect() -> None:
            try:
                self.nvml.open()
                self.gpus = find_gpus(self.nvml)
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
        watch_xids(self.nvml, self.gpus, self._closing, self._on_xid)

    def close(self) -> None:
        """Let the threads end. NVML stays: shutting it down under a stuck call would crash."""
        self._closing.set()
        if self._worker is not None:
            self._worker.retire()

    def read(self, limit: float) -> dict[str, GpuReading]:
        """Return one reading per GPU within ``limit`` seconds, whatever NVML does."""
        deadline = time.monotonic() + limit
        self._welcome_back()
        results = {g.facts.index: _silent(HUNG) for g in self.gpus if g.facts.index in self._stuck}
        waiting = [g for g in self.gpus if g.facts.index not in results]
        now = time.monotonic()
        for gpu in [
            g for g in waiting if now - self._lost.get(g.facts.index, -1e9) < LOST_RETRY_SECONDS
        ]:
            waiting.remove(gpu)
            results[gpu.facts.index] = _silent(LOST, lost=True)
        while waiting:
            results |= self._round(waiting, (deadline - time.monotonic()) / 2)
            waiting = [g for g in waiting if g.facts.index not in results]
        for index, result in results.items():
            self._note(index, result)
        return results

    def _round(self, gpus: list[Gpu], seconds: float) -> dict[str, GpuReading]:
        """Read these on the worker; if it hangs, give up that one GPU and the worker with it."""
        self._worker = self._worker or Worker("whyidle-nvml", _read)
        done, stuck = self._worker.work(gpus, max(0.01, seconds))
        results = {gpu.facts.index: result for gpu, result in done}
        if stuck is not None:
            index = stuck.facts.index
            self._stuck[index] = self._worker
            self._worker = None
            results[index] = _silent(HUNG)
            said = f"NVML does not answer for GPU {index}; the other values go on."
            self._events.put(GpuEvent("nvml_hung", index, said, "medium"))
        return results

    def _welcome_back(self) -> None:
        for index, worker in list(self._stuck.items()):
            if worker.idle:
                worker.retire()
                del self._stuck[index]
                said = f"NVML answers again for GPU {index}."
                self._events.put(GpuEvent("nvml_back", index, said, "info"))

    def _note(self, index: str, result: GpuReading) -> None:
        if result.lost and index not in self._lost:
            said = f"GPU {index} is lost: the driver no longer reaches it."
            self._events.put(GpuEvent("gpu_lost", index, said))
        if result.lost:
            last = self._lost.get(index)
            now = time.monotonic()
            if last is None or now - last >= LOST_RETRY_SECONDS:
                self._lost[index] = now
        elif index not in self._stuck and self._lost.pop(index, None) is not None:
            self._events.put(GpuEvent("gpu_back", index, f"GPU {index} answers again.", "info"))
        doubt = contradiction(result.reading)
        if doubt is None:
            self._doubted.discard(index)
        elif index not in self._doubted:
            self._doubted.add(index)
            self._events.put(GpuEvent("contradiction", index, f"GPU {index}: {doubt}", "low"))
        if not result.lost:
            result.reading.put(GPU_XID, self._xids.get(index), NO_XID)

    def _on_xid(self, index: str, code: int) -> None:
        self._xids[index] = code
        self._events.put(GpuEvent("xid", index, f"XID {code} on GPU {index}.", code=code))

    def events(self) -> list[GpuEvent]:
        """Return what happened since the last call."""
        found = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except Empty:
                return found


def contradiction(reading: Reading) -> str | None:
    """Return where two sources deny each other: both are shown, and so is this."""
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
            # A GPU that fell off the bus keeps its number; the others must still be read.
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
    return GpuFacts(
        index=index,
        name=text(nvml.get("nvmlDeviceGetName", handle)) or "unknown GPU",
        uuid=text(nvml.get("nvmlDeviceGetUUID", handle)),
        pci_bus_id=text(pci.busId) if pci is not None else None,
        memory_total=memory.total if memory is not None else None,
        driver=driver,
        compute_capability=".".join(map(str, capability)) if capability else None,
        pcie_generation_max=nvml.get("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width_max=nvml.get("nvmlDeviceGetMaxPcieLinkWidth", handle),
    )


def _instances(nvml: Nvml, parent: Any, facts: GpuFacts) -> list[Gpu]:
    mode = nvml.get("nvmlDeviceGetMigMode", parent)
    if not mode or mode[0] != 1:
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
            Gpu(nvml, replace(named, mig_of=facts.index), handle, parent=parent, instance=instance)
        )
    return found
