"""Events of the GPUs, reported once: a fault that comes and goes must not fill the store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue

AGAIN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something that happened to a GPU."""

    kind: str
    index: str
    text: str
    severity: str = "high"
    code: int | None = None


class News:
    """Takes events from any thread; repeats the same event only after a while."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[GpuEvent] = SimpleQueue()
        self._reported: dict[tuple[str, str, int | None], float] = {}

    def tell(self, event: GpuEvent) -> None:
        """Report an event, unless the same one was reported lately."""
        key, now = (event.kind, event.index, event.code), time.monotonic()
        if now - self._reported.get(key, float("-inf")) >= AGAIN_SECONDS:
            self._reported[key] = now
            self._queue.put(event)

    def take(self) -> list[GpuEvent]:
        """Return the events reported since the last call."""
        found = []
        while True:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                return found
