"""The batched call: many counters of one GPU by one nvmlDeviceGetFieldValues per tick."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core import pcie
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.rates import Rates
from whyidle.monitor.core.reading import BLANK, FIRST, Reading
from whyidle.monitor.sources.nvml import PERMANENT, SENTINELS, Nvml, Unknown, reason_of

ALL_LINKS = 0xFFFFFFFF
# The member of the union that holds the number, by NVML's value type.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_UNSIGNED_INT = 1
_WRAP = 2.0**32
# A fast link carries as much in a tenth of a second as such a counter holds (docs/gpu.md).
WRAPS: Final = "the driver's counter may wrap more than once between two readings"


class Field(NamedTuple):
    """One entry of the batched call: how its number becomes a metric."""

    metric: Metric
    field_id: int
    scope: int
    factor: float
    total: bool


# If two entries name a metric, the first that answers counts. Average power is what the driver
# integrates; NVLink 5 has counters of its own.
FIELDS = (
    Field(m.GPU_POWER, 185, 0, 1e-3, total=False),
    Field(m.GPU_POWER, 186, 0, 1e-3, total=False),
    Field(m.GPU_MEMORY_TEMPERATURE, 82, 0, 1.0, total=False),
    Field(m.GPU_ENERGY, 83, 0, 1e-3, total=True),
    Field(m.GPU_PCIE_TX, 197, 0, 1.0, total=True),
    Field(m.GPU_PCIE_RX, 198, 0, 1.0, total=True),
    Field(m.GPU_NVLINK_TX, 138, ALL_LINKS, 1024.0, total=True),
    Field(m.GPU_NVLINK_RX, 139, ALL_LINKS, 1024.0, total=True),
    Field(m.GPU_NVLINK_TX, 202, ALL_LINKS, 1.0, total=True),
    Field(m.GPU_NVLINK_RX, 204, ALL_LINKS, 1.0, total=True),
    Field(m.GPU_THROTTLED_POWER, 74, 0, 1e-9, total=True),
    Field(m.GPU_THROTTLED_SYNC, 76, 0, 1e-9, total=True),
    Field(m.GPU_THROTTLED_HEAT, 269, 0, 1e-9, total=True),
    Field(m.GPU_THROTTLED_HARDWARE_HEAT, 270, 0, 1e-9, total=True),
    Field(m.GPU_THROTTLED_BRAKE, 271, 0, 1e-9, total=True),
)
PCIE: Final = (m.GPU_PCIE_TX, m.GPU_PCIE_RX)
MOST_LANES: Final = 16
# For drivers without throttle counters: the bits that say whether the GPU is slowed at the moment.
REASON_BITS = (
    (m.GPU_THROTTLED_POWER, 0x04),
    (m.GPU_THROTTLED_SYNC, 0x10),
    (m.GPU_THROTTLED_HEAT, 0x20),
    (m.GPU_THROTTLED_HARDWARE_HEAT, 0x40),
    (m.GPU_THROTTLED_BRAKE, 0x80),
)


class Fields:
    """The counters of one GPU; asks only once for a field that it will never have."""

    def __init__(self, nvml: Nvml, handle: Any, link: float | None) -> None:
        """``link``: bytes per second of its PCIe link at most; ``None``: not known."""
        self._nvml = nvml
        self._handle = handle
        self._link = max(pcie.LANE.values()) * MOST_LANES if link is None else link
        self._never: dict[Field, str] = {}
        self._rates = Rates()
        self._energy_last: float | None = None
        self._energy = 0.0

    def read(self, now: float, reading: Reading) -> None:
        """Add every field's value, or why it has none."""
        unknown: dict[Field, str] = {}
        asked = [f for f in FIELDS if f not in self._never]
        for field, answer in zip(asked, self._ask(asked, unknown), strict=False):
            if field.metric not in reading.values:
                reason = self._take(field, answer, now, reading)
                if reason is not None:
                    unknown[field] = reason
        self._never |= {f: reason for f, reason in unknown.items() if reason in PERMANENT}
        for field, reason in (self._never | unknown).items():
            if field.metric not in reading.values:
                reading.unknown[field.metric] = reason
        self._throttle_bits(reading)

    def _ask(self, asked: list[Field], unknown: dict[Field, str]) -> Any:
        if not asked:
            return ()
        wanted = [(f.field_id, f.scope) for f in asked]
        try:
            return self._nvml.call("nvmlDeviceGetFieldValues", self._handle, wanted)
        except Unknown as error:
            unknown |= dict.fromkeys(asked, error.reason)
            return ()

    def _take(self, field: Field, answer: Any, now: float, reading: Reading) -> str | None:
        """Put one answer into the reading, or return why it has no value."""
        if answer.nvmlReturn:
            return reason_of(answer.nvmlReturn)
        raw = getattr(answer.value, _MEMBERS[answer.valueType])
        if raw in SENTINELS:
            return BLANK
        narrow = answer.valueType == _UNSIGNED_INT
        since = self._rates.since(field)
        value = self._value(field, raw, now, narrow=narrow)
        if value is None:
            return FIRST
        is_sure = since is not None and (now - since) * self._link < _WRAP
        if narrow and field.metric in PCIE and not is_sure:
            return WRAPS
        reading.values[field.metric] = value
        return None

    def _value(self, field: Field, raw: float, now: float, *, narrow: bool) -> float | None:
        if not field.total:
            return raw * field.factor
        if field.metric.kind == "counter":
            return self._since_start(raw * field.factor)
        rate = self._rates.per_second(
            field, now, raw * field.factor, _WRAP * field.factor if narrow else None
        )
        if rate is None:
            return None
        return min(1.0, round(rate, 5)) if field.metric.unit == "ratio" else float(round(rate))

    def _since_start(self, total: float) -> float:
        """Return the growth since the first reading; a driver reload restarts at zero."""
        if self._energy_last is not None:
            self._energy += total - self._energy_last if total >= self._energy_last else total
        self._energy_last = total
        return round(self._energy, 3)

    def _throttle_bits(self, reading: Reading) -> None:
        missing = [
            (metric, bit) for metric, bit in REASON_BITS if reading.unknown.get(metric) in PERMANENT
        ]
        if not missing:
            return
        bits = self._nvml.get("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if bits is None:
            return
        for metric, bit in missing:
            reading.unknown.pop(metric)
            reading.values[metric] = float(bool(bits & bit))
