"""The numbers at the top of the memory page: how much is in use, and whether it grows."""

from __future__ import annotations

from collections.abc import Sequence

from whyidle.dashboard import markup
from whyidle.dashboard.markup import Tile
from whyidle.dashboard.pages._page_data import PageData
from whyidle.dashboard.views import memory
from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.memory import POOL, Growth
from whyidle.dashboard.views.series import Series
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import numbers

NO_GPU = "no GPU is read"
NO_AGENT = "no process has the agent inside"


def tiles(
    data: PageData,
    pools: Sequence[tuple[Trainer, Sequence[Series]]],
    grown: Sequence[Growth],
    why: str | None,
) -> str:
    """Return the numbers."""
    return markup.tiles([
        _in_use(data),
        _peak(data),
        _pool("Framework, in use", m.PROCESS_POOL_USED, data, pools),
        _pool("Framework, reserved", m.PROCESS_POOL_RESERVED, data, pools),
        _grows(grown, why),
    ])  # fmt: skip


def _grows(grown: Sequence[Growth], why: str | None) -> Tile:
    first = next((one for one in grown if one.grows), None)
    text = f"+{numbers.size(first.per_hour)}/h" if first else "none" if grown else None
    return Tile("Growth", text, why or (full(first) if first else "in the last minutes"))


def _in_use(data: PageData) -> Tile:
    name = "GPU memory in use"
    used, total = _sum(data, m.GPU_MEMORY_USED), _sum(data, m.GPU_MEMORY_TOTAL)
    if used is None:
        known = [data.newest.get(m.GPU_MEMORY_USED, gpu.id) for gpu in data.chosen]
        why = next((one.why for one in known if one.value is None), NO_GPU)
        return Tile(name, None, why)
    note = f"{used / total:.0%} of {numbers.size(total)}" if total else ""
    several = f", {len(data.chosen)} GPUs" if len(data.chosen) > 1 else ""
    return Tile(name, numbers.size(used), note + several)


def _sum(data: PageData, metric: Metric) -> float | None:
    values = [data.newest.get(metric, gpu.id).value for gpu in data.chosen]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _peak(data: PageData) -> Tile:
    all_series = data.series.of(m.GPU_MEMORY_USED, data.chosen)
    peaks = [series.peak for series in all_series]
    highest = max((peak[1] for peak in peaks if peak is not None), default=None)
    several = "of the fullest GPU, " if len(all_series) > 1 else ""
    unknown = next((series.unknown for series in all_series if series.unknown), NO_GPU)
    return Tile(
        "Peak",
        None if highest is None else numbers.size(highest),
        unknown if highest is None else f"{several}in what is shown",
    )


def _pool(
    name: str, metric: Metric, data: PageData, pools: Sequence[tuple[Trainer, Sequence[Series]]]
) -> Tile:
    if data.span.is_live:
        mine = memory.held(data.series, metric, [who for who, _ in pools], data.newest.now_ms)
    else:
        mine = [all_series[POOL.index(metric)] for _, all_series in pools]
    values = [series.last for series in mine if series.last is not None]
    unknown = next((series.unknown for series in mine if series.unknown), NO_AGENT)
    several = f", {len(values)} processes" if len(values) > 1 else ""
    return Tile(
        name,
        numbers.size(sum(values)) if values else None,
        f"by its own count{several}" if values else unknown,
    )


def full(one: Growth) -> str:
    """Return whether memory keeps growing, and when it is full."""
    if not one.grows:
        return "no longer grows"
    if one.full_in_s is None:
        return "keeps growing"
    return f"keeps growing: full in about {_roughly(one.full_in_s)}"


def _roughly(seconds: float) -> str:
    """Return a predicted time, in round units."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
