"""Processes that call a function for one argument after the other, each beside this one.

Those of `multiprocessing` import the program that asks as their own `__main__`, and so run it
again: a page of the dashboard, or a user's script of ten lines without a guard.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")

# Not in the user's working directory: a file there may be named like a module of ours.
_COMMAND: Final = (sys.executable, "-P", "-m", "whyidle.monitor.traces.ranks.readers")


def in_processes(
    call: Callable[[Given], Found], arguments: Sequence[Given], workers: int
) -> Iterator[tuple[Given, Found | None]]:
    """Yield each argument with what was found, as it is done; None where its process ended."""
    free: SimpleQueue[_Process[Given, Found]] = SimpleQueue()
    for _ in range(workers):
        free.put(_Process(call))

    def one(argument: Given) -> Found | None:
        process = free.get()
        try:
            return process.ask(argument)
        finally:
            free.put(process)

    with ThreadPoolExecutor(workers) as threads:
        running = {threads.submit(one, argument): argument for argument in arguments}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            threads.shutdown(cancel_futures=True)
            for _ in range(workers):
                free.get().end()


class _Process(Generic[Given, Found]):
    """A process that is started when it is asked, and again when it has ended."""

    def __init__(self, call: Callable[[Given], Found]) -> None:
        self._call = call
        self._running: subprocess.Popen[bytes] | None = None

    def ask(self, argument: Given) -> Found | None:
        process = self._running or subprocess.Popen(  # noqa: S603  ourselves
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._running = process
        assert process.stdin is not None  # noqa: S101  pipes were asked for
        assert process.stdout is not None  # noqa: S101
        try:
            pickle.dump((self._call, argument), process.stdin)
            process.stdin.flush()
            found: Found = pickle.load(process.stdout)  # noqa: S301  written by ourselves
        except (OSError, EOFError, pickle.UnpicklingError):
            self.end()
            return None
        return found

    def end(self) -> None:
        process, self._running = self._running, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                process.communicate()


def _serve() -> None:
    """Answer until nobody asks."""
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints is no answer.
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            call, argument = pickle.load(sys.stdin.buffer)  # noqa: S301  written by ourselves
            pickle.dump(call(argument), answers)
            answers.flush()


if __name__ == "__main__":
    _serve()
