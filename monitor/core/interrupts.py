"""Signals that we handle for a while."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Final

# Who presses Ctrl-C again after so long means it.
CLEARS_WITHIN: Final = 3.0


@contextlib.contextmanager
def handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], Any]
) -> Iterator[None]:
    """Handle signals this way, then restore. Ignored signals (nohup) stay ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    ours = {number: was for number, was in before.items() if was is not signal.SIG_IGN}
    for number in ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, was in ours.items():
            signal.signal(number, was)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let the first signal end us in order; what follows soon does not disturb the clearing up.

    A later one ends us again: Python drops an exception that comes within a finalizer.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ends_again = -math.inf

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal ends_again
        now = time.monotonic()
        if now < ends_again:
            return
        ends_again = now + CLEARS_WITHIN
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(0 if number == signal.SIGTERM else 128 + number)

    with handled(numbers, end):
        yield
