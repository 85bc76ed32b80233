"""One recording from beginning to end: open, tick, close, read back."""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from whyidle.monitor.core.errors import NoGpu
from whyidle.monitor.core.pace import hurry, take_time
from whyidle.monitor.recording.clock import Sampler, Wake, Waker
from whyidle.monitor.recording.recorder import Recorder
from whyidle.monitor.recording.requests import Wanted
from whyidle.monitor.recording.snapshot import Snapshot
from whyidle.monitor.runs.summary import RunSummary, summarise
from whyidle.monitor.sources.gpus import GpuProbe
from whyidle.monitor.store import Writer

TIME_UP = "time limit"
UNREAD = "its output was closed"
FAILED = "recorder failed"
_STOPS = {signal.SIGINT: "stopped by the user", signal.SIGHUP: "terminal closed"}
STOPPED = "stopped"


class Screen(Protocol):
    """Where a recording shows itself while it runs."""

    def tick(self, snapshot: Snapshot) -> None:
        """Show one tick. May raise BrokenPipeError when nobody reads any more."""

    def close(self) -> None:
        """Leave the terminal as it was."""


@runtime_checkable
class Keys(Protocol):
    """A screen with a keyboard, whose keys ask something of the recording."""

    def listen(self, stop: Callable[[], None], trace: Callable[[], object]) -> int | None:
        """Return the descriptor on which keys come; ``None``: there are none."""

    def pressed(self) -> bool:
        """Answer what was pressed; ``False``: nobody presses any more."""


class Child(Protocol):
    """A job that we started ourselves: it is over when it ends, whatever it left running."""

    def over(self) -> bool:
        """Tell whether it has ended."""

    def code(self) -> int | None:
        """Return its exit code."""


class Session:
    """A store and a connection to the driver, ready to record a job."""

    def __init__(
        self,
        path: Path,
        screen: Screen,
        probe: GpuProbe | None = None,
        keys: Keys | None = None,
    ) -> None:
        self.path = path
        self.screen = screen
        self.stopped_by: signal.Signals | None = None
        self.gpu_problem: str | None = None
        self._blind = False
        self._keys = keys
        self._probe = probe or GpuProbe()
        self._writer = Writer.open(path)

    def open_gpus(self, *, require: bool = False) -> None:
        """Connect to the driver; without it the host part goes on, unless a GPU is required."""
        if self._probe.gpus:
            return
        try:
            self._probe.open()
        except NoGpu as problem:
            if require:
                self._writer.close()
                raise
            self.gpu_problem = problem.what

    def record(
        self,
        wanted: Wanted,
        seconds: float | None = None,
        *,
        stop_on: tuple[signal.Signals, ...] = (),
        ready: Callable[[int], None] | None = None,
        child: Child | None = None,
    ) -> RunSummary:
        """Record until the job ends, the time is up or somebody stops it; return the summary."""
        take_time()
        waker = Waker(wanted.target.pid)
        waker.stop_on(*stop_on)
        sampler = Sampler(wanted.hz, waker)
        recorder = self._begin(wanted, waker)

        def tick() -> bool:
            if child and child.over():
                return False
            snapshot = recorder.tick(sampler)
            if snapshot is None:
                return False
            if ready is not None and snapshot.ticks == 1:
                ready(snapshot.run)
            self._show(snapshot, recorder)
            return True

        reason: str | None = FAILED
        # What start-up made stays: to look through all of it would cost as much as eight ticks.
        gc.freeze()
        try:
            recorder.answer_in(waker)
            if self._keys is not None:
                _answer(self._keys, recorder, waker)
            wake = sampler.run(tick, seconds)
            # The recorder has looked for why a job ended.
            reason = None if wake is Wake.JOB else _reason(wake, waker.signal)
        except BrokenPipeError:
            reason = UNREAD
        finally:
            hurry()
            gc.unfreeze()
            self._end(recorder, waker, reason, child)
        self.stopped_by = waker.signal
        summary = summarise(self.path, str(recorder.run), self._writer.trouble)
        # The rules take a tenth of a second: nothing of it before the job is watched.
        from whyidle.monitor.diagnosis.diagnose import concluded  # noqa: PLC0415

        return concluded(self.path, summary)

    def _begin(self, wanted: Wanted, waker: Waker) -> Recorder:
        try:
            return Recorder(wanted, self._writer, self._probe, self.gpu_problem)
        except BaseException:
            waker.close()
            with contextlib.suppress(OSError):
                self.screen.close()
            self._probe.close()
            self._writer.close()
            raise

    def _end(
        self, recorder: Recorder, waker: Waker, reason: str | None, child: Child | None
    ) -> None:
        """End a recording; each step is taken whatever becomes of the one before."""
        with contextlib.ExitStack() as ending:
            # The last one first.
            ending.callback(waker.close)
            ending.callback(lambda: recorder.end(reason, child.code() if child else None))
            with contextlib.suppress(OSError):
                self.screen.close()

    def _show(self, snapshot: Snapshot, recorder: Recorder) -> None:
        """Show a tick; a terminal that is gone, or a full disk behind it, ends only the show."""
        if self._blind:
            return
        try:
            self.screen.tick(snapshot)
        except BrokenPipeError:
            raise
        except OSError:
            self._blind = True
        except Exception as error:  # noqa: BLE001  what a screen cannot show is recorded all the same
            recorder.caught("screen", error)


def _answer(keys: Keys, recorder: Recorder, waker: Waker) -> None:
    """Do what keys ask for while we wait for the next tick."""
    handle = keys.listen(
        stop=lambda: waker.stop_as(signal.SIGINT),
        trace=lambda: recorder.requests.answer({"do": "trace"}),
    )
    if handle is None:
        return

    def pressed() -> None:
        try:
            if keys.pressed():
                return
        except Exception as error:  # noqa: BLE001  a key that goes wrong ends no recording
            recorder.caught("keys", error)
        waker.ignore(handle)

    waker.answer(handle, pressed)


def _reason(wake: Wake, by: signal.Signals | None) -> str:
    if wake is Wake.TIME or by is None:
        return TIME_UP
    return _STOPS.get(by, STOPPED)
