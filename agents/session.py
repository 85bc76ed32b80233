"""What exists while the agent can be reached: endpoint, probes, leases, and their loop."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial

from .facts import facts
from .knobs import Knobs
from .lease import Leases
from .main_thread import main_thread
from .probes import KNOWN, Probes
from .request_handler import Parts, RequestHandler
from .ring import Ring
from .timers import EARLY, LATE, SECOND, Timer, Timers
from .tracing import Traces
from .wire import AGENT_CPU_NS, LOST, clock_pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .endpoint import Endpoint
    from .worker import Worker

MINUTE = 60 * SECOND


class Session:
    """One session; used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, method: str, grace: float, main: int | None) -> None:
        now = time.monotonic_ns()
        self._pid = os.getpid()
        self._method = method
        # CPU time of the threads before this one.
        self.cpu_before = 0
        self._endpoint = endpoint
        # Whether the job has left our descriptors open, as of the last second.
        self._is_ours = True
        self._ring = Ring()
        self._timers = Timers()
        self._timers.add(Timer(SECOND, self._second, EARLY, LATE), now)
        self._timers.add(Timer(MINUTE, self._minute, EARLY, LATE), now)
        self._leases = Leases(now + int(grace * SECOND))
        self._probes = Probes(self._timers, self._ring.put, main)
        main_call = self._probes.steps.main_call
        self._traces = Traces(endpoint.folder, self._timers, self._ring.put, main_call)
        self._knobs = Knobs(self._ring.put, main_call)
        self._handler = RequestHandler(
            Parts(self._leases, self._probes, self._traces, self._knobs),
            endpoint,
            self._hello,
            self._write_now,
        )

    def begin(self) -> None:
        """Write the first records, and turn the probes on."""
        self._endpoint.spool.write(self._hello())
        if self._probes.main is None:
            self._probes.main = self._probes.steps.main_call.main = main_thread()
        for name in KNOWN:
            self._probes.turn_on(name)
        self._endpoint.spool.write(self._ring.take())

    def loop(self, worker: Worker) -> str | None:
        """Work until told to stop (``None``), or until there is a reason to go."""
        control = self._endpoint.control
        self._traces.set_rest(worker.rest)
        while self._is_ours:
            self._timers.run(time.monotonic_ns())
            wait = self._timers.wait_ns(time.monotonic_ns())
            # A stop that is set from here on writes to the wake pipe, which ends the wait.
            ready: set[int] = set()
            if not worker.stop:
                ready = worker.rest(partial(control.wait, -(-wait // 1_000_000)))
            if worker.stop or os.getpid() != self._pid:
                return None
            if ready:
                if not self._endpoint.is_ours():
                    break
                control.serve(ready, self._handler.answer)
            reason = self._reason_to_go(heard=bool(ready))
            if reason is not None:
                return reason
            if ready:
                control.send(self._handler.forget)
        return "closed"

    def _reason_to_go(self, *, heard: bool) -> str | None:
        """Return why nobody needs us any more, once nothing of the job's is turned."""
        if self._handler.is_over:
            reason = "detached"
        elif not heard and self._leases.are_over(time.monotonic_ns()):
            reason = "lease"
        else:
            return None
        return reason if self._knobs.take_back(f"the agent leaves: {reason}") else None

    def say_goodbye(self, reason: str) -> None:
        """Write the last records; the agent's thread has counted its time by now."""
        self._knobs.take_back(f"the agent leaves: {reason}")
        self._write_second(time.monotonic_ns(), 0)
        self._traces.close(reason)
        for name in self._probes.names():
            self._probes.turn_off(name, reason)
        self._endpoint.spool.write(self._ring.take())
        self._endpoint.spool.write_last(["bye", time.monotonic_ns(), reason])

    def undo(self) -> None:
        """Undo what was changed in the job, and what it was told."""
        with suppress(Exception):
            self._handler.untell()
        # Whatever one of them meets (a Ctrl-C of the job's), the others are undone.
        try:
            self._knobs.undo()
        finally:
            try:
                self._traces.undo()
            finally:
                self._probes.undo()

    def before_fork(self) -> None:
        """Leave nothing that could harm a child; on the thread that forks."""
        self._traces.before_fork()

    def close(self) -> None:
        """Remove everything; the end of the connections says that it is done."""
        with suppress(BaseException):
            self._endpoint.close()

    def drop(self) -> None:
        """Let go of what a fork copied."""
        with suppress(BaseException):
            self._endpoint.drop()

    def _second(self, now: int) -> None:
        # Seldom: each check of a descriptor releases Python's lock, and waits to have it back.
        self._is_ours = self._endpoint.is_ours()
        if self._is_ours:
            self._endpoint.control.rest()
            self._knobs.second(now)
            self._write_second(now, time.thread_time_ns())

    def _write_now(self) -> None:
        self._write_second(time.monotonic_ns(), time.thread_time_ns())

    def _write_second(self, now: int, cpu_ns: int) -> None:
        spool = self._endpoint.spool
        gauges: dict[str, int | None] = {
            LOST: self._ring.lost() + spool.lost + self._probes.lost(),
            AGENT_CPU_NS: self.cpu_before + cpu_ns,
        }
        gauges.update(self._probes.gauges(now))
        self._traces.second(now, gauges)
        self._ring.put(["gauges", now, gauges])
        spool.write(self._ring.take())

    def _minute(self, _now: int) -> None:
        self._ring.put(_clock())
        self._endpoint.tidy()

    def _hello(self) -> list[list[Any]]:
        found = {**facts(self._method), "probes": self._probes.names()}
        return [["hello", time.monotonic_ns(), found], _clock()]


def _clock() -> list[Any]:
    pair = clock_pair()
    return ["clock", pair.monotonic_ns, pair.realtime_ns, pair.error_ns]
