"""What only an exporter shows of a GPU: totals since the driver was loaded, and video engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from whyidle.monitor.sources.nvml import PERMANENT, SENTINELS, Nvml, Unknown

MEMORY_V2: Final = 0x02000028
_LICENCES: Final = "nvmlDeviceGetGridLicensableFeatures_v4"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``None``: the GPU has no such number, or does not say it."""

    energy_mj: float | None = None
    pcie_replays: float | None = None
    # In percent.
    encoder: float | None = None
    decoder: float | None = None
    # In bytes.
    memory_reserved: float | None = None
    rows_correctable: float | None = None
    rows_uncorrectable: float | None = None
    rows_failed: float | None = None
    # Of a virtual GPU: 1 with a licence, 0 without.
    licensed: float | None = None


class LifetimeProbe:
    """Reads these of one device; a question that it will never answer is asked once."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._never: set[str] = set()

    def read(self) -> Lifetime:
        """Return the totals. Never raises."""
        memory = self._ask("nvmlDeviceGetMemoryInfo", MEMORY_V2)
        rows = self._ask("nvmlDeviceGetRemappedRows") or (None, None, None, None)
        return Lifetime(
            energy_mj=_sane(self._ask("nvmlDeviceGetTotalEnergyConsumption")),
            pcie_replays=_sane(self._ask("nvmlDeviceGetPcieReplayCounter")),
            encoder=_first(self._ask("nvmlDeviceGetEncoderUtilization")),
            decoder=_first(self._ask("nvmlDeviceGetDecoderUtilization")),
            memory_reserved=_sane(getattr(memory, "reserved", None)),
            rows_correctable=_sane(rows[0]),
            rows_uncorrectable=_sane(rows[1]),
            rows_failed=_sane(rows[3]),
            licensed=self._licensed(),
        )

    def _licensed(self) -> float | None:
        found = self._ask(_LICENCES)
        if found is None:
            return None
        if not found.isGridLicenseSupported:
            # A real GPU needs none.
            self._never.add(_LICENCES)
            return None
        some = found.gridLicensableFeatures[: found.licensableFeaturesCount]
        return float(any(each.featureState for each in some))

    def _ask(self, function: str, *arguments: Any) -> Any:
        if function in self._never:
            return None
        try:
            return self._nvml.call(function, self._handle, *arguments)
        except Unknown as unknown:
            if unknown.reason in PERMANENT:
                self._never.add(function)
            return None


def _sane(value: Any) -> float | None:
    return None if value is None or value in SENTINELS else float(value)


def _first(pair: Any) -> float | None:
    return None if not pair else _sane(pair[0])
