"""The names, units and labels of NVIDIA's dcgm-exporter, so that dashboards for it work unchanged.

They stand here and nowhere else. What a name means: https://docs.nvidia.com/datacenter/dcgm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import NO_XID
from whyidle.monitor.export.exposition import Family, Labels
from whyidle.monitor.export.kubelet import Allocation
from whyidle.monitor.sources.gpu import GpuFacts, GpuReading
from whyidle.monitor.sources.lifetime import Lifetime

# Releases up to 4.5.3-4.8.2 write the first, the ones after it the second.
HostLabel = Literal["Hostname", "hostname"]
MIB: Final = 1 << 20
PERCENT: Final = 100.0
_PROFILE: Final = re.compile(r"\bMIG (\S+)")


@dataclass(frozen=True, slots=True)
class Name:
    """One name of theirs, and where its value comes from; ``None``: it has none here."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    value: Callable[[GpuReading], float | None]


def _of(metric: Metric, factor: float = 1.0) -> Callable[[GpuReading], float | None]:
    def value(read: GpuReading) -> float | None:
        found = read.reading.get(metric)
        return None if found is None else round(found * factor, 6)

    return value


def _once(part: Callable[[Lifetime], float | None]) -> Callable[[GpuReading], float | None]:
    return lambda read: None if read.lifetime is None else part(read.lifetime)


def _xid(read: GpuReading) -> float | None:
    none = 0.0 if read.reading.unknown.get(m.GPU_XID) == NO_XID else None
    return read.reading.values.get(m.GPU_XID, none)


def _free(read: GpuReading) -> float | None:
    total, used = read.reading.get(m.GPU_MEMORY_TOTAL), read.reading.get(m.GPU_MEMORY_USED)
    if total is None or used is None:
        return None
    reserved = None if read.lifetime is None else read.lifetime.memory_reserved
    return round(max(0.0, total - used - (reserved or 0.0)) / MIB)


def _used(read: GpuReading) -> float | None:
    used = read.reading.get(m.GPU_MEMORY_USED)
    return None if used is None else round(used / MIB)


def _reserved(lifetime: Lifetime) -> float | None:
    reserved = lifetime.memory_reserved
    return None if reserved is None else round(reserved / MIB)


def _nvlink(read: GpuReading) -> float | None:
    ways = (read.reading.get(m.GPU_NVLINK_RX), read.reading.get(m.GPU_NVLINK_TX))
    known = [way for way in ways if way is not None]
    return round(sum(known) / 1e6, 3) if known else None


