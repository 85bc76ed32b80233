"""Turns NVML calls, as they are made, into a tape that the fake library of the tests plays.

tests/fake_nvml/README.md describes the format. What the GPU answered is kept; who it is (serial
number, UUID, other people's pids) is not.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gpu_recorder.processes import Processes
from whyidle.monitor.sources.fields import FIELDS

Value = int | float | str  # a string is an error: "!3"
Points = list[tuple[float, Value]]

UUID = "GPU-00000000-0000-4000-8000-000000000000"
NOT_SUPPORTED, NOT_FOUND, TIMEOUT, UNKNOWN = 3, 6, 10, 999
# Not supported, no permission, function not found, version mismatch: the next call says the same.
LASTING = frozenset({3, 4, 13, 25})
UINT = 1
TYPES = ("double", "uint", "ulong", "ullong", "llong", "int", "ushort")
CLOCKS = ("graphics", "sm", "mem", "video")
COUNTERS = frozenset({"energy"} | {f"field.{f.field_id}" for f in FIELDS if f.total})

_TEXTS = {"nvmlDeviceGetName": "name", "nvmlDeviceGetVbiosVersion": "vbios_version"}
_SETTINGS = {
    "nvmlSystemGetDriverVersion": "driver_version",
    "nvmlSystemGetNVMLVersion": "nvml_version",
    "nvmlSystemGetCudaDriverVersion": "cuda_driver_version",
}
# Function (without nvmlDeviceGet): the keys that it reads, with the arguments in their places.
_KEYS: dict[str, tuple[str, ...]] = {
    "UtilizationRates": ("utilization.gpu", "utilization.memory"),
    "EncoderUtilization": ("encoder",),
    "DecoderUtilization": ("decoder",),
    "MemoryInfo": ("memory.total", "memory.used"),
    "MemoryInfo_v2": ("memory.total", "memory.used", "memory.reserved"),
    "BAR1MemoryInfo": ("bar1.total", "bar1.used"),
    "MemoryBusWidth": ("memory.bus_width",),
    "PciInfo": ("pci.device_id", "pci.subsystem_id"),
    "PowerUsage": ("power.usage",),
    "EnforcedPowerLimit": ("power.limit",),
    "PowerManagementLimit": ("power.limit.management",),
    "PowerManagementDefaultLimit": ("power.limit.default",),
    "PowerManagementLimitConstraints": ("power.limit.min", "power.limit.max"),
    "TotalEnergyConsumption": ("energy",),
    "Temperature": ("temperature",),
    "TemperatureThreshold": ("temperature.threshold.{0}",),
    "FanSpeed": ("fan",),
    "NumFans": ("fan.count",),
    "PerformanceState": ("pstate",),
    "ClockInfo": ("clock.{clock}",),
    "MaxClockInfo": ("clock.max.{clock}",),
    "CurrentClocksEventReasons": ("clocks_event_reasons",),
    "SupportedClocksEventReasons": ("clocks_event_reasons.supported",),
    "CurrPcieLinkGeneration": ("pcie.gen",),
    "CurrPcieLinkWidth": ("pcie.width",),
    "MaxPcieLinkGeneration": ("pcie.gen_max",),
    "MaxPcieLinkWidth": ("pcie.width_max",),
    "PcieReplayCounter": ("pcie.replays",),
    "PcieSpeed": ("pcie.speed",),
    "NvLinkState": ("nvlink.{0}.active",),
    "MinorNumber": ("minor_number",),
    "Brand": ("brand",),
    "Architecture": ("architecture",),
    "NumGpuCores": ("cores",),
    "CudaComputeCapability": ("capability.major", "capability.minor"),
    "ComputeMode": ("compute_mode",),
    "PersistenceMode": ("persistence_mode",),
    "EccMode": ("ecc.mode", "ecc.mode.pending"),
    "MigMode": ("mig.enabled", "mig.pending"),
    "SupportedEventTypes": ("events",),
}
# What to read of an answer that is a structure.
_MEMBERS: dict[str, tuple[str, ...]] = {
    "UtilizationRates": ("gpu", "memory"),
    "MemoryInfo": ("total", "used"),
    "MemoryInfo_v2": ("total", "used", "reserved"),
    "BAR1MemoryInfo": ("bar1Total", "bar1Used"),
    "PciInfo": ("pciDeviceId", "pciSubSystemId"),
}


class Fault(NamedTuple):
    """A function that failed from here on, or until it answered again."""

    function: str
    start: float
    end: float
    error: int


def name_of(function: str, arguments: tuple[Any, ...]) -> str:
    """Return which function of the library this call reaches, where the binding hides a version."""
    versioned = function == "nvmlDeviceGetMemoryInfo" and len(arguments) > 1
    return f"{function}_v2" if versioned else function


class Tape:
    """One GPU's answers over time. ``take`` is the tap of :class:`whyidle...Nvml`."""

    def __init__(self, gpu: int) -> None:
        self.zero = time.monotonic()
        self.points: dict[str, Points] = {}
        self.texts: dict[str, str] = {"uuid": UUID}
        self.settings: dict[str, str] = {}
        self.field_types: dict[int, int] = {}
        self.xids: list[tuple[float, int]] = []
        self.faults: list[Fault] = []
        self.processes = Processes()
        self._gpu = gpu
        self._handle: int | None = None
        self._failing: dict[str, tuple[float, int]] = {}
        self._sampled: list[float] = []
        self._special: dict[str, Callable[[float, tuple[Any, ...], Any], None]] = {
            "PciInfo": self._pci,
            "FieldValues": self._fields,
            "ComputeRunningProcesses": self._process_list,
            "ProcessUtilization": self._process_use,
            "nvmlGpmQueryDeviceSupport": self._gpm_support,
            "nvmlGpmSampleGet": self._gpm_sample,
            "nvmlGpmMetricsGet": self._gpm_metrics,
            "nvmlEventSetWait_v2": self._xid,
        }

    def now(self) -> float:
        """Return the seconds since the tape began."""
        return time.monotonic() - self.zero

    def is_ours(self, function: str, arguments: tuple[Any, ...], outcome: Any) -> bool:
        """Tell whether a call is about this GPU, or about none."""
        if function == "nvmlDeviceGetHandleByIndex":
            ours = bool(arguments[0] == self._gpu)
            if ours and not isinstance(outcome, Exception):
                self._handle = _address(outcome)
            return ours
        about_device = function.startswith(("nvmlDevice", "nvmlGpmSampleGet", "nvmlGpmQuery"))
        return not (about_device and arguments) or _address(arguments[0]) == self._handle

    def take(
        self,
        function: str,
        arguments: tuple[Any, ...],
        seconds: float,
        outcome: Any,
    ) -> None:
        """Keep what one call answered."""
        # The driver read the value somewhere in the call.
        t = max(0.0, self.now() - seconds / 2)
        name = name_of(function, arguments)
        short = name.removeprefix("nvmlDeviceGet")
        error = error_of(outcome)
        if error is not None:
            self._fail(name, arguments, t, error)
            return
        self._mend(name, t)
        if function in _SETTINGS:
            self.settings[_SETTINGS[function]] = _text(outcome)
        elif function in _TEXTS:
            self.texts[_TEXTS[function]] = _text(outcome)
        elif short in self._special:
            self._special[short](t, arguments, outcome)
        # The first version of memory counts otherwise: only where it is all there is.
        if short in _KEYS and not (short == "MemoryInfo" and not self._failing_v2()):
            for key, value in zip(_keys(short, arguments), _values(short, outcome), strict=False):
                self._add(key, t, value)

    def _add(self, key: str, t: float, value: Value) -> None:
        self.points.setdefault(key, []).append((t, value))

    def _failing_v2(self) -> bool:
        return "nvmlDeviceGetMemoryInfo_v2" in self._failing

    def _fail(self, name: str, arguments: tuple[Any, ...], t: float, error: int) -> None:
        short = name.removeprefix("nvmlDeviceGet")
        if short in _KEYS and not short.startswith("MemoryInfo"):
            for key in _keys(short, arguments):
                self._add(key, t, f"!{error}")
        elif (short, error) == ("ProcessUtilization", NOT_FOUND):
            self.processes.take_use([], 0)
        elif (name, error) != ("nvmlEventSetWait_v2", TIMEOUT):
            self._failing.setdefault(name, (t, error))

    def _mend(self, name: str, t: float) -> None:
        if name in self._failing:
            start, error = self._failing.pop(name)
            self.faults.append(Fault(name, start, t, error))

    def all_faults(self) -> list[Fault]:
        """Return the faults, also those that had not ended; what lasts was there before."""
        still = [
            Fault(name, 0.0 if error in LASTING else start, float("inf"), error)
            for name, (start, error) in self._failing.items()
        ]
        return [*self.faults, *still]

    def _pci(self, _t: float, _arguments: Any, outcome: Any) -> None:
        self.texts["pci_bus_id"] = _text(outcome.busId)

    def _fields(self, t: float, _arguments: Any, outcome: Any) -> None:
        for answer in outcome:
            key = f"field.{answer.fieldId}" + (f".{answer.scopeId}" if answer.scopeId else "")
            if answer.nvmlReturn:
                self._add(key, t, f"!{answer.nvmlReturn}")
            else:
                self.field_types[answer.fieldId] = answer.valueType
                self._add(key, t, number(answer))

    def _gpm_support(self, t: float, _arguments: Any, outcome: Any) -> None:
        self._add("gpm.supported", t, outcome.isSupportedDevice)

    def _gpm_sample(self, t: float, _arguments: Any, _outcome: Any) -> None:
        self._sampled = [*self._sampled[-1:], t]

    def _gpm_metrics(self, _t: float, _arguments: Any, outcome: Any) -> None:
        # A mean between two samples holds from the first one on.
        for metric in outcome.metrics[: outcome.numMetrics]:
            error = metric.nvmlReturn
            value: Value = f"!{error}" if error else float(metric.value)
            self._add(f"gpm.{metric.metricId}", self._sampled[0], value)

    def _process_list(self, t: float, _arguments: Any, outcome: Any) -> None:
        self.processes.take_list(t, {p.pid: p.usedGpuMemory for p in outcome})

    def _process_use(self, _t: float, arguments: Any, outcome: Any) -> None:
        self.processes.take_use(outcome, arguments[1])

    def _xid(self, t: float, _arguments: Any, outcome: Any) -> None:
        if _address(outcome.device) == self._handle:
            self.xids.append((t, outcome.eventData))


def error_of(outcome: Any) -> int | None:
    """Return NVML's error code, None where there was an answer."""
    return int(getattr(outcome, "value", UNKNOWN)) if isinstance(outcome, Exception) else None


def number(answer: Any) -> int | float:
    """Return what a field holds, by its own word on the type."""
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    value: int | float = getattr(answer.value, members[answer.valueType])
    return value


def _keys(short: str, arguments: tuple[Any, ...]) -> list[str]:
    rest = arguments[1:]
    clock = CLOCKS[rest[0]] if "Clock" in short and rest else ""
    return [key.format(*rest, clock=clock) for key in _KEYS[short]]


def _values(short: str, outcome: Any) -> list[Value]:
    if short in _MEMBERS:
        return [getattr(outcome, member) for member in _MEMBERS[short]]
    return list(outcome) if isinstance(outcome, list | tuple) else [outcome]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
