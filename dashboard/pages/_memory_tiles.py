"""The numbers at the top of the memory page: how much is held, and whether it grows."""

from __future__ import annotations

from collections.abc import Sequence

from whyidle.dashboard import markup
from whyidle.dashboard.markup import Tile
from whyidle.dashboard.pages._page_data import Asked
from whyidle.dashboard.views import memory
from whyidle.dashboard.views.job import Trainer
from whyidle.dashboard.views.memory import POOL, Growth
from whyidle.dashboard.views.series import Course
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.render import numbers

NO_GPU = "no GPU is read"
NO_AGENT = "no process has the agent inside"


def tiles(
    asked: Asked,
    pools: Sequence[tuple[Trainer, Sequence[Course]]],
    grown: Sequence[Growth],
    why: str | None,
) -> str:
    """Return the numbers."""
    return markup.tiles([
        _in_use(asked),
        _peak(asked),
        _pool("Framework uses", m.PROCESS_POOL_USED, asked, pools),
        _pool("Framework holds", m.PROCESS_POOL_RESERVED, asked, pools),
        _grows(grown, why),
    ])  # fmt: skip


def _grows(grown: Sequence[Growth], why: str | None) -> Tile:
    first = next((one for one in grown if one.grows), None)
    text = f"+{numbers.size(first.per_hour)}/h" if first else "none" if grown else None
    return Tile("Growth", text, why or (full(first) if first else "in the last minutes"))


def _in_use(asked: Asked) -> Tile:
    name = "GPU memory in use"
    used, total = _sum(asked, m.GPU_MEMORY_USED), _sum(asked, m.GPU_MEMORY_TOTAL)
    if used is None:
        known = [asked.newest.get(m.GPU_MEMORY_USED, gpu.id) for gpu in asked.chosen]
        why = next((one.why for one in known if one.value is None), NO_GPU)
        return Tile(name, None, why)
    note = f"{used / total:.0%} of {numbers.size(total)}" if total else ""
    several = f", {len(asked.chosen)} GPUs" if len(asked.chosen) > 1 else ""
    return Tile(name, numbers.size(used), note + several)


def _sum(asked: Asked, metric: Metric) -> float | None:
    values = [asked.newest.get(metric, gpu.id).value for gpu in asked.chosen]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _peak(asked: Asked) -> Tile:
    courses = asked.told.of(m.GPU_MEMORY_USED, asked.chosen)
    peaks = [course.peak for course in courses]
    highest = max((peak[1] for peak in peaks if peak is not None), default=None)
    several = "of the fullest GPU, " if len(courses) > 1 else ""
    unknown = next((course.unknown for course in courses if course.unknown), NO_GPU)
    return Tile(
        "Peak",
        None if highest is None else numbers.size(highest),
        unknown if highest is None else f"{several}in what is shown",
    )


def _pool(
    name: str, metric: Metric, asked: Asked, pools: Sequence[tuple[Trainer, Sequence[Course]]]
) -> Tile:
    if asked.span.is_live:
        mine = memory.held(asked.told, metric, [who for who, _ in pools], asked.newest.now_ms)
    else:
        mine = [courses[POOL.index(metric)] for _, courses in pools]
    values = [course.last for course in mine if course.last is not None]
    unknown = next((course.unknown for course in mine if course.unknown), NO_AGENT)
    several = f", {len(values)} processes" if len(values) > 1 else ""
    return Tile(
        name,
        numbers.size(sum(values)) if values else None,
        f"by its own count{several}" if values else unknown,
    )


def full(one: Growth) -> str:
    """Return whether it goes on, and until when it can."""
    if not one.grows:
        return "does not go on growing"
    if one.full_in_s is None:
        return "goes on growing"
    return f"goes on growing: full in about {_roughly(one.full_in_s)}"


def _roughly(seconds: float) -> str:
    """Return a time that is foreseen: nobody knows it to the second."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
