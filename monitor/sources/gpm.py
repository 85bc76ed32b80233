"""GPM (Hopper and later): real SM, tensor and DRAM activity, from the difference of two samples."""

from __future__ import annotations

import math
from typing import Any

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import BLANK, FIRST, UNSUPPORTED, Reading
from whyidle.monitor.sources.nvml import PERMANENT, Nvml, Unknown, reason_of

# The driver needs more than 100 ms between the samples of a pair.
SHORTEST_INTERVAL = 0.15
MIB = 1 << 20
PERCENT = 0.01
# (metric, GPM id, factor to the metric's unit)
ACTIVITY: tuple[tuple[Metric, int, float], ...] = (
    (m.GPU_ENGINE_ACTIVITY, 1, PERCENT),
    (m.GPU_SM_ACTIVITY, 2, PERCENT),
    (m.GPU_SM_OCCUPANCY, 3, PERCENT),
    (m.GPU_TENSOR_ACTIVITY, 5, PERCENT),
    (m.GPU_DRAM_ACTIVITY, 10, PERCENT),
    (m.GPU_FP32_ACTIVITY, 12, PERCENT),
    (m.GPU_FP16_ACTIVITY, 13, PERCENT),
)
# Used if the driver lacks its cumulative counters.
TRAFFIC: tuple[tuple[Metric, int, float], ...] = (
    (m.GPU_PCIE_TX, 20, MIB),
    (m.GPU_PCIE_RX, 21, MIB),
    (m.GPU_NVLINK_RX, 60, MIB),
    (m.GPU_NVLINK_TX, 61, MIB),
)
WANTED = ACTIVITY + TRAFFIC
# A share above this is a sentinel or a glitch of the counters.
HIGHEST_SHARE = 1.02


class Gpm:
    """Two rotating samples of one GPU: each tick closes one interval and opens the next."""

    def __init__(self, nvml: Nvml, handle: Any, instance: int | None = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._old: Any = None
        self._spare: Any = None
        self._taken = 0.0
        self._request: Any = None
        self._why_not: str | None = self._open()

    def _open(self) -> str | None:
        try:
            support = self._nvml.call("nvmlGpmQueryDeviceSupport", self._handle)
            if not support.isSupportedDevice:
                return UNSUPPORTED
            self._old = self._nvml.call("nvmlGpmSampleAlloc")
            self._spare = self._nvml.call("nvmlGpmSampleAlloc")
        except Unknown as unknown:
            return unknown.reason
        self._request = self._nvml.gpm_request(tuple(w[1] for w in WANTED))
        return None

    def read(self, now: float, reading: Reading) -> None:
        """Add the activity since the last call, if due."""
        if self._why_not is not None:
            self._all_unknown(reading, self._why_not)
            return
        if self._taken and now - self._taken < SHORTEST_INTERVAL:
            return
        try:
            self._sample(self._spare)
        except Unknown as unknown:
            self._taken = 0.0
            if unknown.reason in PERMANENT:
                self._why_not = unknown.reason
            self._all_unknown(reading, unknown.reason)
            return
        first, self._taken = not self._taken, now
        self._old, self._spare = self._spare, self._old
        if first:
            self._all_unknown(reading, FIRST)
        else:
            self._compare(reading)

    def _sample(self, into: Any) -> None:
        if self._instance is None:
            self._nvml.call("nvmlGpmSampleGet", self._handle, into)
        else:
            self._nvml.call("nvmlGpmMigSampleGet", self._handle, self._instance, into)

    def _compare(self, reading: Reading) -> None:
        # After the rotation the newer sample is `_old`, and the older one is the spare.
        self._request.sample1, self._request.sample2 = self._spare, self._old
        try:
            self._nvml.call("nvmlGpmMetricsGet", self._request)
        except Unknown as unknown:
            self._all_unknown(reading, unknown.reason)
            return
        for slot, (metric, _, factor) in enumerate(WANTED):
            answer = self._request.metrics[slot]
            if answer.nvmlReturn:
                _note(reading, metric, None, reason_of(answer.nvmlReturn))
            else:
                _note(reading, metric, plausible(metric, answer.value * factor), BLANK)

    def _all_unknown(self, reading: Reading, reason: str) -> None:
        for metric, _, _ in WANTED:
            _note(reading, metric, None, reason)


def _note(reading: Reading, metric: Metric, value: float | None, reason: str) -> None:
    """Record the value unless a better source already has."""
    if metric in reading.values:
        return
    if value is not None:
        reading.unknown.pop(metric, None)
        reading.values[metric] = value
    else:
        reading.unknown.setdefault(metric, reason)


def plausible(metric: Metric, value: float) -> float | None:
    """Return the value; ``None`` for a sentinel that leaked through."""
    if not math.isfinite(value) or value < 0:
        return None
    if metric.unit == "ratio":
        return None if value > HIGHEST_SHARE else min(1.0, round(value, 5))
    return float(round(value))
