"""Signals that we handle for a while."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any


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
