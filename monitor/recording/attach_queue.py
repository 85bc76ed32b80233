"""Goes into processes one after the other, on a thread of its own: no tick waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from whyidle.monitor.attach.answers import AGENT, OUTSIDE, Outcome, Refusal, Rung
from whyidle.monitor.attach.payload import prepare
from whyidle.monitor.link.link import Link, LinkRefused
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target

# No attempt takes so long unless something below it has stopped answering.
HANG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became of one attempt; without a link nobody is inside."""

    key: ProcessKey
    outcome: Outcome
    link: Link | None = None


class AttachQueue:
    """A queue of processes to enter, and what became of those that were."""

    def __init__(self, fs: ProcFs, enter: Callable[[Target], Outcome]) -> None:
        self._fs = fs
        self._enter = enter
        self._asked: SimpleQueue[tuple[ProcessKey, bool] | None] = SimpleQueue()
        self._done: SimpleQueue[Arrival] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = False
        # Who is being entered, and since when.
        self._current: tuple[ProcessKey, float] | None = None

    def ask(self, key: ProcessKey, *, inject: bool) -> None:
        """Enter a process when its turn comes; without ``inject`` only link what is inside."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="entering", daemon=True)
            self._thread.start()
        self._asked.put((key, inject))

    def hangs(self) -> Refusal | None:
        """Return what is to be said when an attempt does not come to its end."""
        current = self._current
        if current is None or time.monotonic() - current[1] < HANG_SECONDS:
            return None
        pid = current[0].pid
        return Refusal(
            f"The way in hangs: going into process {pid} has not ended for {HANG_SECONDS:.0f} s.",
            f"Does a disk of it hang? It is watched from outside: monitor attach {pid} --observe",
        )

    def arrivals(self) -> list[Arrival]:
        """Return what has become of attempts since the last call."""
        found = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except Empty:
                return found

    def close(self, seconds: float) -> list[Arrival]:
        """Begin no more attempts; wait a moment for the one on the way."""
        self._closing = True
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join(seconds)
        return self.arrivals()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None and not self._closing:
            key, inject = asked
            began = time.monotonic()
            self._current = key, began
            try:
                arrival = self._go(key, inject=inject)
            except Exception as error:  # noqa: BLE001  a defect of ours must end no recording
                what = f"Entering process {key.pid} failed ({type(error).__name__}: {error})."
                arrival = Arrival(key, outside(Refusal(what), time.monotonic() - began))
            self._current = None
            self._done.put(arrival)

    def _go(self, key: ProcessKey, *, inject: bool) -> Arrival:
        if inject:
            prepare()
            if self._closing:
                gone = Refusal(f"The recording ended before process {key.pid} was entered.")
                return Arrival(key, outside(gone))
        outcome = self._enter(Target(key, self._fs)) if inject else Outcome(AGENT, (Rung(AGENT),))
        if not outcome.inside:
            return Arrival(key, outcome)
        try:
            link = Link.open(key, self._fs)
        except LinkRefused as refused:
            return Arrival(key, outside(Refusal(refused.what, refused.next_step)))
        if link is None:
            what = f"The agent in process {key.pid} went again before it was asked anything."
            return Arrival(key, outside(Refusal(what, f"Try again: monitor attach {key.pid}")))
        return Arrival(key, outcome, link)


def outside(refusal: Refusal, seconds: float = 0.0) -> Outcome:
    """Return the outcome of an attempt after which nobody is inside."""
    return Outcome(OUTSIDE, (Rung(AGENT, refusal),), seconds=seconds)
