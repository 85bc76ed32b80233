"""What became of the time of each GPU while it was watched: sums over all looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.prices import Prices
from whyidle.monitor.export import families as f
from whyidle.monitor.export.exposition import Family, Labels
from whyidle.monitor.runs.estimate import ran
from whyidle.monitor.sources.gpu import GpuReading

# Utilisation is in whole percents.
AT_REST: Final = 0.005
# Whether a process holds memory of it, as far as the driver says.
Held = Literal["true", "false", "unknown"]


@dataclass(slots=True)
class _Sums:
    """The time of one state."""

    seconds: float = 0.0
    idle: float = 0.0
    joules: float = 0.0


@dataclass(slots=True)
class GpuTime:
    """One GPU."""

    held: dict[Held, _Sums] = field(
        default_factory=lambda: {"true": _Sums(), "false": _Sums(), "unknown": _Sums()}
    )
    xids: int = 0
    # Bytes over PCIe, by direction, as the rate of each look says.
    pcie: dict[str, float] = field(default_factory=lambda: {"transmit": 0.0, "receive": 0.0})
    # At some look the power was not known: then the energy is not.
    lacks_power: bool = False
    # At the last look; ``None``: the driver says nothing of it.
    is_held_idle: bool | None = None

    def take(self, read: GpuReading, seconds: float) -> None:
        """Take in what a look has found of the time since the one before."""
        busy = busy_share(read)
        held: Held = "unknown" if read.processes_unknown else "true" if read.processes else "false"
        self.is_held_idle = None
        for way, metric in (("transmit", m.GPU_PCIE_TX), ("receive", m.GPU_PCIE_RX)):
            self.pcie[way] += seconds * (read.reading.get(metric) or 0.0)
        if busy is None:
            return
        if held != "unknown":
            self.is_held_idle = held == "true" and busy <= AT_REST
        sums = self.held[held]
        sums.seconds += seconds
        sums.idle += seconds * (1.0 - busy)
        watts = read.reading.get(m.GPU_POWER)
        self.lacks_power |= watts is None
        sums.joules += seconds * (1.0 - busy) * (watts or 0.0)


def busy_share(read: GpuReading) -> float | None:
    """Return the share of the time in which a kernel ran, at most."""
    return ran(read.reading)[1]


def families(
    labels: Mapping[str, Labels], readings: Mapping[str, GpuReading], times: Mapping[str, GpuTime]
) -> list[Family]:
    """Return all that is said of GPUs under names of ours."""
    recorded = {metric: f.of_metric(metric) for metric in f.OF_GPU}
    answers, lost, processes, resting, xids = (
        name.family()
        for name in (f.GPU_ANSWERS, f.GPU_LOST, f.GPU_PROCESSES, f.GPU_HELD_IDLE, f.GPU_XIDS)
    )
    for index, named in labels.items():
        read, time = readings.get(index), times.get(index)
        if read is None or time is None:
            continue
        answers.add(float(bool(read.reading.values)), named)
        lost.add(float(read.lost), named)
        if read.processes_unknown is None:
            processes.add(float(len(read.processes)), named)
        resting.add(None if time.is_held_idle is None else float(time.is_held_idle), named)
        xids.add(float(time.xids), named)
        for metric, value in read.reading.values.items():
            recorded[metric].add(value * metric.exported_factor, named)
    return [answers, lost, processes, resting, xids, *recorded.values(), *_sums(labels, times)]


def _sums(labels: Mapping[str, Labels], times: Mapping[str, GpuTime]) -> list[Family]:
    prices = Prices.here()
    watched, idle, joules, cost = (
        name.family() for name in (f.GPU_SECONDS, f.GPU_IDLE, f.GPU_IDLE_JOULES, f.GPU_IDLE_COST)
    )
    for index, time in times.items():
        for held, sums in time.held.items():
            if index not in labels or (held == "unknown" and not sums.seconds):
                continue
            named = {**labels[index], "held": held}
            watched.add(sums.seconds, named)
            idle.add(sums.idle, named)
            known = None if time.lacks_power else sums.joules
            joules.add(known, named)
            money, _ = prices.of(known, sums.idle / 3600)
            cost.add(money, {**named, "currency": prices.currency})
    return [watched, idle, joules, cost]
