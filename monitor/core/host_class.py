"""What a thread of the job does on the host, declared once: JSON names, words and colours."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from whyidle.monitor.core.slices import LOOKS, Slice


class HostClass(StrEnum):
    """What the thread was at, by its name in the JSON contract."""

    PYTHON = "python"
    LIBRARY = "library"
    FRAMEWORK = "framework"
    EAGER = "eager"
    UNCLEAR = "unclear"
    LOADER = "loader"
    COMPILE = "compile"
    READ = "read"
    PUT = "put"
    WAIT = "wait"
    LOCK = "lock"
    PEER_WAIT = "peer_wait"
    FRAMEWORK_WAIT = "framework_wait"


# Groups that verdicts go by. What hands work to the framework, and on a CPU may do it.
LAUNCHES: Final = frozenset({HostClass.FRAMEWORK, HostClass.EAGER, HostClass.PUT})
# What waits for a device, and with it for those that it exchanges gradients with.
AWAITS: Final = frozenset({HostClass.FRAMEWORK_WAIT, HostClass.READ})
OF_FRAMEWORK: Final = LAUNCHES | AWAITS
# What no device is waited for in.
ELSEWHERE: Final = frozenset({HostClass.WAIT, HostClass.PEER_WAIT})
# What runs on the host and is no part of a framework's own work.
HOST_WORK: Final = ELSEWHERE | {HostClass.PYTHON, HostClass.LIBRARY}


@dataclass(frozen=True, slots=True)
class HostLook:
    """How a class is named and drawn for a person."""

    words: str
    meaning: str
    colour: str


# A class of the host has the colour of the time that it costs the device; four have their own.
HOST_LOOKS: Final[dict[HostClass, HostLook]] = {
    HostClass.PYTHON: HostLook(
        "your Python", "the line runs by itself", LOOKS[Slice.IDLE_DISPATCH].colour
    ),
    HostClass.LIBRARY: HostLook(
        "libraries", "NumPy, image codecs, the standard library and others work", "#8A7B1F"
    ),
    HostClass.FRAMEWORK: HostLook(
        "framework",
        "PyTorch or JAX prepares work, and on a CPU does it",
        LOOKS[Slice.COMPUTE].colour,
    ),
    HostClass.EAGER: HostLook(
        "single operations", "JAX runs operations outside of any compiled function", "#7E4A91"
    ),
    HostClass.UNCLEAR: HostLook(
        "your line",
        "its own work or a call of the framework: not told apart",
        LOOKS[Slice.IDLE_UNKNOWN].colour,
    ),
    HostClass.LOADER: HostLook(
        "data loader", "a data loader works or waits", LOOKS[Slice.IDLE_INPUT].colour
    ),
    HostClass.COMPILE: HostLook(
        "compiling", "the framework compiles", LOOKS[Slice.IDLE_COMPILE].colour
    ),
    HostClass.READ: HostLook(
        "reading back",
        "waits for a value of the framework's, and copies it",
        LOOKS[Slice.EXPOSED_COPY].colour,
    ),
    HostClass.PUT: HostLook(
        "handing over", "copies arrays of the host to the framework's device", "#4C8FB0"
    ),
    HostClass.LOCK: HostLook(
        "waiting for Python's lock",
        "another thread of the job runs Python meanwhile",
        LOOKS[Slice.IDLE_OTHER_PROCESS].colour,
    ),
    HostClass.WAIT: HostLook(
        "waiting", "sleeps, or waits for files and others", LOOKS[Slice.IDLE_IO].colour
    ),
    HostClass.PEER_WAIT: HostLook(
        "waiting for another process",
        "for its answer or its next order, asleep or asking again and again",
        "#6A7B8C",
    ),
    HostClass.FRAMEWORK_WAIT: HostLook(
        "waiting in the framework",
        "for the device, or for what computes on a CPU",
        LOOKS[Slice.IDLE_SYNC].colour,
    ),
}
