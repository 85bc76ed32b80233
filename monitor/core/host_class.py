"""What a thread of the job does on the host, declared once: JSON names, words and colours."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
    FRAMEWORK_WAIT = "framework_wait"


@dataclass(frozen=True, slots=True)
class HostLook:
    """How a class is named and drawn for a person."""

    words: str
    meaning: str
    colour: str


# Of the colours of slices (core/slices.py): a class of the host has that of what it keeps waiting.
HOST_LOOKS: Final[dict[HostClass, HostLook]] = {
    HostClass.PYTHON: HostLook("your Python", "the line runs by itself", "#E69F00"),
    HostClass.LIBRARY: HostLook(
        "libraries", "NumPy, image codecs, the standard library and others work", "#F0E442"
    ),
    HostClass.FRAMEWORK: HostLook(
        "framework", "PyTorch or JAX prepares work, and on a CPU does it", "#009E73"
    ),
    HostClass.EAGER: HostLook(
        "single operations", "JAX runs operations outside of any compiled function", "#A6761D"
    ),
    HostClass.UNCLEAR: HostLook(
        "your line", "its own work or a call of the framework: not told apart", "#999999"
    ),
    HostClass.LOADER: HostLook("data loader", "a data loader works or waits", "#D55E00"),
    HostClass.COMPILE: HostLook("compiling", "the framework compiles", "#CC79A7"),
    HostClass.READ: HostLook(
        "reading back", "waits for a value of the framework's, and copies it", "#56B4E9"
    ),
    HostClass.PUT: HostLook(
        "handing over", "copies arrays of the host to the framework's device", "#8C564B"
    ),
    HostClass.LOCK: HostLook(
        "waiting for Python's lock", "another thread of the job runs Python meanwhile", "#117733"
    ),
    HostClass.WAIT: HostLook("waiting", "sleeps, or waits for files and others", "#882255"),
    HostClass.FRAMEWORK_WAIT: HostLook(
        "waiting in the framework", "for the device, or for what computes on a CPU", "#0072B2"
    ),
}
