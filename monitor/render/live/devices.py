"""The GPUs of a job: the only one, or the mean, the best and the worst of several."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.text import Text

from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.reading import Reading, by_reason
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.render import numbers, plain
from whyidle.monitor.render.live.history import History, Values
from whyidle.monitor.render.live.lines import GAP, aligned, cut
from whyidle.monitor.runs.estimate import CHANGED

WIDE: Final = 110
# The latest ticks say which GPU is the best: one tick differs by chance.
LATEST: Final = 10
SHORTEST: Final = 8
# (title, metric, only on a wide screen)
_COLUMNS: Final[tuple[tuple[str, Metric, bool], ...]] = (
    ("SM", m.GPU_SM_ACTIVITY, False),
    ("tensor", m.GPU_TENSOR_ACTIVITY, False),
    ("DRAM", m.GPU_DRAM_ACTIVITY, True),
    ("PCIe in", m.GPU_PCIE_RX, True),
    ("PCIe out", m.GPU_PCIE_TX, True),
    ("power", m.GPU_POWER, False),
    ("clock", m.GPU_SM_CLOCK, True),
    ("temp", m.GPU_TEMPERATURE, False),
)
_SHOWN: Final = {m.GPU_UTILISATION, m.GPU_MEMORY_USED, *(column[1] for column in _COLUMNS)}


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU."""

    index: str
    reading: Reading
    used: Values
    # It is used far more, or far less, than most of the others.
    odd: bool = False

    @property
    def lately(self) -> float | None:
        """How much it was used in the latest ticks."""
        known = [value for value in self.used[-LATEST:] if value is not None]
        return statistics.fmean(known) if known else None


@dataclass(frozen=True, slots=True)
class Devices:
    """All that are shown, or why there are none."""

    name: str
    each: tuple[Device, ...]
    warnings: tuple[str, ...] = ()
    # Why figures are missing.
    unknown: tuple[str, ...] = ()


def of(snapshot: Snapshot, history: History, *, everything: bool) -> Devices:
    """Return the GPUs to show."""
    facts = snapshot.shown(everything=everything)
    if not facts:
        problem = snapshot.gpu_problem
        return Devices("", (), (plain.briefly(problem) if problem else snapshot.owned.how,))
    each = [
        Device(x.index, snapshot.gpus[x.index].reading, history.of(m.GPU_UTILISATION, x.index))
        for x in facts
    ]
    lately = [device.lately for device in each if device.lately is not None]
    middle = statistics.median(lately) if lately else 0.0
    marked = tuple(
        replace(x, odd=x.lately is not None and abs(x.lately - middle) >= CHANGED) for x in each
    )
    names = {x.name.removeprefix("NVIDIA ") for x in facts}
    name = names.pop() if len(names) == 1 else "GPUs"
    unknown = (
        (metric, reason)
        for device in each
        for metric, reason in device.reading.unknown.items()
        if metric in _SHOWN
    )
    return Devices(
        f"{len(each)}x {name}" if len(each) > 1 else name,
        marked,
        (*_odd(marked), *_others(snapshot, {x.index for x in facts})),
        tuple(by_reason(unknown)),
    )


def _odd(each: Sequence[Device]) -> list[str]:
    odd = [device.index for device in each if device.odd]
    said = ", ".join(odd)
    return [f"GPU {said}: used {100 * CHANGED:.0f} points more or less than most"] if odd else []


def _others(snapshot: Snapshot, shown: set[str]) -> list[str]:
    """Name the other processes on these GPUs."""
    found = sorted(
        (index, pid)
        for index in shown
        for pid in snapshot.gpus[index].processes
        if pid not in snapshot.job_pids
    )
    if not snapshot.owned.sure or not found:
        return []
    said = ", ".join(f"pid {pid} on GPU {index}" for index, pid in found[:4])
    return [f"not this job: {said}"]


def lines(devices: Devices, width: int, *, each: bool = False) -> list[Text]:
    """Return a table of the only one, of a few figures about several, or of each of them."""
    shown = _table(devices, width, _each(devices) if each else _rows(devices))
    # Why there are dashes: one line, the rest is a key away.
    shown += [cut(Text(f"! {said}", "yellow"), width) for said in devices.warnings]
    most = None if each else 1
    dashes = devices.unknown[:most]
    return shown + [cut(Text(f"{numbers.DASH} {said}", "dim"), width) for said in dashes]


# A row: its name, its reading, its history, whether it is odd.
Row = tuple[str, Reading, Values, bool]


def _each(devices: Devices) -> list[Row]:
    return [(f"GPU {x.index}", x.reading, x.used, x.odd) for x in devices.each]


def _rows(devices: Devices) -> list[Row]:
    each = devices.each
    if len(each) < 2:
        return _each(devices)
    ranked = sorted(each, key=lambda device: device.lately or 0.0)
    chosen = [("best", ranked[-1]), ("worst", ranked[0])]
    rows = [(f"{name} GPU {x.index}", x.reading, x.used, x.odd) for name, x in chosen]
    return [("mean", *_mean(each), False), *rows]


def _mean(each: Sequence[Device]) -> tuple[Reading, Values]:
    """Return the means over the devices of what is known of all of them."""
    common = set.intersection(*(set(device.reading.values) for device in each))
    values = {x: statistics.fmean(d.reading.values[x] for d in each) for x in common}
    ticks = zip(*(device.used for device in each), strict=False)
    used = [
        statistics.fmean(v for v in tick if v is not None) if None not in tick else None
        for tick in ticks
    ]
    return Reading(values), used


def _table(devices: Devices, width: int, rows: Sequence[Row]) -> list[Text]:
    if not rows:
        return []
    columns = [column for column in _COLUMNS if width >= WIDE or not column[2]]
    head = [devices.name, "used", *(title for title, _, _ in columns), "memory"]
    table: list[list[Text | str]] = [[Text(cell, "dim") for cell in head]]
    for name, reading, _, odd in rows:
        figures = [numbers.of(reading, metric) for _, metric, _ in columns]
        used = numbers.of(reading, m.GPU_UTILISATION)
        label = Text(f"{name} !" if odd else name, "yellow" if odd else "")
        memory = (reading.get(x) for x in (m.GPU_MEMORY_USED, m.GPU_MEMORY_TOTAL))
        table.append([label, used, *figures, numbers.out_of(*memory)])
    room = width - aligned(table, 10 * width)[0].cell_len - len(GAP)
    if room >= SHORTEST:
        table[0].insert(2, "")
        for line, (_, _, used_before, _) in zip(table[1:], rows, strict=True):
            line.insert(2, Text(numbers.changes(used_before, room), "cyan"))
    return aligned(table, width)
