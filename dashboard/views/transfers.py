"""Transfers between host and device: now, and in the newest trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whyidle.dashboard.views.newest import Newest
from whyidle.dashboard.views.series import Series, SeriesSource, Subject
from whyidle.dashboard.views.time_range import FEW_POINTS
from whyidle.monitor.core import metrics as m
from whyidle.monitor.core import pcie
from whyidle.monitor.core.contracts.trace import CopyJson, TraceJson
from whyidle.monitor.core.metrics import Metric
from whyidle.monitor.core.slices import Slice
from whyidle.monitor.store import Gpu, Reader, Run

PCIE: Final = (m.GPU_PCIE_RX, m.GPU_PCIE_TX)
NVLINK: Final = (m.GPU_NVLINK_RX, m.GPU_NVLINK_TX)
DIRECTIONS: Final = ("host to device", "device to host")
PAGEABLE: Final = "pageable"
MOST_TRACES: Final = 4


@dataclass(frozen=True, slots=True)
class Link:
    """The current PCIe link of a GPU."""

    limit: float | None
    words: str
    # What GPU and slot support, if that is faster.
    could_be: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """What the newest trace of a GPU shows about copies."""

    trace: int
    age_s: float
    rows: Sequence[CopyJson]
    # Shares of the traced time: copies ran; only copies ran.
    copying: float
    exposed: float
    # The share of pageable bytes by direction; ``None`` if unknown.
    pageable: Mapping[str, float | None]


def link(newest: Newest, gpu: Gpu) -> Link:
    """Return how much the link of a GPU can carry in each direction."""
    generation = newest.get(m.GPU_PCIE_GENERATION, gpu.id)
    width = newest.get(m.GPU_PCIE_WIDTH, gpu.id)
    if generation.value is None or width.value is None:
        return Link(None, generation.why or width.why)
    limit = pcie.limit(generation.value, width.value)
    words = f"PCIe {generation.value:.0f} x{width.value:.0f}"
    info = gpu.info or {}
    most = info.get("pcie_generation_max"), info.get("pcie_width_max")
    best = pcie.limit(*most)
    slower = limit is not None and best is not None and limit < best
    return Link(limit, words, f"PCIe {most[0]} x{most[1]}" if slower else "")


def carried(source: SeriesSource, metric: Metric, gpus: Sequence[Subject]) -> Series:
    """Return the traffic over the links of some GPUs, as their mean."""
    return source.mean(metric, gpus, _NAMES[metric], FEW_POINTS)


_NAMES: Final[dict[Metric, str]] = {
    m.GPU_PCIE_RX: "to the GPU (H2D)",
    m.GPU_PCIE_TX: "from the GPU (D2H)",
    m.GPU_NVLINK_RX: "in",
    m.GPU_NVLINK_TX: "out",
}


def copies(reader: Reader, run: Run, now_ms: int) -> Copies | None:
    """Return the copies in the newest trace of a GPU; ``None`` if there is no such trace."""
    for kept in reader.newest_traces(run.id, MOST_TRACES):
        answer = kept.get("answer")
        devices = answer.get("devices", ()) if isinstance(answer, dict) else ()
        cards = [device for device in devices if device.get("kind") == "gpu"]
        span = sum(card["span_ns"] for card in cards)
        if span and isinstance(answer, dict):
            rows = answer.get("copies", ())
            return Copies(
                trace=kept["id"],
                age_s=max(0.0, (now_ms - kept["ts_ms"]) / 1000),
                rows=rows,
                copying=sum(card["copy_ns"] for card in cards) / span,
                exposed=_exposed(answer, span),
                pageable={each: _pageable(rows, each) for each in DIRECTIONS},
            )
    return None


def _exposed(answer: TraceJson, span: int) -> float:
    return answer["budget"]["slices"].get(Slice.EXPOSED_COPY, 0) / span


def _pageable(rows: Sequence[CopyJson], direction: str) -> float | None:
    """Return the share of a direction's bytes that goes through pageable memory."""
    mine = [row for row in rows if row["direction"] == direction]
    sizes = [(size, row["memory"]) for row in mine if (size := row["bytes"]) is not None]
    whole = sum(size for size, _ in sizes)
    if len(sizes) < len(mine) or not whole:
        return None
    return sum(size for size, memory in sizes if memory == PAGEABLE) / whole
