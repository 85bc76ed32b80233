"""Wait for the next tick, but wake at once when the watched process ends or the user has enough."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from enum import StrEnum
from types import FrameType
from typing import Any


class Wake(StrEnum):
    """Why a wait ended."""

    TIME = "time"
    JOB = "job"
    STOP = "stop"


class Waker:
    """Polls a pidfd of the target and a pipe that signal handlers write to."""

    def __init__(self, pid: int) -> None:
        self.signal: signal.Signals | None = None
        self._handlers: dict[int, Any] = {}
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._pidfd: int | None
        try:
            self._pidfd = os.pidfd_open(pid)
            self._poll.register(self._pidfd, select.POLLIN)
        except OSError:
            # An old kernel, or the process has just gone: the next tick sees it.
            self._pidfd = None

    def stop_on(self, *signals: signal.Signals) -> None:
        """Turn these signals into a stop; one that was ignored (nohup) stays ignored."""
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Once is enough: a storm of them would run this inside itself until the stack is full.
        signal.signal(number, signal.SIG_IGN)
        self.signal = signal.Signals(number)
        self.stop()

    def stop(self) -> None:
        """End the wait, now and from then on. May be called from a signal handler."""
        # A full pipe has been told often enough.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"x")

    def wait(self, seconds: float) -> Wake:
        """Wait at most this long."""
        ready = {handle for handle, _ in self._poll.poll(max(0.0, seconds) * 1000)}
        if self._reader in ready:
            return Wake.STOP
        if self._pidfd in ready and self._pidfd is not None:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
            return Wake.JOB
        return Wake.TIME

    def close(self) -> None:
        """Give handlers and handles back, in this order: a signal may come in between."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for handle in (self._reader, self._writer, self._pidfd):
            if handle is not None:
                os.close(handle)
