"""The slices of a time budget, declared once: contract, words and colours derive from here.

They divide the wall time of a step or window without gaps or overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Slice(StrEnum):
    """One part of a budget, by its name in the JSON contract."""

    COMPUTE = "compute"
    EXPOSED_COMM = "exposed_comm"
    EXPOSED_COPY = "exposed_copy"
    IDLE_INPUT = "idle_input"
    IDLE_DISPATCH = "idle_dispatch"
    IDLE_QUEUE = "idle_queue"
    IDLE_ALLOC = "idle_alloc"
    IDLE_COMPILE = "idle_compile"
    IDLE_SYNC = "idle_sync"
    IDLE_GC = "idle_gc"
    IDLE_IO = "idle_io"
    IDLE_OTHER_PROCESS = "idle_other_process"
    IDLE_UNKNOWN = "idle_unknown"

    @property
    def idle(self) -> bool:
        """Whether the device did nothing."""
        return self.value.startswith("idle_")


@dataclass(frozen=True, slots=True)
class Look:
    """How a slice is named and drawn for a person."""

    words: str
    # What the device is doing, or the host that keeps it waiting.
    meaning: str
    colour: str
    # Distinguishes neighbours where there is no colour.
    glyph: str


# Okabe and Ito's eight colours and four lighter or darker ones: safe for colour-blind eyes.
LOOKS: Final[dict[Slice, Look]] = {
    Slice.COMPUTE: Look("compute", "kernels are running", "#009E73", "█"),
    Slice.EXPOSED_COMM: Look("communication", "only communication is running", "#0072B2", "▓"),
    Slice.EXPOSED_COPY: Look("copies", "only copies are running", "#56B4E9", "▒"),
    Slice.IDLE_INPUT: Look("idle: input", "the job waits for its data loader", "#D55E00", "i"),
    Slice.IDLE_DISPATCH: Look(
        "idle: host dispatch", "Python and the framework prepare the next launch", "#E69F00", "d"
    ),
    Slice.IDLE_QUEUE: Look(
        "idle: queue", "work was launched and has not started yet", "#F0E442", "q"
    ),
    Slice.IDLE_ALLOC: Look(
        "idle: allocator", "the driver allocates or frees device memory", "#CC79A7", "a"
    ),
    Slice.IDLE_COMPILE: Look("idle: compile", "a program is being compiled", "#7B3294", "c"),
    Slice.IDLE_SYNC: Look("idle: sync", "the host waits for the device", "#882255", "s"),
    Slice.IDLE_GC: Look("idle: gc", "Python collects garbage", "#AA4499", "g"),
    Slice.IDLE_IO: Look("idle: checkpoint, I/O", "the job saves or loads state", "#8C6D31", "o"),
    Slice.IDLE_OTHER_PROCESS: Look(
        "idle: other process", "another process has the device", "#44546A", "p"
    ),
    Slice.IDLE_UNKNOWN: Look("idle: unknown", "nothing recorded says why", "#999999", "·"),
}
# How a warning of a trace begins that what was seen beside it answers.
UNEXPLAINED: Final = "Nothing recorded explains"
