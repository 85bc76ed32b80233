"""Whether a stopped thread stands where it can be used safely."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from whyidle.monitor.attach.ptrace import maps
from whyidle.monitor.attach.ptrace.calls import Interruptibility, interruptibility_of, number_of
from whyidle.monitor.attach.ptrace.interpreter import Interpreter
from whyidle.monitor.attach.ptrace.maps import Mapping
from whyidle.monitor.attach.ptrace.memory import Memory
from whyidle.monitor.attach.ptrace.refused import NotNow
from whyidle.monitor.attach.ptrace.registers import Registers
from whyidle.monitor.attach.ptrace.threads import Thread

_CODE_64 = 0x33
_LINKER = re.compile(r"/ld-(linux-x86-64|musl-x86_64|2\.\d+)\.so[^/]*$")
_C_LIBRARY = re.compile(r"/(libc|libpthread|ld|libc\.musl)[-.][^/]*$")
# The calls that we launch need a few KB; a first call through the linker some more.
STACK_NEEDED = 128 << 10
# The frame is written here and now, so this much must be there already.
FRAME_NEEDED = 32 << 10


@dataclass(frozen=True, slots=True)
class SafePoints:
    """What is known of the job before a thread is stopped, and by it whether to use the thread."""

    memory: Memory
    maps: tuple[Mapping, ...]
    interpreter: Interpreter

    def check(self, now: Registers, thread: Thread, rseq: int) -> None:
        """Raise ``NotNow`` where the thread must be left alone."""
        if now.cs != _CODE_64:
            raise NotNow("it runs code of 32 bits")
        if not stack_suits(self.maps, now):
            raise NotNow("it stands on a small or borrowed stack")
        here = maps.at(self.maps, now.rip)
        if here is None or (_LINKER.search(here.path) and here.path != self.interpreter.libc):
            raise NotNow("it is loading a library")
        if number_of(now) < 0:
            self._check_running(now, thread, rseq)
        elif thread.runs or _is_worse(interruptibility_of(now), thread.interruptibility):
            raise NotNow("it is in another system call by now")
        elif interruptibility_of(now) is None:
            raise NotNow("it is in a system call that is better not disturbed")

    def _check_running(self, now: Registers, thread: Thread, rseq: int) -> None:
        if not thread.runs:
            raise NotNow("it has left its system call")
        if rseq and _in_sequence(self.memory, rseq, now.rip):
            raise NotNow("it is in a restartable sequence")

    def may_allocate(self, now: Registers, *, anywhere: bool) -> bool:
        """Tell whether the thread may start another one here; if not, it may add a pending call.

        A thread that waits in a system call, or runs bytecode at this very instruction, holds
        neither a lock of the allocator nor one of the C library. In other libraries' code it may
        hold the allocator's, but not the lock of the pending calls: that is held for a few
        instructions in the interpreter and the C library alone, just before and after a pending
        call runs. Where no call can be running, the thread may be ``anywhere``.
        """
        if number_of(now) >= 0 or now.rip in self.interpreter.loop:
            return True
        here = maps.at(self.maps, now.rip)
        risky = here is None or here.path.startswith("[") or here.path == self.interpreter.path
        if (risky or (here is not None and _C_LIBRARY.search(here.path))) and not anywhere:
            raise NotNow("it may hold the lock of the pending calls")
        return False


def _is_worse(now: Interruptibility | None, before: Interruptibility | None) -> bool:
    best = Interruptibility.BEST
    return (now or best) > (before or best)


def _in_sequence(memory: Memory, rseq: int, address: int) -> bool:
    """Tell whether a thread is between two steps that must be made on one core without a break.

    The kernel restarts such a sequence when it was interrupted, but only if it still finds the
    thread there: sent off to a call of ours, it would come back to the middle of it.
    """
    (sequence,) = memory.words(rseq + 8, 1)
    if not sequence:
        return False
    _, start, length = struct.unpack("<QQQ", memory.read(sequence, 24))
    return bool(start <= address < start + length)


def stack_suits(memory: tuple[Mapping, ...], now: Registers) -> bool:
    """Tell whether the thread stands on a stack of its own, and room is left there.

    That is the main thread's stack from the kernel, or one that holds the C library's block of the
    thread, as all from pthread_create do. A signal's stack or a coroutine's may be small.
    """
    here = maps.at(memory, now.rsp)
    if here is None or now.rsp - here.start < FRAME_NEEDED:
        return False
    if here.path == maps.STACK:
        below = max((m.end for m in memory if m.end <= here.start), default=0)
        return now.rsp - below >= STACK_NEEDED
    own = now.rsp < now.fs_base < here.end
    return own and now.rsp - here.start >= STACK_NEEDED
