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


# Drawn by a search for colours that stay apart for each kind of colour blindness: a test holds it.
# Blue is work, everything else is time lost; what is unknown has no hue.
LOOKS: Final[dict[Slice, Look]] = {
    Slice.COMPUTE: Look("compute", "kernels are running", "#085EBF", "█"),
    Slice.EXPOSED_COMM: Look("communication", "only communication is running", "#5B4D64", "▓"),
    Slice.EXPOSED_COPY: Look("copies", "only copies are running", "#B0DBF7", "▒"),
    Slice.IDLE_INPUT: Look("idle: input", "the job waits for its data loader", "#C32C08", "i"),
    Slice.IDLE_DISPATCH: Look(
        "idle: host dispatch", "Python and the framework prepare the next launch", "#D171F0", "d"
    ),
    Slice.IDLE_QUEUE: Look(
        "idle: queue", "work was launched and has not started yet", "#F78E29", "q"
    ),
    Slice.IDLE_ALLOC: Look(
        "idle: allocator", "the driver allocates or frees device memory", "#F7BE08", "a"
    ),
    Slice.IDLE_COMPILE: Look("idle: compile", "a program is being compiled", "#A8089A", "c"),
    Slice.IDLE_SYNC: Look("idle: sync", "the host waits for the device", "#089C77", "s"),
    Slice.IDLE_GC: Look("idle: gc", "Python collects garbage", "#F74F5E", "g"),
    Slice.IDLE_IO: Look(
        "idle: I/O, sleep", "the job waits for files or others, or sleeps", "#9D0D1B", "o"
    ),
    Slice.IDLE_OTHER_PROCESS: Look(
        "idle: other process",
        "another process has the device, or the job waits for one",
        "#8374B6",
        "p",
    ),
    Slice.IDLE_UNKNOWN: Look("idle: unknown", "nothing recorded says why", "#A9B2B6", "·"),
}
# How a warning of a trace begins that what was seen beside it answers.
UNEXPLAINED: Final = "Nothing recorded explains"


def is_light(colour: str) -> bool:
    """Tell whether black text is read better on a colour than white text, as WCAG counts it."""
    values = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    # Both contrasts are equal there: (1 + 0.05) / (y + 0.05) == (y + 0.05) / 0.05.
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179
