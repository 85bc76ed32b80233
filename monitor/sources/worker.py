"""A thread that works through items and may hang: its owner waits for a limited time."""

from __future__ import annotations

import threading
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
        self._given_up = threading.Event()
        threading.Thread(target=self._loop, name=name, daemon=True).start()

    @property
    def idle(self) -> bool:
        """Tell whether the thread has finished its last item."""
        return self._finished.is_set()

    def work(
        self, items: list[Item], seconds: float
    ) -> tuple[list[tuple[Item, Result]], Item | None]:
        """Return what was done in time, and the item that takes longer, if any.

        The worker then only finishes that item: see ``idle``.
        """
        self._finished.clear()
        self._done = []
        self._inbox.put(items)
        if self._finished.wait(seconds):
            return self._done, None
        self._given_up.set()
        return list(self._done), self._current or items[0]

    def last(self) -> list[tuple[Item, Result]]:
        """Return the item that took too long, with its result, once the thread is idle."""
        return self._done[-1:]

    def retire(self) -> None:
        """End the thread after its current item."""
        self._inbox.put(None)

    def _loop(self) -> None:
        while (items := self._inbox.get()) is not None:
            for item in items:
                if self._given_up.is_set():
                    break
                self._current = item
                self._done.append((item, self._job(item)))
            self._current = None
            self._finished.set()