# fmt: off
NAMES: Final = (
    Name("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock, in MHz.", _of(m.GPU_SM_CLOCK)),
    Name("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Clock of the device memory, in MHz.",
         _of(m.GPU_MEMORY_CLOCK)),
    Name("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the device memory, in C.",
         _of(m.GPU_MEMORY_TEMPERATURE)),
    Name("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU, in C.", _of(m.GPU_TEMPERATURE)),
    Name("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power that is drawn, in W.", _of(m.GPU_POWER)),
    Name("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter",
         "Energy since the driver was loaded, in mJ.", _once(lambda x: x.energy_mj)),
    Name("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Packets that PCIe sent again.",
         _once(lambda x: x.pcie_replays)),
    Name("DCGM_FI_DEV_GPU_UTIL", "gauge", "Share of time in which a kernel ran, in %.",
         _of(m.GPU_UTILISATION, PERCENT)),
    Name("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge",
         "Share of time in which device memory was accessed, in %.",
         _of(m.GPU_MEMORY_BANDWIDTH, PERCENT)),
    Name("DCGM_FI_DEV_ENC_UTIL", "gauge", "Use of the video encoder, in %.",
         _once(lambda x: x.encoder)),
    Name("DCGM_FI_DEV_DEC_UTIL", "gauge", "Use of the video decoder, in %.",
         _once(lambda x: x.decoder)),
    Name("DCGM_FI_DEV_XID_ERRORS", "gauge", "The last XID error; 0: none since we watch.", _xid),
    Name("DCGM_FI_DEV_FB_FREE", "gauge", "Device memory that is free, in MiB.", _free),
    Name("DCGM_FI_DEV_FB_USED", "gauge", "Device memory in use, in MiB.", _used),
    Name("DCGM_FI_DEV_FB_RESERVED", "gauge", "Device memory that the driver keeps, in MiB.",
         _once(_reserved)),
    Name("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge",
         "Traffic over all links now, both ways, in MB/s.", _nvlink),
    Name("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter",
         "Rows of memory that were replaced after errors that could not be corrected.",
         _once(lambda x: x.rows_uncorrectable)),
    Name("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter",
         "Rows of memory that were replaced after errors that were corrected.",
         _once(lambda x: x.rows_correctable)),
    Name("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1: a row of memory could not be replaced.",
         _once(lambda x: x.rows_failed)),
    Name("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge",
         "For a virtual GPU: 1 with a license, 0 without.", _once(lambda x: x.licensed)),
    Name("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge",
         "Share of time in which the compute engine had work.", _of(m.GPU_ENGINE_ACTIVITY)),
    Name("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Share of SM cycles with a warp resident.",
         _of(m.GPU_SM_ACTIVITY)),
    Name("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "Resident warps over the most possible.",
         _of(m.GPU_SM_OCCUPANCY)),
    Name("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge",
         "Share of cycles with a tensor core at work.", _of(m.GPU_TENSOR_ACTIVITY)),
    Name("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gauge", "Share of cycles with the FP32 pipe at work.",
         _of(m.GPU_FP32_ACTIVITY)),
    Name("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gauge", "Share of cycles with the FP16 pipe at work.",
         _of(m.GPU_FP16_ACTIVITY)),
    Name("DCGM_FI_PROF_DRAM_ACTIVE", "gauge",
         "Share of the peak device memory bandwidth in use.", _of(m.GPU_DRAM_ACTIVITY)),
    Name("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Sent over PCIe, in bytes a second.",
         _of(m.GPU_PCIE_TX)),
    Name("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Received over PCIe, in bytes a second.",
         _of(m.GPU_PCIE_RX)),
)
# fmt: on


def labels_of(gpu: GpuFacts, parent: GpuFacts, host: str, label: HostLabel) -> dict[str, str]:
    """Return their labels; a MIG instance goes by the GPU that it is a part of."""
    named = {
        "gpu": parent.index,
        "UUID": parent.uuid or "",
        "pci_bus_id": parent.pci_bus_id or "",
        "device": f"nvidia{parent.index}",
        "modelName": parent.name,
    }
    if gpu.mig_of is not None:
        profile = _PROFILE.search(gpu.name)
        named["GPU_I_PROFILE"] = profile[1] if profile else ""
        named["GPU_I_ID"] = "" if gpu.mig_instance is None else str(gpu.mig_instance)
    named[label] = host
    if gpu.driver:
        named["DCGM_FI_DRIVER_VERSION"] = gpu.driver
    return named


def families(
    gpus: Iterable[tuple[Labels, GpuReading]],
) -> list[Family]:
    """Return every name with a series for each GPU that has a value."""
    rows = list(gpus)
    found = []
    for name in NAMES:
        family = Family(name.name, name.kind, name.help)
        for labels, read in rows:
            # An XID is the whole GPU's: of an instance it is not known.
            if name.value is not _xid or "GPU_I_ID" not in labels:
                family.add(name.value(read), labels)
        found.append(family)
    return found


def all_labels(
    facts: Iterable[GpuFacts],
    host: str,
    label: HostLabel,
    allocated: Mapping[str, Sequence[Allocation]],
) -> Mapping[str, dict[str, str]]:
    """Return the labels of all GPUs by their index; with its pod, where one has it for itself."""
    known = {gpu.index: gpu for gpu in facts}
    named = {
        index: labels_of(gpu, known.get(gpu.mig_of or "", gpu), host, label)
        for index, gpu in known.items()
    }
    for index, who in allocated.items():
        if len(who) == 1 and index in named:
            named[index] |= who[0]._asdict()
    return named
