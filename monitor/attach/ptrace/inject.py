"""One injection: map memory if there is none of ours yet, then have the job run a text."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from whyidle.monitor.attach.ptrace import maps, registers, stubs
from whyidle.monitor.attach.ptrace.interpreter import Interpreter, find
from whyidle.monitor.attach.ptrace.job import Job
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import NotNow, Refused, again
from whyidle.monitor.attach.ptrace.region import SOURCE, Region, borrowed, left, room_for
from whyidle.monitor.attach.ptrace.safe_points import SafePoints
from whyidle.monitor.attach.ptrace.stop import Stop
from whyidle.monitor.attach.ptrace.threads import Thread, candidates

_MOST_STOPS = 50
_WAYS = {
    "thread": ("PyThread_start_new_thread", stubs.THREAD),
    "pending": ("Py_AddPendingCall", stubs.PENDING),
}
_POLL_SECONDS = 0.0002
# A thousand times as long as the lock is held; and how long we wait for that: an
# injection under way needs Python's lock a few times, at 5 ms and more each.
_SETTLE_NS = 1_000_000
_SETTLE_SECONDS = 0.5
# How far below the libraries the new memory lies, in bytes.
_NEAR, _FAR = 1 << 20, 16 << 20
# A launched thread maps memory at once, unless it gets no CPU.
_MAP_SECONDS = 2.0


PriorityBoost = Callable[[], AbstractContextManager[None]]


@dataclass(slots=True)
class Injection:
    """A job that is being entered, and what that has taken so far."""

    job: Job
    memory: Memory
    deadline: float
    boost: PriorityBoost = nullcontext
    stops: list[float] = field(default_factory=list)
    # Whether the stopped thread starts the new one, or the main thread does.
    mode: str = ""
    # Whether the main thread may be used wherever it is; see ``settle``.
    is_settled: bool = False

    def run(self, source: bytes) -> bool:
        """Have the job run a text; returns whether it has by the deadline."""
        memory_map = self.job.maps()
        interpreter = find(memory_map, self.job.exe(), self.memory.read)
        found = list(left(memory_map, self.memory))
        self.is_settled = self.settle(found)
        fits = (r for r in found if r.fits(source) and r.read(self.memory).is_free)
        region = next(fits, None) or self._map(interpreter, room_for(source))
        block = _block(region, interpreter)
        self.memory.write(region.block + SOURCE, source + b"\0")
        safe_points = SafePoints(self.memory, self.job.maps(), interpreter)
        self._launch(safe_points, lambda stop: self._start(stop, region, block, safe_points))
        return self._await_end(region)

    def settle(self, found: list[Region]) -> bool:
        """Wait until the main thread is surely out of the pending calls of earlier injections.

        Around such a call it holds a lock, for a few instructions each time. Once the call has run
        and the thread has had a core for longer than those take, it is out of them. An injection
        whose tracer was killed may still be under way: it has as long to end.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not all(region.read(self.memory).is_free for region in found):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        began = self.job.main_thread_ns() if found else None
        while began is not None and self.job.main_thread_ns() - began < _SETTLE_NS:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _map(self, interpreter: Interpreter, size: int) -> Region:
        before = self.job.maps()
        found = borrowed(before, interpreter.libc, self.memory)
        distance = random.randrange(_NEAR, _FAR)  # noqa: S311  two injectors rarely meet
        start = maps.free_place(before, size + maps.PAGE, distance)
        if start is None:
            raise Refused("It has no address space left.")
        region = Region(start, size)
        calls = region.calls(found.syscall)
        self._launch(
            SafePoints(self.memory, before, interpreter),
            lambda stop: stop.launch(calls, found.restorer),
        )
        end = time.monotonic() + _MAP_SECONDS
        while not region.is_mapped(self.job.maps()):
            if time.monotonic() > end:
                raise Refused("It was given no new memory to run code in.")
            time.sleep(_POLL_SECONDS)
        region.prepare(self.memory)
        return region

    def _launch(self, safe_points: SafePoints, send: Callable[[Stop], None]) -> None:
        """Stop one thread after another until one can be launched."""
        for thread in candidates(self.job.pid, self.deadline):
            if len(self.stops) >= _MOST_STOPS:
                break
            self.job.check()
            if self._try(thread, safe_points, send):
                return
        raise Refused("No thread of it could be used at any moment.", again(self.job.pid))

    def _try(self, thread: Thread, safe_points: SafePoints, send: Callable[[Stop], None]) -> bool:
        stop = Stop(thread.tid, self.memory)
        try:
            with self.boost(), stop:
                area = registers.rseq_area(thread.tid) if thread.runs else 0
                safe_points.check(stop.registers, thread, area)
                send(stop)
                return True
        except (NotNow, ProcessLookupError):
            return False
        finally:
            if stop.ms:
                self.stops.append(stop.ms)

    def _start(
        self, stop: Stop, region: Region, block: stubs.Block, safe_points: SafePoints
    ) -> None:
        """Have a stopped thread start the one that runs the text, or ask the main thread to."""
        allocates = safe_points.may_allocate(stop.registers, anywhere=self.is_settled)
        self.mode = "thread" if allocates else "pending"
        name, routine = _WAYS[self.mode]
        block.function = safe_points.interpreter.functions[name]
        block.first, block.second = region.start + routine, region.block
        block.state = stubs.ARMED
        self.memory.write(region.block, block.packed())
        try:
            stop.launch((region.call,), region.restorer)
        finally:
            if not stop.launched:
                block.state = stubs.FREE
                self.memory.write(region.block, block.packed())

    def _await_end(self, region: Region) -> bool:
        while True:
            block = region.read(self.memory)
            if block.called == stubs.NO_INTERPRETER:
                raise Refused("Its Python is not up yet, or no longer.", again(self.job.pid))
            if block.failed:
                raise Refused("Its Python could not start another thread.", again(self.job.pid))
            if block.called and block.done:
                return True
            if time.monotonic() > self.deadline:
                return False
            time.sleep(_POLL_SECONDS)


def _block(region: Region, interpreter: Interpreter) -> stubs.Block:
    functions = interpreter.functions
    return stubs.Block(
        size=region.size,
        ensure=functions["PyGILState_Ensure"],
        run=functions["PyRun_SimpleString"],
        release=functions["PyGILState_Release"],
        source=region.block + SOURCE,
        errno=interpreter.errno,
        initialized=functions["Py_IsInitialized"],
        body=region.start + stubs.THREAD,
        begin=functions["PyThread_start_new_thread"],
    )


@dataclass(frozen=True, slots=True)
class Injected:
    """What an injection took: each stop in ms, who started the text, and whether it has run."""

    stops: tuple[float, ...]
    mode: str
    done: bool


def inject(
    pid: int, start_ticks: int, source: bytes, timeout: float, boost: PriorityBoost = nullcontext
) -> Injected:
    """Have a job run a text, or refuse. ``boost`` is held while a thread stands still."""
    job = Job(pid, start_ticks)
    job.check()
    with job.memory() as memory:
        # The pid may have gone to another in between: the open memory is one process's for good.
        job.check()
        injection = Injection(job, memory, time.monotonic() + timeout, boost)
        done = injection.run(source)
        return Injected(tuple(injection.stops), injection.mode, done)
