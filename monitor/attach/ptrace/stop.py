"""One thread, stopped for as short a time as possible."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from whyidle.monitor.attach.ptrace import registers as ptrace
from whyidle.monitor.attach.ptrace.calls import resumed
from whyidle.monitor.attach.ptrace.frame import Call, State, stacked
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import NotNow, Refused
from whyidle.monitor.attach.ptrace.xstate import components, sealed

# A thread that does not stop is in an uninterruptible wait, or gets no core. Checks are counted,
# not time: the machine, or we, may stand still for longer than all of them, and that is one check.
WAIT_SECONDS = 1.0
_CHECKS = 1000
_WALL = 0x40000000
_EVENT_STOP = 128
_SYSCALL = b"\x0f\x05"


class Stop:
    """A context in which a thread stands still; it goes on at the end, whatever happens.

    Its stop is observed but never collected (WNOWAIT). Should we be killed now, the kernel still
    has the signal that the thread was about to get, and delivers it.
    """

    def __init__(self, tid: int, memory: Memory) -> None:
        self._tid = tid
        self._memory = memory
        self._signal = 0
        self._began = 0.0
        # Looked up before the thread stands still.
        self._ends = components()
        # How long it stood still; 0 for never.
        self.ms = 0.0
        self.launched = False

    def __enter__(self) -> Self:
        with _waiting_for_core(self._tid) as waited:
            before = waited()
            ptrace.seize(self._tid)
            self._began = time.monotonic()
            ptrace.interrupt(self._tid)
            status = self._await()
            # While it waited for a core, as it may have done before, it did not stand still for us.
            self._began = min(self._began + waited() - before, time.monotonic())
        try:
            self._check(status)
        except BaseException:
            self._go()
            raise
        return self

    def _await(self) -> int:
        """Wait for the stop; returns its status from the kernel."""
        found = self._wait_event()
        if found.si_code not in {os.CLD_TRAPPED, os.CLD_STOPPED}:
            os.waitpid(self._tid, _WALL)
            raise NotNow("the thread has ended")
        return int(found.si_status)

    def _wait_event(self) -> os.waitid_result:
        options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG | _WALL
        with _blocked(signal.SIGCHLD) as child_signal:
            for _ in range(_CHECKS):
                found = os.waitid(os.P_PID, self._tid, options)
                if found is not None:
                    return found
                # Where the signal goes to another thread, or is ignored, this only takes longer.
                signal.sigtimedwait(child_signal, WAIT_SECONDS / _CHECKS)
        # It cannot be detached, either: our end will do that.
        raise Refused("One of its threads waits for a disk or a driver, or gets no core.")

    def _check(self, status: int) -> None:
        event, number = status >> 8, status & 0x7F
        if not event:
            self._signal = number
            raise NotNow("a signal came first")
        # A stop of the whole job (Ctrl-Z) comes as an event with its own signal.
        if event != _EVENT_STOP or number != signal.SIGTRAP:
            raise NotNow("the job is being stopped")
        self.registers = ptrace.registers(self._tid)
        self._mask = ptrace.signal_mask(self._tid)
        if ptrace.awaits_signal(self._tid, self._mask):
            raise NotNow("a signal is on its way")

    def launch(self, calls: tuple[Call, ...], restorer: int) -> None:
        """Send the thread through calls, and back to where it is."""
        back = resumed(self.registers)
        if back.rip != self.registers.rip and self._before(back.rip) != _SYSCALL:
            raise NotNow("it is in a system call of 32 bits")
        state = State(back, sealed(ptrace.xstate(self._tid), self._ends), self._mask)
        stack = stacked(calls, state, restorer)
        # Below its stack, where the thread has nothing: no harm if we end before the next line.
        self._memory.write(stack.address, stack.data)
        ptrace.set_registers(self._tid, stack.registers)
        self.launched = True

    def _before(self, address: int) -> bytes:
        return self._memory.read(address, len(_SYSCALL))

    def _go(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile
            ptrace.detach(self._tid, self._signal)
        self.ms = (time.monotonic() - self._began) * 1e3

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._go()


@contextlib.contextmanager
def _waiting_for_core(tid: int) -> Iterator[_Waited]:
    """Yield a function that returns for how many seconds a thread has waited for a core so far."""
    handle = os.open(f"/proc/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _Waited(handle)
    finally:
        os.close(handle)


class _Waited:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __call__(self) -> float:
        try:
            return int(os.pread(self._handle, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError):  # a kernel that does not count it
            return 0.0


@contextlib.contextmanager
def _blocked(number: signal.Signals) -> Iterator[set[signal.Signals]]:
    """Block a signal so that it can be waited for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield {number}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
