"""A thread that does one thing after another and may hang: its owner waits only so long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Worker(Generic[Item, Result]):
    """Runs ``job`` over batches on its own daemon thread."""

    def __init__(self, name: str, job: Callable[[Item], Result]) -> None:
        self._job = job
        self._inbox: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._current: Item | None = None
        self._done: list[tuple[Item, Result]] = []
        self._finished = threading.Event()
        self._abandoned = threading.Event()
        threading.Thread(target=self._loop, name=name, daemon=True).start()

    @property
    def idle(self) -> bool:
        """Tell whether the thread has come back from whatever it hung in."""
        return self._finished.is_set()

    def work(
        self, items: list[Item], seconds: float
    ) -> tuple[list[tuple[Item, Result]], Item | None]:
        """Return what was done in time, and the item it hangs in, if it does."""
        self._finished.clear()
        self._done = []
        self._inbox.put(items)
        started = time.monotonic()
        while not self._finished.wait(seconds):
            stuck = self._current
            # The machine may have been too busy to begin: that is nobody's hang.
            if stuck is not None or time.monotonic() - started > 10 * seconds:
                self._abandoned.set()
                return list(self._done), stuck if stuck is not None else items[0]
        return self._done, None

    def retire(self) -> None:
        """End the thread when it next looks up."""
        self._inbox.put(None)

    def _loop(self) -> None:
        while (items := self._inbox.get()) is not None:
            for item in items:
                self._current = item
                result = self._job(item)
                if self._abandoned.is_set():
                    break
                self._done.append((item, result))
            self._current = None
            self._finished.set()
