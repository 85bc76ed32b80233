"""A thread of ours that samples stacks from outside: one process often, the others seldom."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Mapping

from whyidle.monitor.attach.answers import Refusal
from whyidle.monitor.attach.stack_reader.owner import CodeOwner
from whyidle.monitor.attach.stack_reader.reader import StackReader
from whyidle.monitor.attach.stack_reader.unreadable import Ended, Unreadable
from whyidle.monitor.link.records import Stacks, Steps
from whyidle.monitor.processes.mounts import Mounts
from whyidle.monitor.processes.process import ProcessKey
from whyidle.monitor.processes.procfs import ProcFs
from whyidle.monitor.processes.target import Target
from whyidle.monitor.recording.stacks.counts import StackCounts
from whyidle.monitor.recording.stacks.parts import part_of
from whyidle.monitor.recording.stacks.turns import Told, Turns

# Of a core; where samples cost more, there are fewer.
BUDGET = 0.015
# How fast what is known of their cost follows the latest.
_FOLLOWS = 0.05
# Other threads are sampled, too: so many of a process, and seldom.
THREADS_HZ, MOST_THREADS = 2.0, 10
# How often its loops are read, where nothing else counts its steps.
LOOPS_HZ = 5.0
# A process that could not be read may be another program by now.
TRY_AGAIN_SECONDS = 5.0
_IDLE_SECONDS = 1.0


class StackThread:
    """Samples the processes that it is told to watch."""

    def __init__(self, fs: ProcFs) -> None:
        self._fs = fs
        self._wanted: Mapping[ProcessKey, float] = {}
        # Where the phase lies that a job marks.
        self._phases: Mapping[ProcessKey, int] = {}
        # Stands for the job.
        self._first: ProcessKey | None = None
        self._sampled: dict[ProcessKey, StackCounts] = {}
        self._refused: dict[ProcessKey, Refusal] = {}
        self._again: dict[ProcessKey, float] = {}
        # Of those that have ended since they were last asked for.
        self._left: dict[ProcessKey, tuple[Stacks, int]] = {}
        # The other threads of the first, and of those whose main thread waits.
        self._threads: dict[ProcessKey, StackCounts] = {}
        # Of processes whose steps nothing else counts, and when their loops are due.
        self._turns: dict[ProcessKey, Turns] = {}
        self._loops_due: dict[ProcessKey, float] = {}
        # Which part of a job each is, as far as its loop says so.
        self._parts: dict[ProcessKey, str] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._seconds, self._slower = 0.0, 1.0

    def watch(self, wanted: Mapping[ProcessKey, float]) -> None:
        """Sample these processes from now on, each so many times a second."""
        if wanted == self._wanted:
            return
        self._wanted = dict(wanted)
        self._first = next(iter(self._wanted), None)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sampling", daemon=True)
            self._thread.start()
        self._wake.set()

    def read_phases(self, at: Mapping[ProcessKey, int]) -> None:
        """Read with each sample of these the phase that their own code marks."""
        self._phases = at

    def take(self) -> dict[ProcessKey, tuple[Stacks, int]]:
        """Return what was seen since the last call, and how many samples were torn."""
        now_ns = time.monotonic_ns()
        with self._lock:
            found, self._left = self._left, {}
            return found | {k: s.record(now_ns) for k, s in self._sampled.items() if s.samples}

    def part(self, key: ProcessKey) -> str | None:
        """Return which part of a job a process is, as its stack says; ``None``: it does not."""
        return self._parts.get(key)

    def take_threads(self) -> dict[ProcessKey, Stacks]:
        """Return where the other threads of a process were since the last call."""
        now_ns = time.monotonic_ns()
        with self._lock:
            return {k: s.record(now_ns)[0] for k, s in self._threads.items() if s.samples}

    def count_turns(self, wanted: Mapping[ProcessKey, Told]) -> None:
        """Count the turns of these processes' loops; with each, what else is known of its steps."""
        with self._lock:
            self._turns = {k: self._turns.get(k) or Turns() for k in wanted}
            for key, told in wanted.items():
                self._turns[key].tell(told)

    def take_turns(self) -> dict[ProcessKey, Steps]:
        """Return the steps that ended since the last call, as far as loops tell them."""
        now_ns = time.monotonic_ns()
        with self._lock:
            taken = {key: turns.take(now_ns) for key, turns in self._turns.items()}
        return {key: steps for key, steps in taken.items() if steps is not None}

    def refusals(self) -> dict[ProcessKey, Refusal]:
        """Return why processes cannot be sampled, of those that were asked for."""
        with self._lock:
            return dict(self._refused)

    def close(self, seconds: float = 1.0) -> None:
        """Sample no more."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        while not self._closing:
            self._wake.clear()
            self._follow_wishes()
            now = time.monotonic()
            for key, sampled in list(self._sampled.items()):
                if sampled.due <= now and not self._closing:
                    self._sample(key, sampled)
            due = min((s.due for s in self._sampled.values()), default=now + _IDLE_SECONDS)
            self._wake.wait(max(0.0, min(due, now + _IDLE_SECONDS) - time.monotonic()))
        for key in list(self._sampled):
            self._drop(key)

    def _follow_wishes(self) -> None:
        wanted, now = self._wanted, time.monotonic()
        for key in [key for key in self._sampled if key not in wanted]:
            self._drop(key)
        with self._lock:
            self._refused = {k: why for k, why in self._refused.items() if k in wanted}
        self._again = {k: at for k, at in self._again.items() if k in wanted}
        self._parts = {k: part for k, part in self._parts.items() if k in wanted}
        for key, hz in wanted.items():
            if key in self._sampled:
                self._sampled[key].hz = hz
            elif self._again.get(key, now) <= now:
                self._open(key, hz)

    def _open(self, key: ProcessKey, hz: float) -> None:
        try:
            target = Target(key, self._fs)
            reader = StackReader(target, CodeOwner(target).is_users, part_of)
        except Unreadable as error:
            self._refuse(key, Refusal(error.what, error.next_step))
        except Exception as error:  # noqa: BLE001  a defect of ours must end no recording
            self._refuse(key, _defect(key, error))
        else:
            words = Mounts(self._fs, key.pid).of
            found = StackCounts(reader, hz, began_ns=time.monotonic_ns(), words=words)
            found.plan(time.monotonic(), 1.0)
            with self._lock:
                self._refused.pop(key, None)
                self._sampled[key] = found

    def _sample(self, key: ProcessKey, sampled: StackCounts) -> None:
        began = time.thread_time()
        try:
            stack = sampled.reader.sample()
            at = self._phases.get(key)
            phase = None if at is None else sampled.reader.phase(at)
            self._look_at_loops(key, sampled)
            # A worker that waits may wait for threads of its own.
            if key == self._first or (stack is not None and stack.waits):
                self._sample_threads(key, sampled)
        except Ended:
            self._drop(key)
            self._again[key] = time.monotonic() + TRY_AGAIN_SECONDS
            return
        except Exception as error:  # noqa: BLE001  a defect of ours must end no recording
            self._drop(key)
            self._refuse(key, _defect(key, error))
            return
        if stack is not None:
            if stack.part is not None:
                self._parts[key] = stack.part
            with self._lock:
                sampled.add(stack, phase or stack.phase)
        self._seconds += _FOLLOWS * (time.thread_time() - began - self._seconds)
        wished = sum(each.hz for each in self._sampled.values())
        self._slower = max(1.0, wished * self._seconds / BUDGET)
        sampled.plan(time.monotonic(), self._slower)
        if not sampled.makes_sense:
            self._drop(key)
            self._refuse(key, Refusal(f"The stack of process {key.pid} cannot be understood."))

    def _look_at_loops(self, key: ProcessKey, sampled: StackCounts) -> None:
        now = time.monotonic()
        if key not in self._turns or self._loops_due.get(key, now) > now:
            return
        # Never in step with what the job repeats.
        pause = self._slower / LOOPS_HZ * random.uniform(0.5, 1.5)  # noqa: S311  no secret
        self._loops_due[key] = now + pause
        try:
            found = sampled.reader.loops()
            with self._lock:
                if found and (turns := self._turns.get(key)) is not None:
                    turns.look(found, time.monotonic_ns())
        except Ended:
            raise
        except Exception:  # noqa: BLE001  where it is, is known all the same
            self._loops_due[key] = math.inf

    def _sample_threads(self, key: ProcessKey, sampled: StackCounts) -> None:
        others = self._threads.get(key)
        if others is None:
            others = StackCounts(
                sampled.reader, THREADS_HZ, began_ns=time.monotonic_ns(), words=sampled.words
            )
            with self._lock:
                self._threads[key] = others
        if others.due > time.monotonic():
            return
        found = list(sampled.reader.sample_others(MOST_THREADS))
        others.plan(time.monotonic(), self._slower)
        with self._lock:
            for each in found:
                others.add(each)

    def _refuse(self, key: ProcessKey, why: Refusal) -> None:
        self._again[key] = time.monotonic() + TRY_AGAIN_SECONDS
        with self._lock:
            self._refused[key] = why

    def _drop(self, key: ProcessKey) -> None:
        with self._lock:
            sampled = self._sampled.pop(key)
            self._threads.pop(key, None)
            self._loops_due.pop(key, None)
            if sampled.samples:
                self._left[key] = sampled.record(time.monotonic_ns())
        sampled.reader.close()


def _defect(key: ProcessKey, error: Exception) -> Refusal:
    return Refusal(f"Sampling process {key.pid} failed ({type(error).__name__}: {error}).")
